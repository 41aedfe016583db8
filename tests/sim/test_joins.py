"""A slot whose worker has the next world asked for, and one that comes to a world that trains."""

import signal

import pytest

from elastic.agent.agent import TICK_S
from elastic.agent.ahead import GoalReached
from elastic.channel import AskAhead, Entered, Entering, Go, GoOver, Left, NextWorldReady, Prepare
from elastic.errors import ExitCode
from elastic.events import SlotGaveUp, WorkerLeft, WorkerLost
from tests.sim.world import Worker, World, crashes, dies_entering, dies_meeting, does, finishes, trains

READY = NextWorldReady(1, 1)


def orders(world: World) -> list[object]:
    """Return what was asked for ahead of the worker."""
    return [order for order in world.ahead.orders if isinstance(order, tuple)]


def asks(attempt: int = 1) -> AskAhead:
    return AskAhead(1, attempt)


def heard_news(worker: Worker) -> list[object]:
    return [message for message in worker.heard if isinstance(message, NextWorldReady)]


def test_what_a_worker_wants_asked_is_passed_on(world: World) -> None:
    def ask(worker: Worker) -> None:
        worker.say(asks())
        worker.say(asks(attempt=2))

    world.plays(does(5.0, ask)).run_until(10.0)
    assert orders(world) == [(1, 1), (1, 2)]


def test_news_of_the_next_world_is_told_to_the_worker(world: World) -> None:
    world.plays(does(5.0, lambda w: w.say(asks()))).at(6.0, lambda: world.ahead.tell(READY)).run_until(10.0)
    assert heard_news(world.workers[0]) == [READY]


def test_news_that_an_older_world_asked_for_is_dropped(world: World) -> None:
    world.plays(does(5.0, lambda w: w.say(Entered(rank=0, size=2, generation=2))))
    world.at(6.0, lambda: world.ahead.tell(READY)).run_until(10.0)
    assert heard_news(world.workers[0]) == []


def test_news_that_a_dead_worker_asked_for_is_dropped(world: World) -> None:
    world.start_s = 2.0
    world.plays(crashes(3.0), trains).at(6.0, lambda: world.ahead.tell(READY)).run_until(20.0)
    assert len(world.workers) == 2
    assert heard_news(world.workers[1]) == []


def test_a_slot_that_is_told_to_stop_lets_nobody_wait_for_it(world: World) -> None:
    world.plays(does(5.0, lambda w: w.say(asks()))).signal_at(6.0, signal.SIGTERM)
    assert world.run() == ExitCode.TERMINATED
    assert world.ahead.orders[-1] == "leave"
    assert world.launcher.retired is False


def test_a_slot_that_is_told_to_stop_asks_for_no_world(world: World) -> None:
    world.signal_at(6.0, signal.SIGTERM)
    world.at(6.1, lambda: world.workers[0].say(asks()))
    assert world.run() == ExitCode.TERMINATED
    assert orders(world) == []


def test_a_slot_that_gives_up_lets_nobody_wait_for_it(world: World) -> None:
    world.plays(lambda worker: worker.die(2)).run()
    assert world.facts(SlotGaveUp)
    assert world.launcher.retired is False


def test_a_slot_whose_worker_left_with_everybody_lets_nobody_wait_for_it(world: World) -> None:
    world.plays(does(10.0, lambda w: (w.say(Left(whole_job=True)), w.die(143))))
    assert world.run() == ExitCode.TERMINATED
    assert world.launcher.retired is False


def test_a_slot_that_reached_the_goal_ends_with_it(world: World) -> None:
    assert world.plays(finishes(5.0)).run() == ExitCode.GOAL_REACHED
    assert world.launcher.retired is True
    assert world.time == pytest.approx(5.0, abs=0.01)


def test_the_goal_waits_until_the_launcher_can_count_it(world: World) -> None:
    world.launcher.asking = True
    world.plays(finishes(5.0)).at(7.0, lambda: setattr(world.launcher, "asking", False))
    assert world.run() == ExitCode.GOAL_REACHED
    assert world.time == pytest.approx(7.0, abs=TICK_S)
    assert world.summaries == 1


def test_the_goal_waits_for_a_question_that_is_about_to_be_asked(world: World) -> None:
    world.ahead.asks = True
    world.plays(finishes(5.0)).at(7.0, lambda: setattr(world.ahead, "asks", False))
    assert world.run() == ExitCode.GOAL_REACHED
    assert world.time == pytest.approx(7.0, abs=TICK_S)


def test_the_goal_does_not_wait_for_ever(world: World) -> None:
    world.launcher.asking = True
    assert world.plays(finishes(5.0)).run() == ExitCode.GOAL_REACHED
    assert world.time == pytest.approx(5.0 + world.settings.join_s, abs=2 * TICK_S)


def test_a_signal_does_not_take_the_goal_back(world: World) -> None:
    world.launcher.asking = True
    world.plays(finishes(5.0)).signal_at(6.0, signal.SIGTERM)
    assert world.run() == ExitCode.GOAL_REACHED
    assert world.time == pytest.approx(6.0)


