"""What an agent tells whoever watches the run, and the look at all slots that rank 0's agent takes."""

import time

import pytest

from elastic import heartbeats
from elastic.channel import Entered, Phase
from elastic.events import WorkerCaughtUp, WorkerStraggled
from elastic.heartbeats import Heartbeat
from tests.sim.world import Role, Worker, World, crashes, finishes, trains


def seen(world: World, at: float) -> list[Heartbeat]:
    """Let a list be filled with the heartbeats at a moment of the story."""
    found: list[Heartbeat] = []
    world.at(at, lambda: found.extend(heartbeats.read(world.run_dir.heartbeats)))
    return found


def test_a_slot_tells_what_its_worker_does(world: World) -> None:
    found = seen(world, 10.0)
    world.plays(trains).run_until(12.0)
    (beat,) = found
    (worker,) = world.workers
    assert (beat.host, beat.slot, beat.worker_pid) == ("alpha", 1, worker.process.pid)
    assert (beat.rank, beat.generation, beat.phase) == (1, 1, Phase.USER.name.lower())
    assert beat.step > 0
    assert beat.step_s == pytest.approx(0.5, abs=0.1)  # the script's
    assert beat.silent_s < 1.0


def test_a_worker_that_is_silent_shows_for_how_long(world: World) -> None:
    found = seen(world, 9.0)

    def falls_silent(worker: Worker) -> None:
        trains(worker)
        worker.after(6.0, lambda: setattr(worker, "silent", True))

    world.plays(falls_silent).run_until(9.5)
    assert found[0].silent_s == pytest.approx(3.0, abs=1.1)  # a beat of the worker and one of the agent


def test_a_slot_whose_worker_is_gone_names_the_next(world: World) -> None:
    world.start_s = 4.0
    found = seen(world, 12.0)
    world.plays(crashes(4.0), trains).run_until(12.5)
    assert found[0].worker_pid == world.workers[1].process.pid
    assert (found[0].rank, found[0].phase) == (1, "starting")  # the rank is that of its predecessor


def test_the_pool_is_counted_where_it_is_kept(world: World) -> None:
    found = seen(world, 40.0)
    world.pool(2).run_until(41.0)
    assert (found[0].standbys, found[0].warming) == (2, 0)


def test_a_slot_that_ends_leaves_no_heartbeat(world: World) -> None:
    found = seen(world, 5.0)
    assert world.plays(finishes(8.0)).run() == 0
    assert len(found) == 1
    assert heartbeats.read(world.run_dir.heartbeats) == []


def test_a_folder_that_cannot_be_made_stops_nobody(world: World) -> None:
    world.run_dir.heartbeats.write_text("a file")
    assert world.plays(finishes(8.0)).run() == 0


def takes(rank: int, own_s: float) -> Role:
    """Train as `rank`, with steps that take so long without the others."""

    def role(worker: Worker) -> None:
        worker.enter()
        worker.after(0.6, lambda: worker.say(Entered(rank=rank, size=2, generation=1)))
        worker.after(0.6, lambda: worker.pulse.own_time(own_s))

    return role


def peer(world: World, own_s: float, *, generation: int = 1, age_s: float = 0.0) -> None:
    """Let the other slot of the job tell that it is rank 1."""
    beat = Heartbeat(time.time() - age_s, "beta", 0, 5, worker_pid=6, rank=1, generation=generation, own_s=own_s)
    heartbeats.write(world.run_dir.heartbeats, beat)


def test_rank_0s_agent_names_a_straggler_once_and_says_when_it_keeps_up_again(world: World) -> None:
    world.at(5.0, lambda: peer(world, 0.5)).at(25.0, lambda: peer(world, 0.21))
    world.plays(takes(0, 0.2)).run_until(40.0)
    (slow,) = world.facts(WorkerStraggled)
    assert (slow.get("of_host"), slow.get("of_slot"), slow.get("of_rank")) == ("beta", 0, 1)
    assert (slow.get("own_s"), slow.get("peers_s")) == pytest.approx((0.5, 0.2))
    assert [r.get("of_rank") for r in world.facts(WorkerCaughtUp)] == [1]


def test_rank_0_may_be_the_straggler_itself(world: World) -> None:
    world.at(5.0, lambda: peer(world, 0.1)).plays(takes(0, 0.3)).run_until(25.0)
    assert [r.get("of_rank") for r in world.facts(WorkerStraggled)] == [0]


def test_only_rank_0s_agent_compares(world: World) -> None:
    world.at(5.0, lambda: peer(world, 0.5)).plays(takes(1, 0.2)).run_until(25.0)
    assert world.facts(WorkerStraggled) == []


@pytest.mark.parametrize("past", [{"generation": 7}, {"age_s": 60.0}])
def test_a_slot_of_another_world_or_time_is_not_compared_with(world: World, past: dict[str, float]) -> None:
    world.at(5.0, lambda: peer(world, 0.5, **past)).plays(takes(0, 0.2)).run_until(25.0)  # type: ignore[arg-type]
    assert world.facts(WorkerStraggled) == []


def test_who_is_slow_for_a_moment_is_not_named(world: World) -> None:
    for at in (5.0, 15.0, 25.0):
        world.at(at, lambda: peer(world, 0.5)).at(at + 6.0, lambda: peer(world, 0.2))
    world.plays(takes(0, 0.2)).run_until(40.0)
    assert world.facts(WorkerStraggled, WorkerCaughtUp) == []
