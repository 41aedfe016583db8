"""The agent's shell: it looks after one slot, acts on the policies' decisions, records facts.

    launcher -> agent -> worker
                 |  ^
        Prepare, Go  Ready, Entering, Entered, AskAhead, GoOver, Failed | Finished | Left

Theory of operation. One thread waits for the worker's messages, its output and its death (a
pidfd), for signals, and looks at the worker's pulse four times a second. When the worker ends,
`policy.after_exit` says what happens. A restart happens in the same slot: a warm standby of the
host's pool if there is one, a cold process otherwise. The launcher notices nothing but that the
slot meets the others at the rendezvous again.

How the next worker enters depends on how far the last one came: while none has shown up at the
rendezvous, the launcher's environment holds (`launched`); after that it is stale and the next
must ask (`rejoin`); see `worker.world` and `rendezvous`. So a cold worker, too, is told to go only
when it is ready: its round may have been given up while it came up.
"""

import os
import signal
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from elastic.agent.ahead import Ahead, GoalReached
from elastic.agent.announcements import Announcements
from elastic.agent.claim import claim
from elastic.agent.hang import Hung, StepTimes, verdict
from elastic.agent.heartbeat import Heartbeats
from elastic.agent.loop import Loop
from elastic.agent.meeting import Meeting
from elastic.agent.output import Output
from elastic.agent.policy import Budget, Cause, EndSlot, WorkerExit, after_exit, cause_of, words_for
from elastic.agent.preemption import Preemption
from elastic.agent.process import WorkerProcess
from elastic.agent.remains import keep
from elastic.agent.rendezvous import Rendezvous
from elastic.agent.settings import Settings
from elastic.agent.slot import Assignment
from elastic.channel import (
    AskAhead,
    Drain,
    Entered,
    Entering,
    Failed,
    Finished,
    Go,
    GoOver,
    HostsAnnounced,
    Left,
    Message,
    Phase,
    Prepare,
    Ready,
)
from elastic.errors import ExitCode
from elastic.events import (
    AgentStarted,
    DrainRequested,
    EventLog,
    JobStopped,
    PreemptionNoticed,
    SlotGaveUp,
    StandbyPromoted,
    WorkerFailed,
    WorkerLeft,
    WorkerLost,
    WorkerStarted,
)

if TYPE_CHECKING:
    from elastic.agent.keeper import Keeper

TICK_S = 0.25
KEEP_S = 1.0
DUMP_S = 0.3  # a hung worker's stacks are written before it is killed
ORPHAN_DRAIN_S = 4.0  # what is left for a last checkpoint when the launcher is gone


