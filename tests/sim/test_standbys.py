"""A slot whose agent keeps the host's pool of warm standbys."""

import os
import signal
from itertools import pairwise

import pytest

from elastic.agent.pool import BACKOFF_S, SETTLE_S
from elastic.channel import Go, Phase, Prepare
from elastic.errors import ExitCode
from elastic.events import StandbyLost, StandbyPromoted, StandbyReady, WorkerLeft, WorkerStarted
from tests.sim.world import WARM_S, World, crashes, finishes, trains


def test_the_pool_is_filled_only_when_training_runs(world: World) -> None:
    world.pool(1).run_until(30.0)
    worker, standby = world.workers
    assert standby.started > worker.started + SETTLE_S
    assert len(world.facts(StandbyReady)) == 1


def test_standbys_are_warmed_one_after_the_other(world: World) -> None:
    world.pool(3).run_until(60.0)
    _, *standbys = world.workers
    assert len(standbys) == 3
    for earlier, later in pairwise(standbys):
        assert later.started >= earlier.started + WARM_S


def test_a_standby_is_prepared_for_the_job_and_waits(world: World) -> None:
    phases: list[Phase] = []
    world.pool(1).at(20.0, lambda: phases.append(world.workers[1].pulse.read().phase)).run_until(30.0)
    (prepare,) = world.workers[1].heard
    assert isinstance(prepare, Prepare)
    assert (prepare.standby, prepare.level) == (True, "step")
    assert phases == [Phase.WAITING]


def test_a_warm_standby_takes_the_place_of_a_crashed_worker(world: World) -> None:
    world.pool(1).plays(crashes(20.0), trains).run_until(40.0)
    first, standby, successor = world.workers
    assert first.ended == pytest.approx(20.0, abs=0.01)
    assert isinstance(standby.heard[-1], Go)
    assert standby.heard[-1].entry == "rejoin"
    assert [r.get("source") for r in world.facts(WorkerStarted)] == ["cold", "standby"]
    assert world.last(StandbyPromoted).get("standby_pid") == standby.process.pid
    assert successor.go is None  # it fills the pool again


def test_a_crash_before_a_standby_is_warm_is_restarted_cold(world: World) -> None:
    world.pool(1).plays(crashes(2.5), trains).run_until(40.0)
    assert [r.get("source") for r in world.facts(WorkerStarted)] == ["cold", "cold"]


def test_a_promoted_standby_is_looked_after_like_any_worker(world: World) -> None:
    world.pool(1).plays(crashes(20.0), crashes(20.0), finishes(20.0))
    assert world.run() == ExitCode.GOAL_REACHED
    assert [r.get("source") for r in world.facts(WorkerStarted)] == ["cold", "standby", "standby"]


def test_a_standby_that_dies_while_warming_is_replaced_after_a_pause(world: World) -> None:
    world.pool(1)
    world.at(3.5, lambda: world.workers[1].die(-9)).run_until(60.0)
    _, died, successor = world.workers
    assert died.ended is not None
    assert successor.started >= died.ended + BACKOFF_S
    assert world.last(StandbyLost).get("reason") == "died while warming (exit code -9)"


def test_a_standby_that_got_warm_ends_the_row_of_failures(world: World) -> None:
    world.pool(1).at(3.5, lambda: world.workers[1].die(-9)).at(20.0, lambda: world.workers[2].die(-9))
    world.run_until(60.0)
    assert [r.get("reason") for r in world.facts(StandbyLost)] == [
        "died while warming (exit code -9)",
        "died (exit code -9)",
    ]
    assert world.workers[3].started == pytest.approx(20.0, abs=1.5)  # one that was ready is replaced at once


def test_a_standby_that_stands_still_is_replaced_before_it_is_needed(world: World) -> None:
    world.pool(1).at(20.0, lambda: setattr(world.workers[1], "silent", True)).run_until(60.0)
    assert [r.get("reason") for r in world.facts(StandbyLost)] == ["stands still (exit code -9)"]
    assert world.workers[1].ended == pytest.approx(20.0 + world.settings.limits.heartbeat_s, abs=2.0)
    assert len(world.facts(StandbyReady)) == 2


def test_a_standby_that_has_just_been_stopped_is_not_handed_over(world: World) -> None:
    world.pool(1).plays(crashes(20.0), trains)
    world.at(19.9, lambda: setattr(world.workers[1], "stopped", True)).run_until(40.0)
    assert [r.get("source") for r in world.facts(WorkerStarted)] == ["cold", "cold"]
    assert [r.get("reason") for r in world.facts(StandbyLost)] == ["stands still (exit code -9)"]


def test_a_standby_that_is_ready_before_a_cold_worker_overtakes_it(world: World) -> None:
    world.start_s = 10.0
    world.pool(1).plays(crashes(20.0), crashes(0.6), trains).run_until(60.0)
    started = world.facts(WorkerStarted)
    assert [r.get("source") for r in started] == ["cold", "standby", "cold", "standby"]
    workers = {w.process.pid: w for w in world.workers}
    _, promoted, cold, overtaking = (workers[r.get("worker_pid")] for r in started)
    assert (cold.go, cold.signals) == (None, [signal.SIGKILL])
    assert overtaking.go is not None
    assert overtaking.go.entry == "rejoin"
    assert promoted.ended is not None
    assert cold.ended is not None
    assert cold.ended < promoted.ended + world.start_s - WARM_S
    assert world.last(WorkerLeft).get("reason") == "a standby was ready before it"


def test_a_cold_worker_that_has_been_told_to_go_is_not_overtaken(world: World) -> None:
    world.pool(1).plays(crashes(20.0), crashes(0.6), trains).run_until(60.0)
    assert [r.get("source") for r in world.facts(WorkerStarted)] == ["cold", "standby", "cold"]
    assert len(world.facts(StandbyReady)) == 2


def test_the_standbys_end_with_the_slot(world: World) -> None:
    assert world.pool(2).plays(finishes(30.0)).run() == ExitCode.GOAL_REACHED
    _, *standbys = world.workers
    assert [standby.signals for standby in standbys] == [[signal.SIGKILL]] * 2


def test_the_pool_is_left_to_the_next_keeper(world: World) -> None:
    world.pool(1).plays(finishes(30.0)).run()
    assert world.meeting is not None
    assert not world.meeting.socket.exists()
    lock = world.meeting.take_lock()
    assert lock is not None
    os.close(lock)


def test_a_host_whose_pool_is_kept_by_another_agent_keeps_no_second_one(world: World) -> None:
    world.pool(1)
    assert world.meeting is not None
    lock = world.meeting.take_lock()
    assert lock is not None
    world.run_until(20.0)
    assert len(world.workers) == 1
    os.close(lock)


def test_another_agent_takes_over_when_the_keeper_is_gone(world: World) -> None:
    world.pool(1)
    assert world.meeting is not None
    lock = world.meeting.take_lock()
    assert lock is not None
    world.at(20.0, lambda: os.close(lock)).run_until(40.0)
    assert len(world.workers) == 2
    assert world.workers[1].started > 20.0
