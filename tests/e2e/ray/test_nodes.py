"""Nodes of a Ray cluster come, go, and are lost, under one job."""

import json
import os
import signal
import time
from collections.abc import Callable
from typing import Any

import psutil
import pytest

from tests.e2e.job import Job
from tests.e2e.ray.conftest import LONG, MNIST_RAY
from tests.e2e.ray.nodes import Nodes, wait_until

pytestmark = pytest.mark.ray

Run = Callable[..., Job]


def summary(job: Job) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(job.run_dir.summary.read_text())
    return found


def agents(job: Job) -> dict[str, psutil.Process]:
    """Return the newest agent of each host."""
    return {r.host: psutil.Process(r.pid) for r in job.of("AgentStarted") if psutil.pid_exists(r.pid)}


def test_two_nodes_of_one_machine_are_two_hosts_and_a_killed_worker_heals_in_place(run: Run, nodes: Nodes) -> None:
    first, second = nodes.add(name="red"), nodes.add(name="blue")
    job = run(MNIST_RAY, *LONG)
    job.wait_stepping(generation=1, workers=2)
    job.wait(lambda r: r.event == "StandbyReady", count=2)
    names = {actor["Name"].rpartition(" #")[0] for actor in nodes.actors()}
    assert names == {f"mnist/{node.host}[0]" for node in (first, second)}
    job.kill(rank=1)
    job.wait_stepping(generation=2, workers=2)
    job.process.send_signal(signal.SIGTERM)
    assert job.finish() == 143, job.transcript()
    assert {r.host for r in job.of("AgentStarted")} == {first.host, second.host}
    assert len(job.of("AgentStarted")) == 2
    found = summary(job)
    assert (found["status"], found["workers_lost"], found["lost_steps"]) == ("stopped", 1, 0)


def test_a_killed_node_shrinks_the_world_and_a_new_one_grows_it(run: Run, nodes: Nodes) -> None:
    first, second = nodes.add(), nodes.add()
    job = run(MNIST_RAY, *LONG)
    job.wait_stepping(generation=1, workers=2)
    job.wait_step(30)
    at = time.time()
    nodes.kill(second if job.of("WorldFormed")[0].host == first.host else first)
    alone = job.wait(lambda r: r.event == "FirstStepDone" and r.generation == 2)
    assert alone.time - at < 8.0
    nodes.add()
    job.wait_world(3, size=2)
    job.process.send_signal(signal.SIGTERM)
    assert job.finish() == 143
    assert summary(job)["lost_steps"] == 0
    assert summary(job)["world_sizes"] == [2, 1, 2]


def test_a_draining_node_is_left_before_it_goes(run: Run, nodes: Nodes) -> None:
    first, second = nodes.add(), nodes.add()
    job = run(MNIST_RAY, *LONG)
    job.wait_stepping(generation=1, workers=2)
    job.wait_step(30)
    nodes.drain(second, within_s=60.0)
    job.wait_world(2, size=1)
    wait_until(lambda: second.host not in agents(job))
    assert second.raylet.is_running()
    job.process.send_signal(signal.SIGTERM)
    assert job.finish() == 143
    assert summary(job)["lost_steps"] == 0
    assert summary(job)["workers_lost"] == 0
    assert {r.host for r in job.of("WorldFormed") if r.generation == 2} == {first.host}


def test_a_killed_actor_is_replaced_on_its_node_and_leaves_nothing_behind(run: Run, nodes: Nodes) -> None:
    nodes.add()
    nodes.add()
    job = run(MNIST_RAY, *LONG)
    job.wait_stepping(generation=1, workers=2)
    job.wait_step(30)
    host, agent = next(iter(agents(job).items()))
    children = agent.children(recursive=True)
    os.kill(agent.ppid(), signal.SIGKILL)
    job.wait(lambda r: r.event == "AgentStarted" and r.host == host and r.pid != agent.pid)
    wait_until(lambda: not any(p.is_running() for p in [agent, *children]), within_s=10.0)
    generation = max(r.generation for r in job.of("WorldFormed"))
    job.wait(lambda r: r.event == "WorldFormed" and r.get("size") == 2 and r.generation > 1)
    assert generation >= 1
    job.process.send_signal(signal.SIGTERM)
    assert job.finish() == 143
    assert summary(job)["lost_steps"] == 0
