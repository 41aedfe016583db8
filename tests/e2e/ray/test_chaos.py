"""Faults of nodes that take long to test: frozen, flapping, two at once, the head."""

import signal
import time
from collections.abc import Callable

import pytest

from tests.e2e.job import Job
from tests.e2e.ray.conftest import LONG, MNIST_RAY
from tests.e2e.ray.nodes import Nodes, wait_until
from tests.e2e.ray.test_nodes import summary

Run = Callable[..., Job]
pytestmark = [pytest.mark.chaos, pytest.mark.timeout(300)]


def stop(job: Job) -> None:
    job.process.send_signal(signal.SIGTERM)
    assert job.finish() == 143, job.transcript()


def test_a_raylet_that_is_frozen_for_a_while_loses_no_step(run: Run, nodes: Nodes) -> None:
    nodes.add()
    second = nodes.add()
    job = run(MNIST_RAY, *LONG)
    job.wait_stepping(generation=1, workers=2)
    job.wait_step(30)
    nodes.freeze(second)
    thaw_at = time.monotonic() + 40.0
    while time.monotonic() < thaw_at:
        job.poll()
        time.sleep(0.1)
    nodes.thaw(second)
    reached = max(int(r.get("step", 0)) for r in job.poll())
    job.wait_step(reached + 50)
    stop(job)
    assert summary(job)["lost_steps"] == 0


def test_a_node_that_comes_and_goes_every_few_seconds_loses_no_step(run: Run, nodes: Nodes) -> None:
    nodes.add()
    job = run(MNIST_RAY, *LONG, "workers.start=1")
    job.wait_stepping(generation=1, workers=1)
    for _ in range(3):
        node = nodes.add()
        time.sleep(5.0)
        nodes.kill(node)
        time.sleep(5.0)
    reached = max(int(r.get("step", 0)) for r in job.poll())
    job.wait_step(reached + 50)
    generation = job.generation()
    nodes.add()
    job.wait(lambda r: r.event == "WorldFormed" and r.generation > generation and r.get("size") == 2)
    stop(job)
    assert summary(job)["lost_steps"] == 0


def test_two_nodes_that_are_killed_at_once_leave_the_third_training(run: Run, nodes: Nodes) -> None:
    three = [nodes.add() for _ in range(3)]
    job = run(MNIST_RAY, *LONG, "workers.max=3")
    job.wait_stepping(generation=1, workers=3)
    job.wait_step(30)
    for node in three[1:]:
        nodes.kill(node)
    job.wait(lambda r: r.event == "FirstStepDone" and r.generation > 1 and r.host == three[0].host)
    nodes.add()
    job.wait(lambda r: r.event == "WorldFormed" and r.generation > 2 and r.get("size") == 2)
    stop(job)
    assert summary(job)["lost_steps"] == 0


def test_a_node_that_cannot_take_its_slot_leaves_the_others_training_and_is_tried_again(run: Run, nodes: Nodes) -> None:
    nodes.add()
    job = run(MNIST_RAY, *LONG, "workers.start=1", "network.start_timeout_s=15")
    job.wait_stepping(generation=1, workers=1)
    second = nodes.add()
    nodes.freeze(second)  # it has room, as Ray tells, and no actor of ours will get there
    log = job.run_dir.logs / "launcher.log"
    wait_until(lambda: "not placed within 15 s" in log.read_text())
    reached = max(int(r.get("step", 0)) for r in job.poll())
    job.wait_step(reached + 50)
    nodes.thaw(second)
    job.wait(lambda r: r.event == "WorldFormed" and r.get("size") == 2)
    stop(job)
    assert (summary(job)["lost_steps"], summary(job)["workers_lost"]) == (0, 0)