class Agent:
    """Looks after one slot until its goal is reached or it must be given up.

    Args:
        assignment: the job and the slot.
        settings: limits, budgets, the pool.
        loop: the thread's loop and clock.
        meeting: where this host's agents meet; None keeps no pool.
        rendezvous: the way to the launcher's; None without a launcher.
        ahead: asks it for the next world while the worker trains; None without a launcher.
        spawn: starts a worker process with an environment.
        summarise: called when the slot ends for good, to leave `summary.json`.
        announcements: hears what the launcher announces; None without a launcher.
        preemption: waits for the notice that this host will be taken away; None where nobody gives one.
    """

    def __init__(
        self,
        assignment: Assignment,
        settings: Settings,
        loop: Loop,
        meeting: Meeting | None,
        rendezvous: Rendezvous | None,
        ahead: Ahead | None,
        spawn: Callable[[Mapping[str, str]], WorkerProcess],
        summarise: Callable[[], None],
        preemption: Preemption | None = None,
        announcements: Announcements | None = None,
    ) -> None:
        self._a = assignment
        self._settings = settings
        self._loop = loop
        self._meeting = meeting
        self._rendezvous = rendezvous
        self._ahead = ahead
        self._spawn = spawn
        self._summarise = summarise
        self._preemption = preemption
        self._announcements = announcements
        self._untold: list[HostsAnnounced] = []  # announced while no worker was in a world
        slot = assignment.slot
        self._events = EventLog(assignment.run_dir.events, host=slot.host, slot=slot.local_rank)
        self._heartbeats = Heartbeats(assignment.run_dir.heartbeats, self._events)
        self._output = Output(assignment.run_dir.logs / f"worker-{slot.host}-{slot.local_rank}.log")
        self._budgets: dict[Cause, Budget] = dict(settings.budgets)
        self._keeper: Keeper | None = None
        self._worker: WorkerProcess | None = None
        self._said: dict[type[Message], Message] = {}
        self._told_to_go = False
        self._generation = assignment.generation
        self._step_times = StepTimes()
        self._hung: Hung | None = None
        self._last_failure: Failed | None = None
        self._stop_signal: int | None = None
        self._kill_at: float | None = None
        self._restart_at: float | None = None
        self._goal_reached = False  # by the others, without this slot
        self._leaving: tuple[int, float] | None = None
        self._parent = os.getppid()
        self._stash = os.memfd_create("elastic-stash", os.MFD_CLOEXEC)

    def run(self, first: WorkerProcess | None = None) -> int:
        """Look after the slot; return the exit code for the launcher.

        Args:
            first: a standby that has already been claimed for it.
        """
        self._loop.on_signals((signal.SIGTERM, signal.SIGINT), self.stop)
        self._events.emit(AgentStarted(self._a.slot.launcher))
        self._start_worker(first)
        self._keep()
        if self._ahead is not None:
            self._loop.watch(self._ahead.fd, self._pass_news)
        if self._announcements is not None:
            self._loop.watch(self._announcements.fd, self._pass_announcements)
        if self._preemption is not None:
            self._loop.watch(self._preemption.fd, self._heed_notice)
            self._preemption.start()
        self._loop.every(TICK_S, self.tick)
        self._loop.every(KEEP_S, self._keep)
        self._loop.every(KEEP_S, self._beat)
        self._loop.every(KEEP_S, self._overtake)
        code = self._loop.run()
        self._heartbeats.end()
        if code != ExitCode.GOAL_REACHED:
            self._keep_remains()  # of a worker that was told to stop
        if self._keeper is not None:
            self._keeper.close()
        return code

    def _keep_remains(self) -> None:
        slot = self._a.slot
        try:
            keep(self._stash, self._a.run_dir.stash / f"{slot.host}-{slot.local_rank}")
        except OSError as error:
            print(f"elastic: the state between two worlds is lost: {error}", file=sys.stderr, flush=True)

    def stop(self, number: int, within_s: float | None = None) -> None:
        """Let the worker finish its step, commit and leave; a second call kills it at once."""
        worker = self._worker
        if self._stop_signal is not None or worker is None:
            self._stop_signal = number
            if worker is None:
                self._loop.end(self._leaving[0] if self._leaving is not None else 128 + number)
            else:
                worker.kill()
            return
        self._stop_signal = number
        self._events.emit(DrainRequested(signal.Signals(number).name))
        if self._hung is not None or worker.pulse.read().phase in (Phase.STARTING, Phase.WAITING, Phase.ENTERING):
            worker.kill()  # it holds no step to finish
            return
        if self._ahead is not None:
            self._ahead.leave()
        worker.send(Drain(signal.Signals(number).name))
        self._kill_at = self._loop.now() + (within_s if within_s is not None else self._settings.drain_s)

    def _heed_notice(self) -> None:
        """Let the worker leave while there is time."""
        assert self._preemption is not None
        notice = self._preemption.notice()
        if notice is None or self._stop_signal is not None:
            return
        self._events.emit(PreemptionNoticed(notice.reason, notice.in_s))
        left_s = self._settings.drain_s if notice.in_s is None else min(self._settings.drain_s, notice.in_s)
        self.stop(signal.SIGTERM, within_s=max(1.0, left_s))

    def tick(self) -> None:
        """Look at the clock and at the worker's pulse."""
        now = self._loop.now()
        if os.getppid() != self._parent and self._stop_signal is None:
            self.stop(signal.SIGTERM, within_s=ORPHAN_DRAIN_S)
        if self._restart_at is not None and now >= self._restart_at:
            self._restart_at = None
            self._start_worker(None)
        if self._leaving is not None:
            self._leave(*self._leaving)
        worker = self._worker
        if worker is None:
            return
        if self._is_not_needed():
            worker.kill()
            return
        if self._kill_at is not None and now >= self._kill_at:
            worker.kill()
            return
        beat = worker.pulse.read()
        self._step_times.look(beat.step, now)
        if self._hung is None:
            limits = self._settings.limits
            stopped = now - beat.heartbeat > limits.heartbeat_s and worker.is_stopped()
            self._hung = verdict(beat, now, limits, self._step_times.median_s, stopped=stopped)
            if self._hung is not None:
                self._replace_hung(worker, now)

    def _replace_hung(self, worker: WorkerProcess, now: float) -> None:
        if worker.is_stopped():
            worker.kill()
            return
        worker.signal(signal.SIGUSR1)  # faulthandler writes all stacks into the log
        self._kill_at = now + DUMP_S

    def _start_worker(self, claimed: WorkerProcess | None) -> None:
        self._said, self._hung, self._kill_at, self._told_to_go = {}, None, None, False
        self._step_times = StepTimes()
        began = self._loop.now()
        worker = claimed or self._from_pool() or self._cold()
        if worker.source == "standby":
            self._events.emit(StandbyPromoted(worker.pid, round(self._loop.now() - began, 6)))
        self._worker = worker
        self._output.attach(self._loop, worker)
        self._loop.watch(worker.channel.sock, lambda: self._listen(worker))
        self._loop.watch(worker.pidfd, lambda: self._on_death(worker))
        entry = "alone"
        if self._rendezvous is not None:
            entry = "rejoin" if self._rendezvous.launched_env_used else "launched"
        self._events.emit(WorkerStarted(worker.pid, entry, worker.source))
        if worker.source == "standby":
            self._tell_to_go(worker)
        elif self._ahead is not None:
            self._ahead.watch()

    def _tell_to_go(self, worker: WorkerProcess) -> None:
        """Let a worker that is ready enter: only now is it certain which round its slot is counted for."""
        slot = self._a.slot
        env, entry = slot.env, "alone"
        if self._rendezvous is not None and self._ahead is not None:
            self._ahead.rest()
            env, entry = env | self._rendezvous.env, self._rendezvous.enter()
        if entry == "over":
            self._goal_reached = True
            worker.kill()
            return
        self._told_to_go = True
        worker.send(Go(env, entry, slot.host, slot.local_rank, self._generation, os.getpid(), self._stash))

    def _is_not_needed(self) -> bool:
        """Tell whether the job goes on, or has ended, without a worker that is still coming up."""
        if self._rendezvous is None or self._told_to_go:
            return False
        return self._rendezvous.removed or (self._goal_reached and not self._rendezvous.asking)

    def _from_pool(self) -> WorkerProcess | None:
        if self._keeper is not None:
            return self._keeper.take()
        found = claim(self._meeting) if self._meeting is not None else None
        return found.worker if found else None

    def _cold(self) -> WorkerProcess:
        worker = self._spawn(self._a.env)
        worker.send(self._prepare(self._settings.level if self._has_time_to_warm_up() else "off", standby=False))
        return worker

    def _has_time_to_warm_up(self) -> bool:
        """Tell whether the others train on while this slot's first worker comes up."""
        if self._ahead is None or self._rendezvous is None or self._rendezvous.launched_env_used:
            return False
        return self._ahead.is_awaited()

    def _prepare(self, level: str, *, standby: bool) -> Prepare:
        a = self._a
        quiet = a.slot.launcher == "elastic run"
        return Prepare(str(a.job), a.config, str(a.run_dir.path), standby, level, quiet)

    def _keep(self) -> None:
        """Keep the host's pool, if nobody else does."""
        if self._meeting is None or not self._settings.standbys or self._stop_signal is not None:
            return
        if self._keeper is None:
            lock = self._meeting.take_lock()
            if lock is None:
                return
            log = self._a.run_dir.logs / f"standby-{self._a.slot.host}.log"
            prepare, size = self._prepare(self._settings.level, standby=True), self._settings.standbys
            from elastic.agent.keeper import Keeper  # not before the slot's worker is on its way

            silent_s = self._settings.limits.heartbeat_s
            self._keeper = Keeper(
                self._loop, self._meeting, lock, self._events, prepare, self._a.env, size, log, silent_s, self._spawn
            )
            self._keeper.open()
        if self._worker is not None and self._worker.pulse.read().step > 0:
            self._keeper.training()
        self._keeper.tend()

    def _beat(self) -> None:
        pool = self._keeper.count() if self._keeper is not None else (0, 0)
        self._heartbeats.beat(os.getpid(), self._worker, self._step_times, self._loop.now(), pool)

    def _overtake(self) -> None:
        """Let a standby that has become ready take the place of a cold worker that is still coming up.

        Where one worker is lost soon after another, the pool's next standby may have a head start.
        """
        cold = self._worker
        if cold is None or cold.source == "standby" or self._told_to_go or self._stop_signal is not None:
            return
        standby = self._from_pool()
        if standby is None:
            return
        for file in (cold.channel.sock, cold.pidfd):
            self._loop.unwatch(file)
        cold.kill()
        self._output.detach(self._loop, cold)
        cold.reap()
        self._events.emit(WorkerLeft(cold.pid, "a standby was ready before it"))
        self._start_worker(standby)

    def _listen(self, worker: WorkerProcess) -> None:
        messages = worker.channel.receive()
        if messages is None:
            self._loop.unwatch(worker.channel.sock)
            return
        for message in messages:
            self._said[type(message)] = message
            if isinstance(message, Entered):
                self._said.pop(Entering, None)
                self._generation = message.generation
                self._events.rank, self._events.generation = message.rank, message.generation
                if self._rendezvous is not None:
                    self._rendezvous.entered()
                self._pass_announcements()
            elif isinstance(message, Entering) and self._rendezvous is not None:
                self._rendezvous.entering()
            elif isinstance(message, GoOver) and self._rendezvous is not None:
                self._rendezvous.open_round()
            elif isinstance(message, Ready):
                self._tell_to_go(worker)
            elif isinstance(message, AskAhead) and self._ahead is not None and self._stop_signal is None:
                self._ahead.ask(message.generation, message.attempt)

    def _pass_news(self) -> None:
        """Tell the worker what has become of the next world, if it is still in the one that asked."""
        assert self._ahead is not None
        for news in self._ahead.news():
            if isinstance(news, GoalReached):
                self._goal_reached = True
            elif self._worker is not None and Entered in self._said and news.generation == self._generation:
                self._worker.send(news)

    def _pass_announcements(self) -> None:
        """Tell the worker what the launcher has announced, once it is in a world."""
        if self._announcements is not None:
            self._untold += self._announcements.news()
        if self._worker is not None and Entered in self._said:
            for announced in self._untold:
                self._worker.send(announced)
            self._untold.clear()

    def _on_death(self, worker: WorkerProcess) -> None:
        self._loop.unwatch(worker.pidfd)
        worker.channel.sock.setblocking(False)
        self._listen(worker)
        self._loop.unwatch(worker.channel.sock)
        self._output.detach(self._loop, worker)
        if self._rendezvous is not None:
            self._goal_reached = self._goal_reached or (Entering in self._said and self._rendezvous.is_over())
            self._rendezvous.ended()
        beat = worker.pulse.read()
        since = self._loop.now() - (beat.heartbeat if self._hung and self._hung.frozen else beat.since)
        end = self._facts(worker.reap())
        self._worker = None
        cause = cause_of(end)
        budget = self._budgets.get(cause, Budget(0, 1.0)).after(self._loop.now())
        self._budgets[cause] = budget
        self._record(worker.pid, end, cause, since)
        decision = after_exit(end, budget, self._stop_signal)
        if isinstance(decision, EndSlot):
            self._end(decision)
        elif decision.delay_s:
            self._restart_at = self._loop.now() + decision.delay_s
        else:
            self._start_worker(None)

    def _facts(self, code: int) -> WorkerExit:
        failed, left = self._said.get(Failed), self._said.get(Left)
        before, self._last_failure = self._last_failure, failed if isinstance(failed, Failed) else None
        same = (
            isinstance(failed, Failed)
            and failed.step == 0
            and before is not None
            and before.traceback == failed.traceback
        )
        return WorkerExit(
            code=code,
            finished=Finished in self._said or self._goal_reached,
            left=left is not None,
            whole_job=isinstance(left, Left) and left.whole_job,
            config=isinstance(failed, Failed) and failed.config,
            failed=failed is not None,
            removed=self._rendezvous is not None and self._rendezvous.removed,
            entering=Entering in self._said,
            hung=self._hung.reason if self._hung is not None else None,
            failure=failed.summary if isinstance(failed, Failed) else "",
            same_failure=same,
        )

    def _record(self, pid: int, end: WorkerExit, cause: Cause, since_s: float) -> None:
        failed = self._said.get(Failed)
        if isinstance(failed, Failed):
            self._events.emit(WorkerFailed(failed.summary, failed.traceback, failed.step))
            print(failed.traceback, file=sys.stderr, flush=True)
        elif cause in (Cause.GOAL, Cause.REMOVED, Cause.PREEMPTED):
            self._events.emit(WorkerLeft(pid, cause.value))
        elif self._stop_signal is None:
            root_cause = cause is not Cause.REENTRY
            self._events.emit(
                WorkerLost(pid, cause.value, words_for(end), root_cause, round(since_s, 3) if self._hung else 0.0)
            )

    def _end(self, decision: EndSlot) -> None:
        if decision.alarm:
            slot = self._a.slot
            self._events.emit(SlotGaveUp(decision.reason, decision.bug, decision.code))
            print(
                f"elastic: slot {slot.host}[{slot.local_rank}] given up: {decision.reason}", file=sys.stderr, flush=True
            )
        if decision.whole_job:
            self._events.emit(JobStopped(decision.reason))
        if decision.alarm or decision.whole_job or decision.code == 0:
            self._summarise()
        if decision.code != ExitCode.GOAL_REACHED:
            self._keep_remains()  # before the launcher is told: the others' next world may have nothing else
        self._leave(decision.code, self._loop.now() + self._settings.join_s)

    def _leave(self, code: int, by: float) -> None:
        """End the slot, with the goal only once the launcher can count that."""
        goal = code == ExitCode.GOAL_REACHED
        waits = goal and self._ahead is not None and self._ahead.asks
        if self._rendezvous is None or self._loop.now() > by or (not waits and self._rendezvous.retire(goal=goal)):
            self._loop.end(code)
        else:
            self._leaving = code, by
