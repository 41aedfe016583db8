"""A slot whose workers crash, fail, finish or are taken away."""

import os
import signal

import pytest

from elastic.agent.policy import LAUNCHER_GRACE_S, Cause
from elastic.channel import Entered, Failed, Finished, Left, Phase
from elastic.errors import ExitCode
from elastic.events import AgentStarted, SlotGaveUp, WorkerFailed, WorkerLeft, WorkerLost, WorkerStarted
from tests.sim.world import Worker, World, crashes, dies_entering, dies_meeting, does, fails, finishes, trains

SAME = "Traceback\nValueError: bad sample"


def test_a_worker_that_is_well_is_left_alone(world: World) -> None:
    world.run_until(600.0)
    assert world.story() == ["AgentStarted", "WorkerStarted"]
    assert world.workers[0].alive


def test_a_worker_is_told_its_job_and_its_slot(world: World) -> None:
    world.run_until(1.0)
    prepare, go = world.workers[0].heard
    assert prepare.job == "/jobs/mnist.yaml"
    assert not prepare.standby
    assert (go.host, go.slot, go.entry, go.agent_pid) == ("alpha", 1, "launched", os.getpid())
    assert go.env == {"HOROVOD_RANK": "1", "HOROVOD_GLOO_RENDEZVOUS_PORT": "4242"}


def test_a_crash_is_restarted_in_place_at_once(world: World) -> None:
    world.plays(crashes(10.0), trains).run_until(60.0)
    first, second = world.workers
    assert second.started == first.ended == pytest.approx(10.0, abs=0.01)
    assert world.story() == ["AgentStarted", "WorkerStarted", "WorkerLost", "WorkerStarted"]
    lost = world.last(WorkerLost)
    assert (lost.get("cause"), lost.get("summary"), lost.get("root_cause")) == ("crash", "killed by SIGSEGV", True)


def test_the_next_worker_asks_the_rendezvous_once_the_slot_has_shown_up(world: World) -> None:
    world.plays(crashes(10.0), crashes(10.0), trains).run_until(60.0)
    assert world.entries() == ["launched", "rejoin", "rejoin"]


def test_the_launchers_environment_holds_until_the_slot_has_shown_up(world: World) -> None:
    world.plays(dies_entering, dies_entering, crashes(10.0), trains).run_until(60.0)
    assert world.entries() == ["launched", "launched", "launched", "rejoin"]


def test_a_worker_that_shows_up_and_meets_nobody_has_used_the_launchers_environment_up(world: World) -> None:
    world.plays(dies_meeting, trains).run_until(60.0)
    assert world.entries() == ["launched", "rejoin"]


def test_an_abort_in_a_world_is_a_crash(world: World) -> None:
    world.plays(crashes(10.0, -signal.SIGABRT), trains).run_until(60.0)
    lost = world.last(WorkerLost)
    assert (lost.get("cause"), lost.get("root_cause")) == ("crash", True)


def test_facts_bear_the_generation_and_rank_of_the_world_the_worker_is_in(world: World) -> None:
    world.plays(does(5.0, lambda w: w.say(Entered(rank=3, size=4, generation=7))), trains)
    world.at(10.0, lambda: world.workers[0].die(-9)).run_until(12.0)
    lost = world.last(WorkerLost)
    assert (lost.generation, lost.rank) == (7, 3)
    second = world.workers[1].go
    assert second is not None
    assert second.generation == 7


def test_a_crash_loop_ends_the_slot_and_says_why(world: World) -> None:
    world.budget(Cause.CRASH, limit=3, window_s=60.0).plays(crashes(1.0))
    assert world.run() == ExitCode.FAILED
    assert len(world.workers) == 4
    assert world.last(SlotGaveUp).get("reason") == "4 ends by crash within 60 s, last: killed by SIGSEGV"
    assert not world.last(SlotGaveUp).get("bug")
    assert world.summaries == 1


def test_giving_up_is_told_on_standard_error(world: World, capfd: pytest.CaptureFixture[str]) -> None:
    world.budget(Cause.CRASH, limit=0, window_s=60.0).plays(crashes(1.0)).run()
    assert capfd.readouterr().err == (
        "elastic: slot alpha[1] given up: 1 ends by crash within 60 s, last: killed by SIGSEGV\n"
    )


def test_crashes_are_forgiven_after_a_healthy_stretch(world: World) -> None:
    world.budget(Cause.CRASH, limit=1, window_s=60.0).plays(crashes(61.0)).run_until(1000.0)
    assert len(world.facts(WorkerLost)) == 16


def test_each_cause_has_its_own_budget(world: World) -> None:
    for cause in (Cause.CRASH, Cause.USER_CODE, Cause.REENTRY):
        world.budget(cause, limit=1, window_s=600.0)
    world.plays(crashes(2.0), fails(2.0), dies_entering, trains).run_until(60.0)
    assert len(world.workers) == 4


def test_a_failure_during_recovery_is_restarted_again(world: World) -> None:
    world.plays(crashes(10.0), dies_entering, dies_entering, trains).run_until(60.0)
    assert [r.get("cause") for r in world.facts(WorkerLost)] == ["crash", "reentry", "reentry"]
    assert [r.get("root_cause") for r in world.facts(WorkerLost)] == [True, False, False]
    assert world.workers[-1].pulse.read().step > 0


def test_endless_failures_during_recovery_end_the_slot(world: World) -> None:
    world.budget(Cause.REENTRY, limit=4, window_s=60.0).plays(crashes(10.0), dies_entering)
    assert world.run() == ExitCode.FAILED
    assert world.last(SlotGaveUp).get("reason") == "5 ends by reentry within 60 s, last: killed by SIGABRT"


