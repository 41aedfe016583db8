"""A job over ssh on several hosts, under stock `horovodrun` and the discovery script."""

import time
from collections.abc import Callable

import pytest

from elastic.chaos.net.hosts import Net
from tests.e2e.conftest import MNIST
from tests.hosts.jobs import GLOO_S, OnHosts

pytestmark = [pytest.mark.chaos, pytest.mark.e2e]

SETS = ("epochs=1000", "batch.per_worker=32", "commit.steps=20")


@pytest.mark.timeout(300)
def test_a_host_joins_another_leaves_and_a_third_loses_its_power(
    build: Callable[..., Net], begin: Callable[..., OnHosts]
) -> None:
    net = build(4)
    run = begin(net, "h1", "h2", job=MNIST, sets=SETS)
    job = run.job
    at = run.name("h1", "h2", "h3")
    run.wait_stepping(3, at)
    assert {r.host for r in job.of("WorldFormed") if r.get("size") == 3} == {"h1", "h2", "h3"}
    assert not job.of("WorkerLost"), job.transcript()

    at = run.name("h1", "h3")
    run.wait_stepping(2, at)
    left = job.wait(lambda r: r.event == "WorkerLeft" and r.host == "h2")
    assert left.get("reason") == "removed"
    assert not job.of("WorkerLost"), job.transcript()

    step = max(int(r.get("step", 0)) for r in job.poll())
    at = time.time()
    net.power_off("h3")
    done = run.wait_stepping(1, at)
    assert done - at <= GLOO_S + 2.0, job.transcript()
    world = next(r for r in job.of("WorldFormed") if r.time > at)
    assert world.host == "h1"
    assert world.get("step") >= step - 1
    assert not job.of("CheckpointLoaded"), job.transcript()


@pytest.mark.timeout(280)
def test_a_host_that_is_named_before_its_sshd_answers_joins_once_it_does(
    build: Callable[..., Net], begin: Callable[..., OnHosts]
) -> None:
    net = build(3, without_sshd=["h2"])
    run = begin(net, "h1", "h2", size=1, launcher="elastic", sets=["workers.start=1"])
    assert run.train_on(5.0) > 20
    assert len(run.worlds()) == 1, run.explain()
    at = time.time()
    net.start_sshd("h2")
    run.wait_stepping(2, at)
    assert not [r for r in run.job.poll() if r.event in {"WorkerLost", "CollectiveFailed"}], run.explain()


@pytest.mark.timeout(280)
def test_a_host_that_loses_its_power_is_done_without_though_ssh_is_told_nothing(
    build: Callable[..., Net], begin: Callable[..., OnHosts]
) -> None:
    net = build(3, ssh_alive=None)
    run = begin(net, "h1", "h2", launcher="elastic")
    at = time.time()
    net.power_off("h2")
    assert run.wait_stepping(1, at) - at <= GLOO_S + 2.0, run.explain()
    assert next(r for r in run.job.of("WorldFormed") if r.time > at).host == "h1"
