"""The outcome of a run: a pure fold over its events.

Goodput is the share of the run's wall time in which training went forward: 1 minus start-up,
recovery pauses and steps done again, over the time from the job's first start to its last fact.
"""

import json
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from elastic.events import Record, read
from elastic.rundir import RunDir


@dataclass(frozen=True, slots=True)
class Summary:
    """What `summary.json` holds.

    Attributes:
        status: finished, failed, stopped, or running (no end recorded).
        steps: optimizer steps of the finished training.
        lost_steps: steps that were done again, after no worker was left to hold them.
        samples_owed, samples_seen: of all epochs; equal when each sample was used once.
        world_sizes: in the order the worlds formed.
        goodput: see the module's head; from 0 to 1.
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


def summarise(records: Sequence[Record]) -> Summary:
    """Fold the records of a run, in the order of time, into its outcome."""
    if not records:
        return Summary(status="running")
    end = next((r for r in reversed(records) if r.event in ("JobFinished", "JobFailed", "JobStopped")), None)
    worlds = list({r.generation: r for r in records if r.event == "WorldFormed"}.values())
    wall = (end or records[-1]).time - records[0].time
    lost = lost_steps(records)
    reached = _last(records, "step")
    finished = end is not None and end.event == "JobFinished"
    status = {"JobFinished": "finished", "JobFailed": "failed", "JobStopped": "stopped"}
    return Summary(
        status=status[end.event] if end else "running",
        epochs=int(end.get("epochs", 0)) if finished and end else sum(r.event == "EpochEnded" for r in records),
        steps=int(end.get("step", 0)) if finished and end else reached,
        metrics=_metrics(records, end),
        wall_s=round(wall, 3),
        generations=max((r.generation for r in records), default=0),
        world_sizes=tuple(int(r.get("size")) for r in worlds),
        workers_lost=sum(r.event == "WorkerLost" and bool(r.get("root_cause")) for r in records),
        lost_steps=lost,
        samples_owed=int(end.get("samples_owed", 0)) if finished and end else 0,
        samples_seen=int(end.get("samples", 0)) if finished and end else _last(records, "samples"),
        goodput=goodput(records, wall, lost),
        stopped_early=bool(end.get("stopped_early")) if end else False,
        reason=str(end.get("reason", "")) if end else "",
    )


def lost_steps(records: Sequence[Record]) -> int:
    """Return how many steps were done again: worlds that formed behind what had been reached."""
    reached, lost, seen = 0, 0, set()
    for record in records:
        if record.event == "WorldFormed" and record.generation not in seen:
            seen.add(record.generation)
            lost += max(0, reached - int(record.get("step")))
            reached = int(record.get("step"))
        elif "step" in record.fields and record.event not in ("WorldFormed", "CheckpointLoaded"):
            reached = max(reached, int(record.get("step")))
    return lost


def goodput(records: Sequence[Record], wall_s: float, lost: int) -> float:
    """Return the share of `wall_s` in which training went forward."""
    firsts = [r for r in records if r.event == "FirstStepDone"]
    if wall_s <= 0 or not firsts:
        return 0.0
    startup = firsts[0].time - records[0].time
    pauses: dict[int, float] = {}
    for record in firsts:
        pauses[record.generation] = max(pauses.get(record.generation, 0.0), float(record.get("pause_s")))
    steps = max(1, _last(records, "step"))
    again = lost * max(0.0, wall_s - startup - sum(pauses.values())) / (steps + lost)
    return round(min(1.0, max(0.0, 1.0 - (startup + sum(pauses.values()) + again) / wall_s)), 4)


def _last(records: Sequence[Record], name: str) -> int:
    return next((int(r.get(name)) for r in reversed(records) if name in r.fields), 0)


def _metrics(records: Sequence[Record], end: Record | None) -> dict[str, float]:
    if end is not None and end.event == "JobFinished":
        return dict(end.get("metrics", {}))
    return next((dict(r.get("metrics")) for r in reversed(records) if r.event == "EpochEnded"), {})


def write(run_dir: RunDir) -> Summary:
    """Summarise a run and write `summary.json` whole or not at all."""
    summary = summarise(read(run_dir.events))
    text = json.dumps(asdict(summary), indent=1) + "\n"
    with tempfile.NamedTemporaryFile("w", dir=run_dir.path, prefix=".summary", delete=False, encoding="utf-8") as file:
        file.write(text)
    Path(file.name).chmod(0o644)
    Path(file.name).replace(run_dir.summary)
    return summary


def finished(run_dir: RunDir) -> Summary | None:
    """Return the summary of a run that has reached its goal, else None."""
    try:
        raw: dict[str, Any] = json.loads(run_dir.summary.read_text(encoding="utf-8"))
        summary = Summary(**raw)
    except (OSError, ValueError, TypeError):
        return None
    return summary if summary.status == "finished" else None