def test_an_exception_is_restarted_and_its_traceback_shown(world: World, capfd: pytest.CaptureFixture[str]) -> None:
    world.plays(fails(10.0), trains).run_until(60.0)
    failed = world.last(WorkerFailed)
    assert (failed.get("summary"), failed.get("traceback")) == ("ValueError: bad sample", SAME)
    assert failed.get("step") > 0
    assert SAME in capfd.readouterr().err
    assert len(world.workers) == 2


def test_the_same_traceback_twice_on_the_first_step_ends_the_slot_as_a_bug(world: World) -> None:
    world.plays(fails(0.2))
    assert world.run() == ExitCode.FAILED
    assert len(world.workers) == 2
    gave_up = world.last(SlotGaveUp)
    assert gave_up.get("bug")
    assert gave_up.get("reason") == "the same error twice on the first step: ValueError: bad sample"


def test_another_traceback_on_the_first_step_is_another_failure(world: World) -> None:
    world.plays(fails(0.2), fails(0.2, "Traceback\nKeyError: 'label'"), trains).run_until(60.0)
    assert len(world.workers) == 3


def test_the_same_traceback_far_into_training_is_no_error_on_the_first_step(world: World) -> None:
    def fail(worker: Worker) -> None:
        worker.say(Failed("OSError: storage", "Traceback\nOSError: storage", step=500))
        worker.die(1)

    world.plays(does(10.0, fail), does(10.0, fail), trains).run_until(60.0)


def test_a_wrong_configuration_ends_the_slot_as_a_bug(world: World) -> None:
    world.plays(fails(0.2, "ConfigError: data: found 0 samples", config=True))
    assert world.run() == ExitCode.CONFIG
    assert len(world.workers) == 1
    assert world.last(SlotGaveUp).get("bug")


def test_a_worker_that_finished_ends_the_slot_with_0_and_leaves_a_summary(world: World) -> None:
    world.plays(finishes(10.0))
    assert world.run() == ExitCode.GOAL_REACHED
    assert world.summaries == 1
    assert world.story() == ["AgentStarted", "WorkerStarted", "WorkerLeft"]
    assert world.last(WorkerLeft).get("reason") == "goal"


def test_a_worker_that_exits_0_without_a_word_has_not_finished(world: World) -> None:
    world.plays(crashes(10.0, code=0), trains).run_until(60.0)
    assert world.last(WorkerLost).get("summary") == "exit code 0"


def test_a_slot_that_was_taken_away_ends_quietly(world: World, capfd: pytest.CaptureFixture[str]) -> None:
    def removed(worker: Worker) -> None:
        world.launcher.removed = True
        worker.pulse.enter(Phase.ENTERING)
        worker.die(-signal.SIGABRT)

    world.plays(does(10.0, removed))
    assert world.run() == ExitCode.SLOT_LOST
    assert world.facts(SlotGaveUp, WorkerLost) == []
    assert world.last(WorkerLeft).get("reason") == "removed"
    assert capfd.readouterr().err == ""


def test_a_worker_that_somebody_else_told_to_leave_is_replaced_after_a_grace(world: World) -> None:
    world.plays(does(10.0, lambda w: (w.say(Left(whole_job=False)), w.die(143))), trains).run_until(60.0)
    first, second = world.workers
    assert first.ended is not None
    assert LAUNCHER_GRACE_S <= second.started - first.ended <= LAUNCHER_GRACE_S + 0.3
    assert world.last(WorkerLeft).get("reason") == "preempted"


def test_a_signal_within_that_grace_ends_the_slot(world: World) -> None:
    world.plays(does(10.0, lambda w: (w.say(Left(whole_job=False)), w.die(143))))
    world.signal_at(10.2, signal.SIGTERM)
    assert world.run() == ExitCode.TERMINATED
    assert len(world.workers) == 1


def test_a_worker_that_left_with_everybody_is_not_replaced(world: World) -> None:
    world.plays(does(10.0, lambda w: (w.say(Left(whole_job=True)), w.die(143))))
    assert world.run() == ExitCode.TERMINATED
    assert world.facts(SlotGaveUp) == []


def test_what_a_worker_prints_goes_on_and_into_its_log(world: World, capfd: pytest.CaptureFixture[str]) -> None:
    world.plays(does(10.0, lambda w: (w.print("loss 0.5\n"), w.print("careful\n", err=True)))).run_until(20.0)
    assert capfd.readouterr() == ("loss 0.5\n", "careful\n")
    assert (world.run_dir.logs / "worker-alpha-1.log").read_text() == "loss 0.5\ncareful\n"


def test_the_last_words_of_a_worker_are_kept(world: World, capfd: pytest.CaptureFixture[str]) -> None:
    world.plays(does(10.0, lambda w: (w.print("Aborted\n", err=True), w.die(-6))), trains).run_until(20.0)
    assert capfd.readouterr().err == "Aborted\n"


def test_what_a_worker_said_and_printed_last_counts_though_its_death_is_seen_first(
    world: World, capfd: pytest.CaptureFixture[str]
) -> None:
    def end(worker: Worker) -> None:
        worker.be_seen_dead()
        worker.print("trained\n")
        worker.say(Finished())
        worker.die(0)

    world.plays(does(10.0, end))
    assert world.run() == ExitCode.GOAL_REACHED
    assert capfd.readouterr().out == "trained\n"


def test_a_slot_tells_who_started_it(world: World) -> None:
    world.run_until(1.0)
    assert world.last(AgentStarted).get("launcher") == "horovodrun"
    started = world.last(WorkerStarted)
    assert (started.host, started.slot, started.get("source")) == ("alpha", 1, "cold")
