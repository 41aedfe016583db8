"""A second death at an exact phase of recovery: who dies there takes no completed step along."""

import os
import signal
import time
from collections.abc import Callable

import pytest

from elastic.channel import Phase
from tests.e2e.conftest import MNIST
from tests.e2e.job import Job, pulse_of

Start = Callable[..., Job]
LONG = ("epochs=1000", "batch.per_worker=32", "commit.steps=20")
PATIENCE_S = 30.0

pytestmark = pytest.mark.chaos


def kill_in(pid: int, phase: Phase) -> bool:
    """Kill a process as soon as its pulse shows the phase; False if it ended before."""
    deadline = time.monotonic() + PATIENCE_S
    pulse = pulse_of(pid)
    try:
        while time.monotonic() < deadline:
            if pulse.read().phase is phase:
                os.kill(pid, signal.SIGKILL)
                return True
            os.kill(pid, 0)
    except ProcessLookupError:
        return False
    finally:
        pulse.close()
    raise AssertionError(f"process {pid} did not come to {phase.name} within {PATIENCE_S} s")


@pytest.mark.parametrize("phase", [Phase.ENTERING, Phase.SYNCING])
@pytest.mark.parametrize("victim", ["survivor", "newcomer"])
@pytest.mark.parametrize("rank", [0, 1])
def test_a_death_in_a_phase_of_recovery_costs_no_step(start: Start, rank: int, victim: str, phase: Phase) -> None:
    job = start(MNIST, *LONG)
    job.wait(lambda r: r.event == "StandbyReady")
    before = job.wait_step(100)
    survivor = job.pid_of(1 - rank)
    killed_at = time.time()
    job.kill(rank)
    if victim == "newcomer":
        second = job.wait(lambda r: r.event == "WorkerStarted" and r.time > killed_at).get("worker_pid")
    else:
        second = survivor
    assert kill_in(second, phase)
    job.wait(lambda r: r.event == "FirstStepDone" and r.time > killed_at and r.pid != second, count=2)
    formed = [r for r in job.of("WorldFormed") if r.time > killed_at]
    assert min(r.get("step") for r in formed) >= before.get("step"), job.transcript()
    assert not job.of("CheckpointLoaded"), job.transcript()


@pytest.mark.parametrize("phase", [Phase.SAVING, Phase.VALIDATING, Phase.COMPILING])
@pytest.mark.parametrize("rank", [0, 1])
def test_a_death_in_a_phase_of_training_costs_no_step(start: Start, rank: int, phase: Phase) -> None:
    job = start(MNIST, *LONG)
    if phase is Phase.COMPILING:
        job.wait(lambda r: r.event == "WorldFormed", count=2)
    else:
        job.wait(lambda r: r.event == "StandbyReady")
    killed_at = time.time()
    assert kill_in(job.pid_of(rank), phase)
    reached = max(
        int(r.get("step", 0)) for r in job.poll() if r.event in ("Progressed", "FirstStepDone", "WorldFormed")
    )
    job.wait(lambda r: r.event == "FirstStepDone" and r.time > killed_at and r.generation >= 2, count=2)
    formed = [r for r in job.of("WorldFormed") if r.time > killed_at and r.generation >= 2]
    assert min(r.get("step") for r in formed) >= reached, job.transcript()
    assert not job.of("CheckpointLoaded"), job.transcript()


def test_a_second_sigterm_ends_the_job_at_once(start: Start) -> None:
    job = start(MNIST, *LONG, "drain_s=60")
    job.wait_stepping(generation=1, workers=2)
    for pid in (job.pid_of(0), job.pid_of(1)):
        os.kill(pid, signal.SIGSTOP)  # a drain would take long
    job.process.send_signal(signal.SIGTERM)
    time.sleep(1.0)
    job.process.send_signal(signal.SIGTERM)
    at = time.monotonic()
    assert job.finish(within_s=15) == 143, job.transcript()
    assert time.monotonic() - at < 10.0
    assert not job.processes()
