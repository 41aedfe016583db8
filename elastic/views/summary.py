"""The outcome of a run: a pure fold over its events.

Goodput is the share of the run's wall time in which training went forward: 1 minus start-up,
pauses and steps done again, over the time from the job's first start to its last fact. A pause is
what the survivors of a lost worker measured; where nobody survived, the time from the last fact of
progress to the first step after it, or to the end.
"""

import json
import tempfile
from collections.abc import Iterator, Sequence
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
        epochs, steps: epochs ended and optimizer steps done, those that were lost left out.
        lost_steps: steps that were done again, after no worker was left to hold them.
        samples_owed, samples_seen: of all epochs; equal when each sample was used once.
        generations: how many worlds formed.
        world_sizes: in the order they formed.
        weights_sha256: of the model's weights at the end, as rank 0 held them.
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
    weights_sha256: str = ""


def summarise(records: Sequence[Record]) -> Summary:
    """Fold the records of a run, in the order of time, into its outcome."""
    if not records:
        return Summary(status="running")
    end = _end(records)
    worlds = [formed for formed, *_ in _by_world(records)[1:]]
    wall = (end or records[-1]).time - records[0].time
    reached, lost = _steps(records)
    finished = end is not None and end.event == "JobFinished"
    return Summary(
        status=_STATUS[end.event] if end else "running",
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
        goodput=goodput(records, wall),
        stopped_early=bool(end.get("stopped_early")) if end else False,
        reason=str(end.get("reason", "")) if end else "",
        weights_sha256=_hash(records),
    )


def lost_steps(records: Sequence[Record]) -> int:
    """Return how many steps were done again: worlds that formed behind what had been reached."""
    return _steps(records)[1]


def goodput(records: Sequence[Record], wall_s: float) -> float:
    """Return the share of `wall_s`, from the first record on, in which training went forward."""
    first = next((r for r in records if r.event == "FirstStepDone"), None)
    if wall_s <= 0 or first is None:
        return 0.0
    startup = first.time - records[0].time
    paused = sum(_pauses(records, records[0].time + wall_s))
    reached, lost = _steps(records)
    again = lost * max(0.0, wall_s - startup - paused) / (max(1, reached) + lost)
    return round(min(1.0, max(0.0, 1.0 - (startup + paused + again) / wall_s)), 4)


_STATUS = {"JobFinished": "finished", "JobFailed": "failed", "JobStopped": "stopped"}
_PROGRESS = frozenset({"FirstStepDone", "Progressed", "EpochEnded", "Committed", "JobFinished"})
_GOING_BACK = frozenset({"WorldFormed", "CheckpointLoaded"})  # their step is where training goes on, not what it did


def _end(records: Sequence[Record]) -> Record | None:
    """Return how the run ended, unless it has been started again since."""
    last = next((r for r in reversed(records) if r.event in _STATUS or r.event == "JobStarted"), None)
    return last if last is not None and last.event in _STATUS else None


def _by_world(records: Sequence[Record]) -> list[list[Record]]:
    """Split the records where a world forms; the first part comes before any.

    Each member records its world. When all workers were lost, the new ones number their worlds from 1
    again; a rank that seems to form the same world twice shows that.
    """
    parts: list[list[Record]] = [[]]
    members: dict[tuple[int, int], set[int]] = {}
    for record in records:
        if record.event == "WorldFormed":
            ranks = members.setdefault((record.generation, int(record.get("size"))), set())
            if not ranks or record.rank in ranks:
                ranks.clear()
                parts.append([])
            ranks.add(record.rank)
        parts[-1].append(record)
    return parts


def _steps(records: Sequence[Record]) -> tuple[int, int]:
    """Return the steps done, and those done before that a world went back behind."""
    reached = lost = 0
    for number, part in enumerate(_by_world(records)):
        if number > 0:
            begins_at = int(part[0].get("step"))
            lost += max(0, reached - begins_at)
            reached = begins_at
        done = (int(r.get("step")) for r in part if "step" in r.fields and r.event not in _GOING_BACK)
        reached = max((reached, *done))
    return reached, lost


def _pauses(records: Sequence[Record], end: float) -> Iterator[float]:
    """Yield for how long training stood still before each world's first step, and at the end."""
    progress_at: float | None = None
    for part in _by_world(records):
        firsts = [r for r in part if r.event == "FirstStepDone"]
        measured = max((float(r.get("pause_s")) for r in firsts), default=0.0)
        if measured > 0.0:
            yield measured
        elif firsts and progress_at is not None:
            yield max(0.0, firsts[0].time - progress_at)
        progress_at = max((r.time for r in part if r.event in _PROGRESS), default=progress_at)
    if progress_at is not None:
        yield max(0.0, end - progress_at)


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
