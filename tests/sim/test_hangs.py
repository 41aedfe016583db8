"""A slot whose workers stand still."""

import signal

import pytest

from elastic.agent.agent import DUMP_S, TICK_S
from elastic.agent.policy import Cause
from elastic.channel import Entering, Phase
from elastic.errors import ExitCode
from elastic.events import SlotGaveUp, WorkerLost
from tests.sim.world import Role, Worker, World, does, ignores, trains

PROGRESS_S = 60.0
HEARTBEAT_S = 5.0


def stalls() -> Role:
    return does(10.0, lambda worker: worker.hang(Phase.USER))


def freeze(worker: Worker) -> None:
    worker.stopped = True


def hold_gil(worker: Worker) -> None:
    worker.silent = True


def test_a_hung_worker_is_asked_for_its_stacks_then_killed_and_replaced(world: World) -> None:
    world.plays(stalls(), trains).run_until(120.0)
    first, second = world.workers
    assert first.signals == [signal.SIGUSR1, signal.SIGKILL]
    assert first.ended == pytest.approx(10.0 + PROGRESS_S + DUMP_S, abs=2 * TICK_S)
    assert second.started == first.ended
    assert world.entries() == ["launched", "rejoin"]
    lost = world.last(WorkerLost)
    assert lost.get("cause") == "hang"
    assert lost.get("summary").startswith("no progress for 60.")
    assert lost.get("detected_s") == pytest.approx(PROGRESS_S + DUMP_S, abs=2 * TICK_S)


def test_a_stopped_worker_is_killed_at_once(world: World) -> None:
    world.plays(does(10.0, freeze), trains).run_until(60.0)
    first, second = world.workers
    assert first.signals == [signal.SIGKILL]
    assert first.ended == second.started == pytest.approx(10.0 + HEARTBEAT_S, abs=0.5 + TICK_S)
    assert world.last(WorkerLost).get("summary").startswith("no heartbeat for 5.")
    assert world.last(WorkerLost).get("detected_s") == pytest.approx(HEARTBEAT_S, abs=TICK_S)


def test_a_worker_that_is_stopped_while_it_starts_is_not_waited_for(world: World) -> None:
    world.start_s = 100.0
    world.at(10.0, lambda: freeze(world.workers[0])).run_until(30.0)
    first, second = world.workers
    assert first.ended == second.started == pytest.approx(10.0 + HEARTBEAT_S, abs=0.5 + TICK_S)
    assert world.last(WorkerLost).get("summary").startswith("no heartbeat for 5.")


def test_a_worker_that_is_silent_while_it_starts_is_waited_for(world: World) -> None:
    world.start_s = 100.0
    world.at(10.0, lambda: hold_gil(world.workers[0])).run_until(60.0)
    assert len(world.workers) == 1


def test_a_worker_that_runs_but_holds_the_interpreter_is_asked_for_its_stacks(world: World) -> None:
    world.plays(does(10.0, hold_gil), trains).run_until(60.0)
    assert world.workers[0].signals == [signal.SIGUSR1, signal.SIGKILL]


def test_who_waits_for_a_hung_peer_is_not_at_fault(world: World) -> None:
    def wait(worker: Worker) -> None:
        worker.hang(Phase.STEPPING)
        worker.pulse.collective(True)

    world.plays(does(10.0, wait)).run_until(3000.0)
    assert len(world.workers) == 1


def test_who_waits_at_the_rendezvous_is_not_at_fault(world: World) -> None:
    world.plays(lambda worker: (worker.pulse.enter(Phase.ENTERING), worker.say(Entering()))).run_until(3000.0)
    assert len(world.workers) == 1


def test_a_hang_that_ends_in_an_abort_is_still_a_hang(world: World) -> None:
    world.plays(does(10.0, lambda w: (w.hang(Phase.USER), w.after(PROGRESS_S + 0.4, lambda: w.die(-6)))), trains)
    world.run_until(120.0)
    assert world.last(WorkerLost).get("cause") == "hang"


def test_workers_that_hang_again_and_again_end_the_slot(world: World) -> None:
    world.budget(Cause.HANG, limit=1, window_s=300.0).plays(stalls())
    assert world.run() == ExitCode.FAILED
    assert world.last(SlotGaveUp).get("reason").startswith("2 ends by hang within 300 s, last: no progress for 60.")


def test_the_pace_of_the_last_worker_does_not_excuse_the_next(world: World) -> None:
    def step_rarely(worker: Worker) -> None:
        worker.hang(Phase.STEPPING)
        for n in range(1, 20):
            worker.after(40.0 * n, lambda n=n: worker.pulse.step_done(100 + n))
        worker.after(790.0, lambda: worker.die(-9))

    world.plays(does(1.0, step_rarely), does(1.0, lambda w: w.hang(Phase.USER)), trains).run_until(1000.0)
    first, second, _ = world.workers
    assert first.signals == []
    assert second.ended is not None
    assert second.ended - second.started == pytest.approx(1.0 + PROGRESS_S, abs=1.0)


def test_a_hung_worker_cannot_drain_but_the_slot_ends(world: World) -> None:
    world.plays(stalls()).signal_at(30.0, signal.SIGTERM)
    world.at(11.0, lambda: setattr(world.workers[0], "on_drain", ignores))
    assert world.run() == ExitCode.TERMINATED
    assert world.time == pytest.approx(30.0 + world.settings.drain_s, abs=TICK_S)


def test_a_worker_already_found_hung_gets_no_time_to_drain(world: World) -> None:
    world.plays(stalls()).at(20.0, lambda: setattr(world.workers[0], "on_drain", ignores))
    world.signal_at(70.4, signal.SIGTERM)  # found hung at 70.25, to be killed at 70.55
    assert world.run() == ExitCode.TERMINATED
    assert world.time < 71.0
