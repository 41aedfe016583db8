"""What breaks under a job on two hosts: links, partitions, agents, sessions. No two worlds ever train at once.

One job lives through it all, one test after the other in any order; where it has ended, the next test
begins another.
"""

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from elastic.chaos.net.control import Ways
from elastic.chaos.net.hosts import Net, missing_switch
from elastic.chaos.net.way import CLEAR, CUT, Way
from tests.hosts.jobs import GLOO_S, OnHosts

pytestmark = [pytest.mark.chaos, pytest.mark.e2e, pytest.mark.timeout(280), pytest.mark.usefixtures("buildable")]

BACK_S = 60.0
QUIET_S = 2.0
HELD_OUT_NEVER = "hold_s: 0\n"  # h2 goes more often than a host may


class Standing:
    """A job on `h1` and `h2`, begun when it is first needed."""

    def __init__(self, folder: Callable[[], Path]) -> None:
        self._folder = folder
        self._net: Net | None = None
        self._run: OnHosts | None = None

    def whole(self) -> OnHosts:
        """Return the job when both hosts train in one world and have done so undisturbed for a moment."""
        if self._run is not None and self._run.job.process.poll() is not None:
            self.close()
        if self._run is None:
            folder = self._folder()
            self._net = Net(folder / "net", 3, switched=True)
            self._net.open()
            self._run = OnHosts.start(self._net, folder, "h1", "h2", discovery=HELD_OUT_NEVER)
        run = self._run
        run.wait_whole(2)
        run.train_on(QUIET_S)
        run.wait_whole(2)
        return run

    def close(self) -> None:
        if self._run is not None:
            self._run.close()
        if self._net is not None:
            self._net.close()
        self._run = self._net = None


@pytest.fixture(scope="module")
def standing(tmp_path_factory: pytest.TempPathFactory, buildable: None) -> Iterator[Standing]:
    if why := missing_switch():
        pytest.skip(why)
    standing = Standing(lambda: tmp_path_factory.mktemp("standing"))
    yield standing
    standing.close()


@pytest.fixture
def run(standing: Standing) -> Iterator[OnHosts]:
    """The job, whole before the test and whole after it, with no two worlds at once in between."""
    run = standing.whole()
    began = time.time()
    yield run
    assert run.net.switch is not None
    for host in run.net.hosts:
        run.net.mend(host.name)
    split = [(a, b) for a, b in run.split() if b.time > began]
    assert not split, f"{split[0]}\n{run.explain()}"


def test_a_link_that_is_down_for_3_s_costs_one_reset_at_most(run: OnHosts) -> None:
    at = time.time()
    run.net.unplug("h2")
    time.sleep(3.0)
    run.net.plug_in("h2")
    run.train_on(15.0)
    assert len(run.worlds(at)) <= 1, run.explain()
    assert all(size == 2 for _, size in run.worlds(at)), run.explain()
    assert run.train_on(3.0) > 10


@pytest.mark.parametrize("ways", [Ways(CUT, CUT), Ways(out=CUT), Ways(into=CUT)], ids=["both", "out", "into"])
def test_a_host_that_is_cut_off_for_30_s_is_done_without_and_comes_back(run: OnHosts, ways: Ways) -> None:
    assert run.net.switch is not None
    at = time.time()
    run.net.switch.set("h2", ways)
    alone = run.wait_stepping(1, at)
    assert next(r for r in run.job.of("WorldFormed") if r.time > at).host == "h1"
    run.train_on(max(0.0, at + 30.0 - time.time()))
    assert [r for r in run.job.of("FirstStepDone") if r.time > at and r.host == "h2"] == []
    mended = time.time()
    run.net.mend("h2")
    again = run.wait_stepping(2, mended)
    assert alone - at <= GLOO_S + 5.0, run.explain()
    assert again - mended <= BACK_S, run.explain()


@pytest.mark.parametrize(
    "way", [Way(delay_s=0.1), Way(loss=0.05), Way(rate=125e3)], ids=["200 ms", "5 % lost", "1 Mbit a s"]
)
def test_a_link_that_is_slow_is_not_taken_for_dead(run: OnHosts, way: Way) -> None:
    assert run.net.switch is not None
    at = time.time()
    before = run.net.switch.counts()["h2"]
    run.net.switch.set("h2", Ways(way, way))
    assert run.train_on(12.0) > 0, run.explain()
    after = run.net.switch.counts()["h2"]
    run.net.switch.set("h2", Ways(CLEAR, CLEAR))
    assert run.train_on(5.0) > 20, run.explain()
    assert run.worlds(at) == [], run.explain()
    alarms = [r for r in run.job.poll() if r.time > at and r.event in {"WorkerLost", "CollectiveFailed"}]
    assert not alarms, run.explain()
    assert not [d for d in run.decisions() if float(d["time"]) > at and d["event"] == "HostDropped"], run.explain()
    assert all(after[to]["passed"] > before[to]["passed"] for to in ("out", "into"))
    assert (after["into"]["lost"] > before["into"]["lost"]) == bool(way.loss)


def session_of(pid: int) -> int:
    """Return the sshd session in which a process runs."""
    return next(p.pid for p in psutil.Process(pid).parents() if p.name().startswith("sshd"))


@pytest.mark.parametrize("victim", ["agent", "session"])
def test_a_host_whose_agent_or_sshd_session_is_killed_is_done_without_and_comes_back(run: OnHosts, victim: str) -> None:
    agent = [r.pid for r in run.job.of("AgentStarted") if r.host == "h2"][-1]
    worker = [int(r.get("worker_pid")) for r in run.job.of("WorkerStarted") if r.host == "h2"][-1]
    at = time.time()
    os.kill(agent if victim == "agent" else session_of(agent), signal.SIGKILL)
    alone = run.wait_stepping(1, at)
    assert alone - at <= GLOO_S + 5.0, run.explain()
    assert next(r for r in run.job.of("WorldFormed") if r.time > at).host == "h1"
    run.wait_stepping(2, alone)
    assert not psutil.pid_exists(worker), "a worker has outlived its agent"