def test_a_worker_is_told_to_go_when_it_is_ready(world: World) -> None:
    world.start_s = 3.0
    world.at(2.9, lambda: setattr(world.launcher, "launched_env_used", True)).run_until(10.0)
    (worker,) = world.workers
    assert worker.go is not None
    assert worker.go.entry == "rejoin"  # its round was abandoned while it came up


def test_the_round_is_watched_until_the_worker_goes(world: World) -> None:
    world.start_s = 3.0
    world.at(2.0, lambda: seen.extend(world.ahead.orders))
    seen: list[object] = []
    world.run_until(10.0)
    assert seen == ["watch"]
    assert world.ahead.orders == ["watch", "rest"]


def test_a_warm_standby_is_told_to_go_at_once(world: World) -> None:
    world.pool(1).plays(crashes(20.0), trains).run_until(20.1)
    _, standby = world.workers
    assert isinstance(standby.heard[-1], Go)
    assert world.ahead.orders == ["watch", "rest", "rest"]


def test_a_newcomer_that_is_taken_away_while_it_comes_up_ends_quietly(
    world: World, capfd: pytest.CaptureFixture[str]
) -> None:
    world.start_s = 30.0
    world.at(5.0, lambda: setattr(world.launcher, "removed", True))
    assert world.run() == ExitCode.SLOT_LOST
    assert world.time == pytest.approx(5.0, abs=TICK_S)
    assert world.facts(SlotGaveUp, WorkerLost) == []
    assert world.last(WorkerLeft).get("reason") == "removed"
    assert capfd.readouterr().err == ""


def test_a_worker_that_trains_is_not_ended_before_the_world_that_leaves_it_out(world: World) -> None:
    world.at(5.0, lambda: setattr(world.launcher, "removed", True)).run_until(20.0)
    assert world.workers[0].alive


def test_a_newcomer_ends_with_the_goal_that_the_others_have_reached(world: World) -> None:
    world.start_s = 30.0
    world.at(5.0, lambda: world.ahead.tell(GoalReached()))
    assert world.run() == ExitCode.GOAL_REACHED
    assert world.time == pytest.approx(5.0, abs=TICK_S)
    assert world.last(WorkerLeft).get("reason") == "goal"
    assert world.launcher.retired is True


def test_a_newcomer_that_is_counted_for_the_next_round_is_ended_by_the_launcher_with_the_goal(world: World) -> None:
    world.start_s = 30.0
    world.launcher.asking = True
    world.at(5.0, lambda: world.ahead.tell(GoalReached())).signal_at(8.0, signal.SIGTERM)
    world.at(8.0, lambda: setattr(world.launcher, "asking", False))
    assert world.run() == ExitCode.GOAL_REACHED
    assert world.time == pytest.approx(8.0)


def test_a_newcomer_that_is_ready_when_the_goal_is_reached_ends_with_it(world: World) -> None:
    world.start_s = 3.0
    world.at(2.9, lambda: setattr(world.launcher, "over", True))
    assert world.run() == ExitCode.GOAL_REACHED
    assert world.workers[0].go is None


def test_a_newcomer_that_met_nobody_because_the_goal_is_reached_ends_with_it(world: World) -> None:
    world.plays(dies_meeting).at(0.1, lambda: setattr(world.launcher, "over", True))
    assert world.run() == ExitCode.GOAL_REACHED
    assert len(world.workers) == 1
    assert world.facts(WorkerLost) == []


def test_the_launchers_proxy_hears_of_the_workers_life(world: World) -> None:
    world.plays(dies_entering, crashes(5.0), trains).run_until(20.0)
    assert world.launcher.heard == ["entering", "ended", *["entering", "entered", "ended"], "entering", "entered"]


def test_a_round_is_opened_when_all_have_agreed_to_go_over(world: World) -> None:
    world.plays(does(5.0, lambda w: (w.say(GoOver(1)), w.say(Entering())))).run_until(10.0)
    assert world.launcher.heard == ["entering", "entered", "open_round", "entering"]


def level_of(worker: Worker) -> str:
    prepare = worker.heard[0]
    assert isinstance(prepare, Prepare)
    assert not prepare.standby
    return prepare.level


def warming(world: World) -> World:
    world.pool(0)
    world.ahead.comes_to_a_world_that_trains = True
    return world


def test_a_cold_newcomer_warms_up_when_the_others_train_meanwhile(world: World) -> None:
    warming(world).run_until(2.0)
    assert level_of(world.workers[0]) == "step"


def test_a_newcomer_that_dies_while_it_warms_up_is_followed_by_one_that_does_too(world: World) -> None:
    world.start_s = 5.0
    warming(world).at(2.0, lambda: world.workers[0].die(-9)).run_until(4.0)
    assert [level_of(worker) for worker in world.workers] == ["step", "step"]


def test_the_first_workers_of_a_job_do_not_warm_up(world: World) -> None:
    world.pool(0).run_until(2.0)
    assert level_of(world.workers[0]) == "off"


def test_a_cold_restart_does_not_warm_up_because_the_others_stand_still(world: World) -> None:
    warming(world).plays(crashes(5.0), trains).run_until(10.0)
    assert [level_of(worker) for worker in world.workers] == ["step", "off"]
