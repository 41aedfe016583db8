"""A newcomer on a host without a pool: the others train on while it comes, whatever happens meanwhile."""

import os
import signal
import time
from collections.abc import Callable

import pytest

from elastic.events import Record
from tests.e2e.conftest import MNIST
from tests.e2e.job import Job

Start = Callable[..., Job]
NEW = "127.0.0.1"
THIRD = "LOCALHOST"  # this machine by yet another name
NO_POOL = ("batch.per_worker=32", "commit.steps=20", "standby.size=0")
LONG = ("epochs=1000", *NO_POOL)


def begin(start: Start, *sets: str, workers: int = 1) -> Job:
    """Return a job that trains on one host, under stock horovodrun."""
    job = start(
        MNIST,
        *sets,
        launcher="horovodrun",
        hosts=(f"localhost:{workers}",),
        options=("-np", str(workers), "--min-np", "1", "--max-np", "4"),
    )
    job.wait_stepping(generation=1, workers=workers)
    job.wait_step(30)
    return job


def hosts(job: Job, *lines: str) -> float:
    """Change the set of hosts; return when."""
    new = job.hosts_file.with_suffix(".new")
    new.write_text("".join(f"{line}\n" for line in lines))
    new.rename(job.hosts_file)
    return time.time()


def newcomers(job: Job, event: str) -> list[Record]:
    return [r for r in job.of(event) if r.host == NEW]


def wait_newcomer(job: Job, event: str, count: int = 1) -> Record:
    return job.wait(lambda r: r.event == event and r.host == NEW, count=count)


def wait_joined(job: Job, size: int, after: float) -> Record:
    """Return rank 0's view of the first world of that size, once all its members have done a step."""
    world = job.wait(lambda r: r.event == "WorldFormed" and r.get("size") == size and r.time > after)
    job.wait(lambda r: r.event == "FirstStepDone" and r.generation == world.generation, count=size)
    return next(r for r in job.of("WorldFormed") if r.generation == world.generation and r.rank == 0)


def pauses(job: Job, generation: int) -> list[float]:
    """Return what a change of worlds cost each of those who trained before it."""
    done = [r for r in job.of("FirstStepDone") if r.generation == generation]
    return [float(r.get("pause_s")) for r in done if r.get("pause_s")]


def assert_they_trained_on(job: Job, world: Record) -> None:
    """The change of worlds costs the others little of what the newcomer needs to come up."""
    stepped = next(r for r in newcomers(job, "FirstStepDone") if r.generation == world.generation)
    started = [r for r in newcomers(job, "WorkerStarted") if r.time < stepped.time][-1]
    assert stepped.time - started.time > 3.0, "it came up too fast to tell"
    assert max(pauses(job, world.generation)) < (stepped.time - started.time) / 3, job.transcript()


def test_a_newcomer_without_a_pool_costs_the_others_a_moment_and_not_its_start(start: Start) -> None:
    job = begin(start, *LONG)
    hosts(job, "localhost:1", f"{NEW}:1")
    world = wait_joined(job, size=2, after=0.0)
    changed = job.wait(lambda r: r.event == "HostsChanged")
    assert world.get("step") >= changed.get("step") + 10, job.transcript()
    assert_they_trained_on(job, world)
    assert not job.of("WorkerLost"), job.transcript()


@pytest.mark.chaos
@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("moment", ["HostsChanged", "AgentStarted", "WorkerStarted"])
def test_a_worker_killed_while_a_newcomer_is_on_its_way_costs_no_step(start: Start, rank: int, moment: str) -> None:
    job = begin(start, *LONG, workers=2)
    hosts(job, "localhost:2", f"{NEW}:1")
    job.wait(lambda r: r.event == moment and (r.host == NEW or moment == "HostsChanged"))
    reached = max(int(r.get("step", 0)) for r in job.poll() if r.event == "Progressed")
    job.kill(rank)
    world = wait_joined(job, size=3, after=time.time())
    assert world.get("step") >= reached, job.transcript()
    assert [r.get("summary") for r in job.of("WorkerLost") if r.get("root_cause")] == ["killed by SIGKILL"]
    assert not job.of("CheckpointLoaded"), job.transcript()


