"""Hand-written runs that tests of the views fold."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from elastic.events import Record
from elastic.rundir import RunDir


def fact(time: float, event: str, generation: int = 1, rank: int = 0, **own: Any) -> Record:
    """Return a fact of the worker (pid 100 + rank) in slot `rank` of host h."""
    return Record(time, event, "h", rank, 100 + rank, rank, generation, own)


def formed(time: float, generation: int, size: int, step: int, pid: int | None = None, **phases: float) -> list[Record]:
    """Return what each of `size` workers tells of a new world, all at `time`; `pid` is that of rank 1."""
    own = {"size": size, "epoch": 0, "step": step} | ({"phases_s": phases} if phases else {})
    pids = [100, *([pid or 101] if size > 1 else []), *range(102, 100 + size)]
    return [Record(time, "WorldFormed", "h", r, pids[r], r, generation, own) for r in range(size)]


def first_step(time: float, generation: int, step: int, *pauses: float) -> list[Record]:
    """Return what each worker tells of its first step, after a pause of its own (0: it was not there before)."""
    return [fact(time, "FirstStepDone", generation, rank, step=step, pause_s=p) for rank, p in enumerate(pauses)]


def progressed(time: float, step: int, generation: int = 1, **own: Any) -> Record:
    """Return rank 0's fact of progress; 64 samples a step, 5,000 an epoch of two."""
    samples = 64 * step
    return fact(
        time,
        "Progressed",
        generation,
        epoch=samples // 5000,
        epochs=2,
        epoch_step=step,
        step=step,
        consumed=samples % 5000,
        owed=5000,
        samples=samples,
        samples_per_s=640.0,
        size=2,
        **own,
    )


# 30 s. Start-up 4 s: workers up at 3.0, met at 3.2, in sync at 3.5. At 10.0 rank 1 is killed after step 60; noted
# at 10.1, its standby (pid 201) is up at 10.15, they have met at 10.4, are in sync at 10.5, a step is done at 10.6.
HEALED = [
    fact(0.0, "JobStarted", 0, -1, job="mnist", restarts=0, versions={"keras": "3.15.0"}),
    fact(1.0, "WorkerStarted", 0, 0, worker_pid=100, entry="launched", source="cold"),
    fact(1.0, "WorkerStarted", 0, 1, worker_pid=101, entry="launched", source="cold"),
    *formed(3.5, 1, 2, 0, rendezvous=0.2, sync=0.3),
    *first_step(4.0, 1, 1, 0.0, 0.0),
    progressed(6.0, 20, metrics={"loss": 1.5}),
    fact(7.0, "StandbyReady", 1, 0, standby_pid=201, level="step", rss_bytes=1, took_s=3.0),
    progressed(9.9, 59, metrics={"loss": 1.0}),
    fact(10.1, "WorkerLost", 1, 1, worker_pid=101, cause="crash", summary="killed by SIGKILL", root_cause=True),
    fact(10.11, "StandbyPromoted", 1, 1, standby_pid=201, took_s=0.001),
    fact(10.12, "WorkerStarted", 1, 1, worker_pid=201, entry="rejoin", source="standby"),
    fact(10.13, "CollectiveFailed", 1, 0, step=60, error="Horovod has been shut down"),
    *formed(10.5, 2, 2, 60, pid=201, rendezvous=0.25, sync=0.1),
    *first_step(10.6, 2, 61, 0.6, 0.0),
    progressed(12.0, 75, 2, metrics={"loss": 0.9}),
    fact(
        13.0,
        "EpochEnded",
        2,
        epoch=0,
        step=79,
        samples=5000,
        metrics={"loss": 0.8, "val_loss": 0.7},
        took_s=9.0,
        size=2,
    ),
    fact(13.0, "Committed", 2, epoch=1, step=79),
    fact(13.5, "CheckpointWritten", 2, step=79, path="p", size_bytes=10, took_s=0.4, blocked_s=0.25),
    fact(
        29.0,
        "EpochEnded",
        2,
        epoch=1,
        step=158,
        samples=10000,
        metrics={"loss": 0.5, "val_loss": 0.6},
        took_s=16.0,
        size=2,
    ),
    fact(30.0, "JobFinished", 2, epochs=2, step=158, samples=10000, samples_owed=10000, metrics={"loss": 0.5}),
]

TRAINING = [r for r in HEALED if r.time < 10.0]  # up to step 59
BROKEN = [r for r in HEALED if r.time < 10.2]  # the loss is noted, nobody is back yet

# 20 s. 4 s to the first step; at step 40 everything was lost and the checkpoint of step 30 loaded by new workers, which
# know nothing of the old ones: they number their world 1 and measure no pause.
RESTARTED = [
    fact(0.0, "JobStarted", 0, -1, job="mnist", restarts=0),
    *formed(3.0, 1, 2, 0),
    *first_step(4.0, 1, 1, 0.0, 0.0),
    progressed(6.0, 40),
    fact(6.0, "WorkerLost", 1, 0, worker_pid=100, cause="crash", summary="killed by SIGKILL", root_cause=True),
    fact(6.0, "WorkerLost", 1, 1, worker_pid=101, cause="crash", summary="killed by SIGKILL", root_cause=True),
    fact(7.0, "JobStarted", 0, -1, job="mnist", restarts=1),
    fact(15.0, "CheckpointLoaded", 0, step=30, path="p"),
    *formed(15.5, 1, 2, 30, rendezvous=0.4, sync=0.1),
    *first_step(16.0, 1, 31, 0.0, 0.0),
    progressed(17.0, 40),
    fact(20.0, "JobFinished", 1, epochs=1, step=90, samples=90, samples_owed=90, metrics={}),
]


def kept(folder: Path, records: list[Record]) -> RunDir:
    """Write a run directory as an agent and a launcher leave it."""
    directory = RunDir(folder).create()
    lines = []
    for record in records:
        raw = asdict(record)
        lines.append(json.dumps(raw | raw.pop("fields")) + "\n")
    directory.events.write_text("".join(lines))
    directory.config.write_text("name: mnist\nepochs: 2\n")
    return directory
