"""A slot hears of changed hosts and of its own host's end, whether or not its worker is there."""

import signal

import pytest

from discovery.notices.notice import Notice
from elastic.channel import Drain, HostsAnnounced
from elastic.errors import ExitCode
from elastic.events import DrainRequested, PreemptionNoticed
from tests.sim.world import World, crashes, does, ignores, trains

ADDED = HostsAnnounced(removed=False)


def told(world: World, number: int) -> list[object]:
    return [m for m in world.workers[number].heard if isinstance(m, HostsAnnounced)]


def test_a_worker_in_a_world_hears_at_once_that_hosts_have_changed(world: World) -> None:
    world.at(5.0, lambda: world.announcements.say(ADDED)).run_until(6.0)
    assert told(world, 0) == [ADDED]


def test_what_is_announced_while_the_worker_is_replaced_is_told_to_the_next_one(world: World) -> None:
    world.plays(crashes(5.0), trains)
    world.at(5.2, lambda: world.announcements.say(ADDED)).run_until(8.0)
    assert told(world, 0) == []
    assert told(world, 1) == [ADDED]
    assert [type(m).__name__ for m in world.workers[1].heard][-2:] == ["Go", "HostsAnnounced"]


def test_what_one_worker_has_heard_is_not_told_to_the_next(world: World) -> None:
    world.plays(crashes(5.0), trains)
    world.at(3.0, lambda: world.announcements.say(ADDED)).run_until(8.0)
    assert (told(world, 0), told(world, 1)) == ([ADDED], [])


def test_a_host_with_notice_lets_its_worker_leave(world: World) -> None:
    world.at(5.0, lambda: world.preemption.say(Notice("EC2 will terminate this spot instance", 120.0)))
    assert world.run() == ExitCode.TERMINATED
    assert world.workers[0].heard[-1] == Drain("SIGTERM")
    assert world.last(PreemptionNoticed).get("reason") == "EC2 will terminate this spot instance"
    assert world.last(DrainRequested).get("reason") == "SIGTERM"


def test_a_notice_that_is_given_again_is_one(world: World) -> None:
    for time in (5.0, 5.05, 5.1):
        world.at(time, lambda: world.preemption.say(Notice("soon", 120.0)))
    assert world.run() == ExitCode.TERMINATED
    assert world.workers[0].signals == []
    assert len(world.facts(PreemptionNoticed)) == 1


def test_a_worker_gets_no_more_time_to_leave_than_its_host_has(world: World) -> None:
    world.plays(does(1.0, lambda worker: setattr(worker, "on_drain", ignores)))
    world.at(5.0, lambda: world.preemption.say(Notice("soon", 2.0)))
    world.run()
    assert world.workers[0].signals == [signal.SIGKILL]
    assert world.workers[0].ended == pytest.approx(7.0, abs=0.3)
