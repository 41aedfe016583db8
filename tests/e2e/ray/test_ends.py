"""How jobs on a Ray cluster end, and what they leave behind: nothing."""

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from tests.e2e.job import Job
from tests.e2e.ray.conftest import LONG, MNIST_RAY, QUICK
from tests.e2e.ray.nodes import Nodes, shared_memory, wait_until

pytestmark = pytest.mark.ray

Run = Callable[..., Job]

FAILING = """
def model():
    raise ValueError("this model is a bug")
"""


@pytest.fixture(autouse=True)
def nothing_stays(nodes: Nodes) -> object:
    """Check after each test that the cluster is as it was."""
    nodes.add(cpus=2)
    wait_until(lambda: nodes.free_cpus() == 2.0)
    before = shared_memory()
    yield
    wait_until(lambda: nodes.actors() == [])
    wait_until(lambda: nodes.free_cpus() == 2.0)
    assert json.loads(nodes.requested()) == []
    assert {name for name in shared_memory() - before if "elastic" in name or "horovod" in name} == set()


def gone(job: Job) -> bool:
    return job.processes() == []


def test_a_goal_that_is_reached_ends_the_job_with_0(run: Run) -> None:
    job = run(MNIST_RAY, *QUICK)
    assert job.finish() == 0, job.transcript()
    wait_until(lambda: gone(job), 10.0)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_job_that_is_told_to_stop_leaves_a_checkpoint(run: Run, number: int, code: int) -> None:
    job = run(MNIST_RAY, *LONG, "commit.steps=100000")
    job.wait_stepping(generation=1, workers=2)
    job.wait_step(20)
    job.process.send_signal(number)
    assert job.finish() == code
    assert job.of("CheckpointWritten"), job.transcript()
    wait_until(lambda: gone(job), 10.0)


def test_a_bug_ends_the_job_with_its_traceback_rank_and_host(run: Run, tmp_path: Path) -> None:
    (tmp_path / "buggy.py").write_text(FAILING)
    job = run(MNIST_RAY, "model=buggy:model", "data.prepare=null")
    assert job.finish() == 1, job.transcript()
    assert "ValueError: this model is a bug" in job.output()
    failed = job.of("WorkerFailed")[0]
    assert f"(worker {failed.host}[{failed.slot}], rank" in job.output()
    wait_until(lambda: gone(job), 10.0)


def test_a_start_without_room_fails_within_its_time_three_times_over(run: Run) -> None:
    sets = ("workers.max=5", "workers.start=5", "network.start_timeout_s=4", "job.max_restarts=2", "job.backoff_s=0.1")
    job = run(MNIST_RAY, *sets)
    assert job.finish() == 1, job.transcript()
    assert job.output().count("found room for 2 of 5 slots within 4 s") == 3
    wait_until(lambda: gone(job), 10.0)


def test_a_lost_driver_is_started_again_from_the_newest_checkpoint(run: Run) -> None:
    job = run(MNIST_RAY, *LONG, "commit.steps=20")
    job.wait_stepping(generation=1, workers=2)
    job.wait(lambda r: r.event == "CheckpointWritten" and r.get("step") >= 20)
    driver = next(p for p in psutil.Process(job.process.pid).children() if "elastic.launch.ray.main" in p.cmdline())
    before = {r.pid for r in job.of("AgentStarted")}
    driver.kill()
    loaded = job.wait(lambda r: r.event == "CheckpointLoaded")
    assert loaded.get("step") >= 20
    assert not any(psutil.pid_exists(pid) for pid in before)
    job.process.send_signal(signal.SIGTERM)
    assert job.finish() == 143


def test_a_lost_elastic_run_takes_everything_with_it(run: Run) -> None:
    job = run(MNIST_RAY, *LONG)
    job.wait_stepping(generation=1, workers=2)
    os.kill(job.process.pid, signal.SIGKILL)
    job.process.wait()
    wait_until(lambda: gone(job), 20.0)
