"""The matrix's cells, and the plan of faults that a kind's cells come to. Pure (private to `benchmarks.matrix`)."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from elastic.chaos.kinds import Kind, has_target


class Moment(StrEnum):
    """When a fault strikes."""

    START = "start"
    STEP = "step"
    COMMIT = "commit"
    CHECKPOINT = "checkpoint"
    REENTRY = "re-initialisation"
    RECOVERY = "another recovery"


MEANS = {
    Moment.START: "the newest worker is coming up, and no step has been done",
    Moment.STEP: "a worker is in a step",
    Moment.COMMIT: "rank 0 is committing",
    Moment.CHECKPOINT: "rank 0 has committed, and the checkpoint is being written",
    Moment.REENTRY: "another worker was killed, and rank 0 is joining the new world",
    Moment.RECOVERY: "another worker was killed, and the one that replaces it is joining",
}
HOSTS = frozenset({Kind.HOST_REMOVED, Kind.HOST_ADDED, Kind.HOST_FLAPPING})
CHECKPOINTS = frozenset({Kind.CHECKPOINT_TORN, Kind.CHECKPOINT_FLIPPED})
NO_CHECKPOINT = "there is no checkpoint yet"
LIMIT_S = 420.0

_MANY = {"limit": 100}
_JOB: dict[str, Any] = {
    "epochs": 100_000,
    "batch": {"per_worker": 32},
    "commit": {"steps": 20},
    "hang": {"progress_s": 8},
    "restart": dict.fromkeys(("crash", "hang", "reentry", "user_code", "preempted"), _MANY),
}
_JOB_ON_HOSTS: dict[str, Any] = _JOB | {
    "batch": {"global": 64},
    "workers": {"min": 1, "max": 3, "start": 2},
    "hosts": ["localhost:1", "127.0.0.1:1"],
}

_AIMED: dict[Moment, dict[str, Any]] = {
    Moment.START: {"target": "newcomer", "event": "WorkerStarted"},
    Moment.STEP: {"target": "random", "during": "stepping"},
    Moment.COMMIT: {"target": "rank 0", "during": "saving"},
    Moment.CHECKPOINT: {"target": "rank 0", "event": "Committed"},
    Moment.REENTRY: {"target": "rank 0", "during": "entering", "overlap": True},
    Moment.RECOVERY: {"target": "newcomer", "during": "entering", "overlap": True},
}
_AT_LARGE: dict[Moment, dict[str, Any]] = {
    Moment.START: {"event": "WorkerStarted"},
    Moment.STEP: {},
    Moment.COMMIT: {"event": "Committed"},
    Moment.CHECKPOINT: {"event": "CheckpointWritten"},
    Moment.REENTRY: {"event": "CollectiveFailed", "overlap": True},
    Moment.RECOVERY: {"event": "WorkerStarted", "overlap": True},
}
_BEFORE: dict[Moment, dict[str, Any]] = {
    Moment.REENTRY: {"kind": "kill", "target": "rank 1", "warm": True},
    Moment.RECOVERY: {"kind": "kill", "target": "rank 1", "warm": True},
}


@dataclass(frozen=True, slots=True)
class Numbered:
    """The faults of one cell in its plan, by number: the cell's own, and those that are part of its story."""

    moment: Moment
    own: int
    others: tuple[int, ...]


def senseless(kind: Kind, moment: Moment) -> str | None:
    """Return why there is no such cell, or None."""
    return NO_CHECKPOINT if kind in CHECKPOINTS and moment is Moment.START else None


def plan(kind: Kind, moments: Sequence[Moment]) -> tuple[dict[str, Any], tuple[Numbered, ...]]:
    """Return a plan, as `elastic chaos` reads it, in which a kind of fault strikes at these moments, and its cells.

    The moments must be in their own order: only the first fault of a job can strike at its start. A
    damaged checkpoint is followed by the death of all workers, or nobody would notice.
    """
    faults: list[dict[str, Any]] = []
    cells = []
    for moment in moments:
        others = []
        if moment in _BEFORE:
            faults.append(_BEFORE[moment])
            others.append(len(faults))
        faults.append({"kind": kind.value} | (_AIMED if has_target(kind) else _AT_LARGE)[moment])
        own = len(faults)
        if kind in CHECKPOINTS:
            faults.append({"kind": "kill", "target": "all", "overlap": True})
            others.append(len(faults))
        cells.append(Numbered(moment, own, tuple(others)))
    job = _JOB_ON_HOSTS if kind in HOSTS else _JOB
    whole = {"name": f"matrix {kind}", "settle_s": 60, "limit_s": LIMIT_S, "disk_mb": 64, "job": job, "faults": faults}
    return whole, tuple(cells)
