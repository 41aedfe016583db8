"""How jobs on a Ray cluster end, and what they leave behind: nothing."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from tests.e2e.job import Job
from tests.e2e.ray.conftest import LONG, MNIST_RAY, QUICK
from tests.e2e.ray.nodes import Nodes, wait_until

pytestmark = pytest.mark.ray

Run = Callable[..., Job]

FAILING = """
def model():
    raise ValueError("this model is a bug")
"""


ACTOR = """
import sys
import time
from pathlib import Path

import keras
import numpy as np
import ray

import elastic
from elastic.events import Tail
from elastic.rundir import RunDir

RUN = RunDir(Path("run").resolve())


def train():
    x = np.zeros((4096, 4), "float32")
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile(optimizer="sgd", loss="mse")
    elastic.fit(model, x, x[:, :1], epochs=100000, batch_size=32)


@ray.remote(num_cpus=0)
class Driver:
    def run(self):
        options = {"workers": {"max": 2}, "commit": {"steps": 20}, "standby": {"size": 0}}
        return elastic.ray.run(train, options=options, run_dir=RUN.path)


def wait(event):
    while True:
        for record in tail.new():
            if record.event == event:
                return record
        time.sleep(0.1)


if __name__ == "__main__":
    ray.init(sys.argv[1], log_to_driver=False)
    tail = Tail(RUN.events)
    for event in ("CheckpointWritten", "CheckpointLoaded"):
        driver = Driver.remote()
        running = driver.run.remote()
        print(event, wait(event).get("step"), flush=True)
        ray.kill(driver)
        while [a for a in ray.util.list_named_actors(all_namespaces=True) if a["name"].startswith("train/")]:
            time.sleep(0.1)
"""


@pytest.fixture(autouse=True)
def nothing_stays(nodes: Nodes) -> object:
    """Check after each test that the cluster is as it was."""
    nodes.add(cpus=2)
    wait_until(lambda: nodes.free_cpus() == 2.0)
    yield
    wait_until(lambda: nodes.actors() == [])
    wait_until(lambda: nodes.free_cpus() == 2.0)
    assert json.loads(nodes.requested()) == []


def cmdline(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


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


def test_a_job_that_is_stopped_while_it_grows_ends_too(run: Run, nodes: Nodes) -> None:
    job = run(MNIST_RAY, *LONG, "workers.max=3", "workers.start=2")
    job.wait_stepping(generation=1, workers=2)
    third = nodes.add()
    job.wait(lambda r: r.event == "AgentStarted" and r.host == third.host)
    job.process.send_signal(signal.SIGTERM)
    assert job.finish(within_s=45.0) == 143
    wait_until(lambda: gone(job), 10.0)
    nodes.remove(third)


def test_a_bug_ends_the_job_with_its_traceback_rank_and_host(run: Run, tmp_path: Path) -> None:
    (tmp_path / "buggy.py").write_text(FAILING)
    job = run(MNIST_RAY, "model=buggy:model", "data.prepare=null")
    assert job.finish() == 1, job.transcript()
    assert "ValueError: this model is a bug" in job.output()
    failed = job.of("WorkerFailed")[0]
    assert f"(worker {failed.host}[{failed.slot}], rank" in job.output()
    wait_until(lambda: gone(job), 10.0)


def test_starts_without_room_fail_within_their_time(run: Run) -> None:
    sets = ("workers.max=5", "workers.start=5", "network.start_timeout_s=4", "job.max_restarts=1", "job.backoff_s=0.1")
    job = run(MNIST_RAY, *sets)
    assert job.finish() == 1, job.transcript()
    assert job.output().count("found room for 2 of 5 slots within 4 s") == 2
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


def test_a_driver_that_is_an_actor_may_be_lost_too(nodes: Nodes, tmp_path: Path) -> None:
    (tmp_path / "driver.py").write_text(ACTOR)
    done = subprocess.run(
        [sys.executable, "driver.py", nodes.address],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    steps = dict(re.findall(r"^(\w+) (\d+)$", done.stdout, re.MULTILINE))
    assert int(steps["CheckpointLoaded"]) >= int(steps["CheckpointWritten"]) > 0
    wait_until(lambda: not [p for p in psutil.process_iter() if str(tmp_path / "run") in " ".join(cmdline(p))], 20.0)
    nodes.forget_requests()  # Ray ends the actors with their driver: nobody is left who could


def test_a_lost_elastic_run_takes_everything_with_it_and_the_next_goes_on_from_its_checkpoint(run: Run) -> None:
    job = run(MNIST_RAY, *LONG, "commit.steps=20")
    job.wait_stepping(generation=1, workers=2)
    job.wait(lambda r: r.event == "CheckpointWritten" and r.get("step") >= 20)
    os.kill(job.process.pid, signal.SIGKILL)
    job.process.wait()
    wait_until(lambda: gone(job), 20.0)
    newest = max(r.get("step") for r in job.of("CheckpointWritten"))
    again = run(MNIST_RAY, *LONG)
    loaded = again.wait(lambda r: r.event == "CheckpointLoaded")
    assert loaded.get("step") == newest
    again.wait_step(newest + 20)
    again.process.send_signal(signal.SIGTERM)
    assert again.finish() == 143, again.transcript()