@pytest.mark.chaos
@pytest.mark.parametrize("after_s", [0.5, 2.0, 4.0])
def test_a_newcomer_killed_while_it_comes_up_joins_all_the_same(start: Start, after_s: float) -> None:
    job = begin(start, *LONG)
    hosts(job, "localhost:1", f"{NEW}:1")
    started = wait_newcomer(job, "WorkerStarted")
    time.sleep(after_s)
    os.kill(started.get("worker_pid"), signal.SIGKILL)
    world = wait_joined(job, size=2, after=time.time())
    assert_they_trained_on(job, world)
    assert [r.host for r in job.of("WorkerLost")] == [NEW], job.transcript()


@pytest.mark.chaos
@pytest.mark.parametrize("seen", [False, True])
def test_a_host_that_is_added_and_taken_away_again_costs_nothing(start: Start, seen: bool) -> None:
    job = begin(start, *LONG)
    hosts(job, "localhost:1", f"{NEW}:1")
    if seen:
        wait_newcomer(job, "AgentStarted")
    time.sleep(1.0)
    at = hosts(job, "localhost:1")
    if newcomers(job, "AgentStarted"):
        left = wait_newcomer(job, "WorkerLeft")
        assert left.get("reason") == "removed"
        assert left.time - at < 10.0
    job.wait_step(int(job.of("Progressed")[-1].get("step")) + 100)
    hosts(job, "localhost:1", f"{NEW}:1")
    world = wait_joined(job, size=2, after=at)
    assert_they_trained_on(job, world)
    assert not job.of("WorkerLost"), job.transcript()


@pytest.mark.chaos
def test_rank_0_gives_way_to_a_newcomer_while_all_train(start: Start) -> None:
    job = start(MNIST, *LONG, launcher="horovodrun", hosts=("localhost:1", f"{NEW}:1"))
    job.wait_stepping(generation=1, workers=2)
    job.wait_step(30)
    first = next(r.host for r in job.of("WorldFormed") if r.rank == 0)
    other = next(r.host for r in job.of("WorldFormed") if r.rank == 1)
    at = hosts(job, f"{other}:1", f"{THIRD}:1")
    world = wait_joined(job, size=2, after=at)
    assert world.host == other
    left = job.wait(lambda r: r.event == "WorkerLeft" and r.host == first)
    assert left.get("reason") == "removed"
    assert not job.of("WorkerLost"), job.transcript()
    assert not job.of("CheckpointLoaded"), job.transcript()


@pytest.mark.chaos
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_an_agent_that_ends_while_a_newcomer_is_on_its_way_is_not_waited_for(start: Start, number: int) -> None:
    job = start(MNIST, *LONG, launcher="horovodrun", hosts=("localhost:1", f"{NEW}:1"))
    job.wait_stepping(generation=1, workers=2)
    job.wait_step(30)
    ending = next(r.host for r in job.of("WorldFormed") if r.rank == 1)
    at = hosts(job, "localhost:1", f"{NEW}:1", f"{THIRD}:1")
    job.wait(lambda r: r.event == "AgentStarted" and r.host == THIRD)
    os.kill(next(r.pid for r in job.of("AgentStarted") if r.host == ending), number)
    world = job.wait(lambda r: r.event == "WorldFormed" and r.time > at and r.get("size") == 2, within_s=100.0)
    job.wait_stepping(world.generation, workers=2)
    assert world.get("step") >= 30, job.transcript()
    assert not job.of("CheckpointLoaded"), job.transcript()


@pytest.mark.parametrize(
    "epoch", [pytest.param(3, marks=pytest.mark.chaos), 4, pytest.param(5, marks=pytest.mark.chaos)]
)
def test_the_goal_is_reached_while_a_newcomer_is_on_its_way(start: Start, epoch: int) -> None:
    job = begin(start, "epochs=7", *NO_POOL)
    job.wait(lambda r: r.event == "EpochEnded" and r.get("epoch") == epoch)
    hosts(job, "localhost:1", f"{NEW}:1")
    finished = job.wait(lambda r: r.event == "JobFinished")
    assert job.finish(within_s=60.0) == 0, job.transcript()
    assert time.time() - finished.time < 20.0, job.transcript()
    assert not job.of("WorkerLost"), job.transcript()
