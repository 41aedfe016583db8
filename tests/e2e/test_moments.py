"""A kill at each moment of a worker's life: the job reaches its goal, and no sample is missed."""

import json
import os
import signal
from collections.abc import Callable

import pytest

from elastic.events import Record
from tests.e2e.conftest import MNIST
from tests.e2e.job import Job

Start = Callable[..., Job]
SETS = ("epochs=3", "batch.per_worker=32", "commit.steps=10")

MOMENTS: dict[str, Callable[[Record], bool]] = {
    "while it starts": lambda r: r.event == "WorkerStarted" and r.slot == 1,
    "as the world has formed": lambda r: r.event == "WorldFormed" and r.rank == 1,
    "at the first step": lambda r: r.event == "FirstStepDone" and r.rank == 1,
    "at a commit": lambda r: r.event == "Committed" and r.get("step") >= 20,
    "at a checkpoint": lambda r: r.event == "CheckpointWritten" and r.get("step") >= 30,
    "at an epoch's end": lambda r: r.event == "EpochEnded",
    "at the last step": lambda r: r.event == "EpochEnded" and r.get("epoch") == 2,
    "as the goal is reached": lambda r: r.event == "JobFinished",
}


@pytest.mark.chaos
@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("moment", MOMENTS)
def test_a_kill_at_any_moment_costs_no_sample(start: Start, moment: str, rank: int) -> None:
    job = start(MNIST, *SETS)
    seen = job.wait(MOMENTS[moment])
    formed = [r for r in job.of("WorldFormed") if r.rank == rank]
    pid = formed[-1].pid if formed else int(seen.get("worker_pid"))
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        assert moment == "as the goal is reached"
    assert job.finish() == 0, job.transcript()
    summary = json.loads(job.run_dir.summary.read_text())
    assert summary["samples_seen"] == summary["samples_owed"] == 15000
    assert summary["status"] == "finished"
