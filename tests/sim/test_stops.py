"""A slot that is told to stop, and one whose launcher is gone."""

import os
import signal

import pytest

from elastic.agent.agent import ORPHAN_DRAIN_S, TICK_S
from elastic.channel import Drain, Finished, Phase
from elastic.errors import ExitCode
from elastic.events import DrainRequested, SlotGaveUp, WorkerLeft
from tests.sim.world import Worker, World, does, finishes, ignores

CODES = [(signal.SIGTERM, ExitCode.TERMINATED), (signal.SIGINT, ExitCode.INTERRUPTED)]


def deaf(world: World) -> World:
    """Let the workers go on in spite of being asked to leave."""
    return world.plays(does(1.0, lambda worker: setattr(worker, "on_drain", ignores)))


@pytest.mark.parametrize(("number", "code"), CODES)
def test_a_slot_told_to_stop_lets_its_worker_leave(world: World, number: int, code: int) -> None:
    world.signal_at(10.0, number)
    assert world.run() == code
    (worker,) = world.workers
    assert worker.heard[-1] == Drain(signal.Signals(number).name)
    assert worker.signals == []
    assert worker.ended == pytest.approx(10.2)
    assert world.last(DrainRequested).get("reason") == signal.Signals(number).name
    assert world.last(WorkerLeft).get("reason") == "preempted"
    assert world.facts(SlotGaveUp) == []
    assert world.summaries == 0


@pytest.mark.parametrize(("number", "code"), CODES)
def test_a_worker_that_does_not_leave_in_time_is_killed(world: World, number: int, code: int) -> None:
    assert deaf(world).signal_at(10.0, number).run() == code
    (worker,) = world.workers
    assert worker.signals == [signal.SIGKILL]
    assert worker.ended == pytest.approx(10.0 + world.settings.drain_s, abs=TICK_S)


def test_a_second_signal_kills_at_once(world: World) -> None:
    deaf(world).signal_at(10.0, signal.SIGTERM).signal_at(10.1, signal.SIGINT)
    assert world.run() == ExitCode.INTERRUPTED
    assert world.workers[0].ended == pytest.approx(10.1)


@pytest.mark.parametrize("phase", [Phase.STARTING, Phase.ENTERING])
def test_a_worker_that_holds_no_step_is_killed_at_once(world: World, phase: Phase) -> None:
    world.plays(lambda worker: worker.pulse.enter(phase)).signal_at(0.4, signal.SIGTERM)
    assert world.run() == ExitCode.TERMINATED
    (worker,) = world.workers
    assert worker.ended == pytest.approx(0.4)
    assert not any(isinstance(message, Drain) for message in worker.heard)


def test_a_worker_that_reaches_the_goal_while_told_to_stop_has_reached_it(world: World) -> None:
    deaf(world).plays(finishes(12.0)).signal_at(11.9, signal.SIGTERM)
    assert world.run() == ExitCode.GOAL_REACHED
    assert world.summaries == 1


def test_a_worker_that_crashes_while_it_drains_is_not_replaced(world: World) -> None:
    deaf(world).signal_at(10.0, signal.SIGTERM).at(11.0, lambda: world.workers[0].die(-11))
    assert world.run() == ExitCode.TERMINATED
    assert len(world.workers) == 1


def test_the_launchers_death_drains(world: World) -> None:
    world.at(10.0, lambda: setattr(world, "parent", 1))
    assert world.run() == ExitCode.TERMINATED
    (worker,) = world.workers
    assert worker.heard[-1] == Drain("SIGTERM")
    assert worker.ended == pytest.approx(10.2, abs=TICK_S)


def test_an_orphan_is_given_less_time_than_a_stop_gives(world: World) -> None:
    deaf(world).at(10.0, lambda: setattr(world, "parent", 1))
    assert world.settings.drain_s > ORPHAN_DRAIN_S
    assert world.run() == ExitCode.TERMINATED
    assert world.workers[0].ended == pytest.approx(10.0 + ORPHAN_DRAIN_S, abs=2 * TICK_S)


def test_the_launchers_death_after_a_signal_changes_nothing(world: World) -> None:
    deaf(world).signal_at(10.0, signal.SIGTERM).at(10.5, lambda: setattr(world, "parent", 1))
    assert world.run() == ExitCode.TERMINATED
    assert world.workers[0].ended == pytest.approx(10.0 + world.settings.drain_s, abs=TICK_S)


def test_a_stopped_slot_warms_no_more_standbys(world: World) -> None:
    deaf(world.pool(1)).signal_at(1.2, signal.SIGTERM)
    assert world.run() == ExitCode.TERMINATED
    assert world.workers[0].ended == pytest.approx(1.2 + world.settings.drain_s, abs=TICK_S)
    assert len(world.workers) == 1


def put_by(worker: Worker) -> None:
    """Lose the world, leave the state with the agent, and wait for the next world."""
    assert worker.go is not None
    os.write(worker.go.stash_fd, b"the state of step 7")
    worker.pulse.enter(Phase.ENTERING)


def test_a_slot_that_ends_between_two_worlds_keeps_what_its_worker_had_put_by(world: World) -> None:
    world.plays(does(5.0, put_by)).signal_at(10.0, signal.SIGTERM)
    assert world.run() == ExitCode.TERMINATED
    assert (world.run_dir.stash / "alpha-1").read_bytes() == b"the state of step 7"


def test_the_others_learn_of_a_slot_that_is_removed_when_what_it_had_put_by_is_kept(world: World) -> None:
    kept: list[bool] = []
    retire = world.launcher.retire

    def noting(*, goal: bool) -> bool:
        kept.append((world.run_dir.stash / "alpha-1").exists())
        return retire(goal=goal)

    def removed(worker: Worker) -> None:
        put_by(worker)
        world.launcher.removed = True
        worker.die(-6)

    setattr(world.launcher, "retire", noting)  # noqa: B010 - mypy allows no other way
    world.plays(does(5.0, removed)).run()
    assert kept == [True]


def test_a_slot_that_ends_with_the_goal_keeps_nothing(world: World) -> None:
    def finish(worker: Worker) -> None:
        put_by(worker)
        worker.say(Finished())
        worker.die(0)

    assert world.plays(does(5.0, finish)).run() == ExitCode.GOAL_REACHED
    assert not world.run_dir.stash.exists()


def test_a_disk_that_refuses_what_was_put_by_does_not_change_the_end(world: World) -> None:
    world.run_dir.stash.write_text("a file where the folder should be")
    world.plays(does(5.0, put_by)).signal_at(10.0, signal.SIGTERM)
    assert world.run() == ExitCode.TERMINATED
