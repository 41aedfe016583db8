"""The outcome of a run: a pure fold over its events."""

import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from elastic.events import Record, read
from elastic.rundir import RunDir
from elastic.views.goodput import goodput, seconds, stretches
from elastic.views.pauses import Phase
from elastic.views.worlds import ENDS, by_world, end_of, last_moment, steps


@dataclass(frozen=True, slots=True)
class Summary:
    """What `summary.json` holds.

    Attributes:
        status: finished, failed, stopped, or running (no end recorded).
        epochs, steps: epochs ended and optimizer steps done, those that were lost left out.
        lost_steps: steps that were done again, after no worker was left to hold them.
        samples_owed, samples_seen: of all epochs; equal when each sample was used once.
        generations: how many worlds formed.
        world_sizes: in the order they formed.
        weights_sha256: of the model's weights at the end, as rank 0 held them.
        goodput: see `goodput`; from 0 to 1.
    """

    status: str
    epochs: int = 0
    steps: int = 0
    metrics: dict[str, float] = field(default_factory=dict)
    wall_s: float = 0.0
    generations: int = 0
    world_sizes: tuple[int, ...] = ()
    workers_lost: int = 0
    lost_steps: int = 0
    samples_owed: int = 0
    samples_seen: int = 0
    goodput: float = 0.0
    stopped_early: bool = False
    reason: str = ""
    weights_sha256: str = ""


def summarise(records: Sequence[Record], spent: Mapping[Phase, float] | None = None) -> Summary:
    """Fold the records of a run, in the order of time, into its outcome.

    Args:
        records: of the run.
        spent: its seconds by phase, from whoever has worked them out already.
    """
    if not records:
        return Summary(status="running")
    end = end_of(records)
    worlds = [formed for formed, *_ in by_world(records)[1:]]
    wall = last_moment(records) - records[0].time
    reached, lost = steps(records)
    finished = end is not None and end.event == "JobFinished"
    return Summary(
        status=ENDS[end.event] if end else "running",
        epochs=int(end.get("epochs", 0)) if finished and end else _epochs(records),
        steps=int(end.get("step", 0)) if finished and end else reached,
        metrics=_metrics(records, end),
        wall_s=round(wall, 3),
        generations=len(worlds),
        world_sizes=tuple(int(r.get("size")) for r in worlds),
        workers_lost=sum(r.event == "WorkerLost" and bool(r.get("root_cause")) for r in records),
        lost_steps=lost,
        samples_owed=int(end.get("samples_owed", 0)) if finished and end else 0,
        samples_seen=int(end.get("samples", 0)) if finished and end else _samples(records),
        goodput=round(goodput(seconds(stretches(records)) if spent is None else spent), 4),
        stopped_early=bool(end.get("stopped_early")) if end else False,
        reason=str(end.get("reason", "")) if end else "",
        weights_sha256=_hash(records),
    )


def lost_steps(records: Sequence[Record]) -> int:
    """Return how many steps were done again: worlds that formed behind what had been reached."""
    return steps(records)[1]


def _epochs(records: Sequence[Record]) -> int:
    last = next((r for r in reversed(records) if "epoch" in r.fields), None)
    return 0 if last is None else int(last.get("epoch")) + (last.event == "EpochEnded")


def _hash(records: Sequence[Record]) -> str:
    """Return what the weights came to, unless training went on from there."""
    hashed = [r for r in records if r.event == "WeightsHashed" and r.rank == 0]
    reached = max((int(r.get("step")) for r in records if r.event in {"Progressed", "FirstStepDone"}), default=0)
    return str(hashed[-1].get("sha256")) if hashed and int(hashed[-1].get("step")) >= reached else ""


def _samples(records: Sequence[Record]) -> int:
    return next((int(r.get("samples")) for r in reversed(records) if "samples" in r.fields), 0)


def _metrics(records: Sequence[Record], end: Record | None) -> dict[str, float]:
    if end is not None and end.event == "JobFinished":
        return dict(end.get("metrics", {}))
    return next((dict(r.get("metrics")) for r in reversed(records) if r.event == "EpochEnded"), {})


def write(run_dir: RunDir) -> Summary:
    """Summarise a run and write `summary.json` whole or not at all."""
    summary = summarise(read(run_dir.events))
    text = json.dumps(asdict(summary), indent=1) + "\n"
    handle, name = tempfile.mkstemp(dir=run_dir.path, prefix=".summary")
    try:
        with open(handle, "w", encoding="utf-8") as file:  # noqa: PTH123 - it is open already
            file.write(text)
        Path(name).chmod(0o644)
        Path(name).replace(run_dir.summary)
    except OSError:
        Path(name).unlink(missing_ok=True)
        raise
    return summary


def finished(run_dir: RunDir) -> Summary | None:
    """Return the summary of a run that has reached its goal, else None."""
    try:
        raw: dict[str, Any] = json.loads(run_dir.summary.read_text(encoding="utf-8"))
        summary = Summary(**raw)
    except (OSError, ValueError, TypeError):
        return None
    return summary if summary.status == "finished" else None
