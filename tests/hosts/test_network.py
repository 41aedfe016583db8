"""A network that breaks under a job: links down, partitions, slow links. No two worlds ever train at once."""

import time
from collections.abc import Callable

import pytest

from elastic.chaos.net.control import Ways
from elastic.chaos.net.hosts import Net
from elastic.chaos.net.way import CLEAR, CUT, Way
from tests.hosts.jobs import GLOO_S, OnHosts

pytestmark = [pytest.mark.chaos, pytest.mark.e2e, pytest.mark.timeout(280)]

BACK_S = 60.0


def assert_no_split(run: OnHosts) -> None:
    split = run.split()
    assert not split, f"{split[0]}\n{run.explain()}"


def test_a_link_that_is_down_for_3_s_costs_one_reset_at_most(
    build: Callable[..., Net], begin: Callable[..., OnHosts]
) -> None:
    net = build(3)
    run = begin(net, "h1", "h2")
    at = time.time()
    net.cut("h2")
    time.sleep(3.0)
    net.mend("h2")
    run.train_on(20.0)
    assert len(run.worlds(at)) <= 1, run.explain()
    assert all(size == 2 for _, size in run.worlds(at)), run.explain()
    assert run.train_on(3.0) > 10
    assert_no_split(run)


@pytest.mark.parametrize("ways", [Ways(CUT, CUT), Ways(out=CUT), Ways(into=CUT)], ids=["both", "out", "into"])
def test_a_host_that_is_cut_off_for_30_s_is_done_without_and_comes_back(
    build: Callable[..., Net], begin: Callable[..., OnHosts], ways: Ways
) -> None:
    net = build(3, switched=True)
    run = begin(net, "h1", "h2")
    assert net.switch is not None
    at = time.time()
    net.switch.set("h2", ways)
    alone = run.wait_stepping(1, at)
    world = next(r for r in run.job.of("WorldFormed") if r.time > at)
    assert world.host == "h1"
    run.train_on(max(0.0, at + 30.0 - time.time()))
    assert [r for r in run.job.of("FirstStepDone") if r.time > at and r.host == "h2"] == []
    mended = time.time()
    net.mend("h2")
    again = run.wait_stepping(2, mended)
    assert_no_split(run)
    assert alone - at <= GLOO_S + 2.0, run.explain()
    assert again - mended <= BACK_S, run.explain()


def test_links_that_are_slow_are_not_taken_for_dead(build: Callable[..., Net], begin: Callable[..., OnHosts]) -> None:
    net = build(3, switched=True)
    run = begin(net, "h1", "h2")
    assert net.switch is not None
    at = time.time()
    for way in (Way(delay_s=0.1), Way(loss=0.05), Way(rate=125e3)):  # 200 ms there and back; 1 Mbit/s
        net.switch.set("h2", Ways(way, way))
        assert run.train_on(12.0) > 0, f"{way}: {run.explain()}"
        assert run.worlds(at) == [], f"{way}: {run.explain()}"
        net.switch.set("h2", Ways(CLEAR, CLEAR))
    alarms = [r for r in run.job.poll() if r.event in {"WorkerLost", "CollectiveFailed"}]
    assert not alarms, run.explain()
    assert not [d for d in run.decisions() if d["event"] == "HostDropped"], run.explain()
    lost = net.switch.counts()["h2"]
    assert lost["out"]["lost"] > 0
    assert lost["into"]["lost"] > 0
