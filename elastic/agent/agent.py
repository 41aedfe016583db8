"""The agent's shell: it watches one worker, acts on the policy's decisions, records facts.

    launcher -> agent -> worker
                 |  ^
        Prepare, Go  Ready, Entering, Entered, Failed | Finished | Left

Theory of operation. One thread waits for: the worker's messages, its output, its death (a pidfd),
and signals to this agent. When the worker dies, `policy.after_exit` says what happens. A restart
happens in the same slot; the launcher notices nothing but that the slot meets the others at the
rendezvous again. How the next worker enters depends on how far the last one came: one that never
began to join left the launcher's environment unused (`launched`); after that the environment is
stale and the next must ask (`rejoin`).
"""

import contextlib
import functools
import os
import selectors
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from elastic.agent.policy import REMOVED_TEXT, Budget, Cause, EndSlot, WorkerExit, after_exit, cause_of, words_for
from elastic.agent.process import WorkerProcess, spawn
from elastic.agent.slot import Slot
from elastic.channel import Drain, Entered, Entering, Failed, Finished, Go, Left, Message, Prepare, Ready
from elastic.events import AgentStarted, EventLog, SlotGaveUp, WorkerFailed, WorkerLeft, WorkerLost, WorkerStarted
from elastic.rundir import RunDir

TICK_S = 0.25


@dataclass(frozen=True, slots=True)
class Assignment:
    """What an agent is to do: a job, its configuration and where it keeps its files."""

    job: Path
    config: dict[str, Any]
    run_dir: RunDir
    slot: Slot
    env: dict[str, str]


class Agent:
    """Looks after one slot until its goal is reached or it must be given up."""

    def __init__(self, assignment: Assignment, budgets: dict[Cause, Budget], now: Callable[[], float]) -> None:
        self._a = assignment
        self._budgets = budgets
        self._now = now
        slot = assignment.slot
        self._events = EventLog(assignment.run_dir.events, host=slot.host, slot=slot.local_rank)
        self._selector = selectors.DefaultSelector()
        self._log: BinaryIO | None = None
        self._worker: WorkerProcess | None = None
        self._said: dict[type[Message], Message] = {}
        self._entry = "launched" if slot.env else "alone"
        self._generation = 0
        self._stop_signal: int | None = None

    def run(self) -> int:
        """Look after the slot; return the exit code for the launcher."""
        self._catch_signals()
        name = f"worker-{self._a.slot.host}-{self._a.slot.local_rank}.log"
        self._log = (self._a.run_dir.logs / name).open("ab", buffering=0)
        self._events.emit(AgentStarted(self._a.slot.launcher))
        self._start_worker()
        code: int | None = None
        while code is None:
            for key, _ in self._selector.select(TICK_S):
                code = key.data() if code is None else code
        self._close()
        return code

    def _start_worker(self) -> None:
        a, slot = self._a, self._a.slot
        self._said = {}
        env = a.env | {"ELASTIC_LOCAL_WORKERS": str(slot.local_size)}
        worker = spawn(env)
        self._worker = worker
        worker.send(Prepare(str(a.job), a.config, str(a.run_dir.path), standby=False))
        worker.send(Go(slot.env, self._entry, slot.host, slot.local_rank, self._generation))
        for pipe, out in worker.outputs():
            os.set_blocking(pipe.fileno(), False)
            self._watch(pipe, functools.partial(self._pump, worker, pipe, out))
        self._watch(worker.channel.sock, lambda: self._listen(worker))
        self._watch(worker.pidfd, lambda: self._on_death(worker))
        self._events.emit(WorkerStarted(worker.pid, self._entry, worker.source))

    def _watch(self, file: Any, action: Callable[[], int | None]) -> None:
        self._selector.register(file, selectors.EVENT_READ, action)

    def _unwatch(self, file: Any) -> None:
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(file)

    def _pump(self, worker: WorkerProcess, pipe: BinaryIO, out: BinaryIO) -> None:
        try:
            data = os.read(pipe.fileno(), 1 << 16)
        except BlockingIOError:
            return
        if not data:
            self._unwatch(pipe)
            return
        worker.tail.extend(data.decode("utf-8", "replace").splitlines())
        for file in (self._log, out):
            try:
                assert file is not None
                file.write(data)
                file.flush()
            except (OSError, ValueError):
                pass  # a full disk or a closed terminal must not stop training

    def _listen(self, worker: WorkerProcess) -> None:
        messages = worker.channel.receive()
        if messages is None:
            self._unwatch(worker.channel.sock)
            return
        for message in messages:
            self._said[type(message)] = message
            if isinstance(message, Entering):
                self._entry = "rejoin" if self._a.slot.env else "alone"
                self._said.pop(Entered, None)
            elif isinstance(message, Entered):
                self._said.pop(Entering, None)
                self._generation = message.generation
                self._events.rank, self._events.generation = message.rank, message.generation
            elif isinstance(message, Ready) and self._stop_signal is not None:
                worker.send(Drain("the agent was told to stop"))

    def _on_death(self, worker: WorkerProcess) -> int | None:
        noticed = self._now()
        self._listen(worker)
        for pipe, out in worker.outputs():
            self._pump(worker, pipe, out)
            self._unwatch(pipe)
        self._unwatch(worker.channel.sock)
        self._unwatch(worker.pidfd)
        end = self._facts(worker, worker.reap())
        cause = cause_of(end)
        budget = self._budgets.get(cause, Budget(0, 0.0)).after(noticed)
        self._budgets[cause] = budget
        decision = after_exit(end, budget, self._stop_signal)
        self._record(worker, end, cause)
        if isinstance(decision, EndSlot):
            if decision.alarm:
                self._events.emit(SlotGaveUp(decision.reason))
                self._say(decision.reason)
            return decision.code
        self._start_worker()
        return None

    def _facts(self, worker: WorkerProcess, code: int) -> WorkerExit:
        failed, left = self._said.get(Failed), self._said.get(Left)
        return WorkerExit(
            code=code,
            finished=Finished in self._said,
            left=left is not None,
            whole_job=isinstance(left, Left) and left.whole_job,
            config=isinstance(failed, Failed) and failed.config,
            failed=failed is not None,
            removed=any(REMOVED_TEXT in line for line in worker.tail),
            entering=Entering in self._said,
            failure=failed.summary if isinstance(failed, Failed) else "",
        )

    def _record(self, worker: WorkerProcess, end: WorkerExit, cause: Cause) -> None:
        failed = self._said.get(Failed)
        if isinstance(failed, Failed):
            self._events.emit(WorkerFailed(failed.summary, failed.traceback, failed.step))
            print(failed.traceback, file=sys.stderr, flush=True)
        elif cause in (Cause.GOAL, Cause.LEFT, Cause.REMOVED):
            self._events.emit(WorkerLeft(worker.pid, cause.value))
        else:
            self._events.emit(
                WorkerLost(worker.pid, cause.value, words_for(end), root_cause=cause is not Cause.REENTRY)
            )

    def _catch_signals(self) -> None:
        read, write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(write)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: None)
        self._watch(read, lambda: self._on_signals(os.read(read, 64)))

    def _on_signals(self, numbers: bytes) -> int | None:
        for number in numbers:
            if number not in (signal.SIGTERM, signal.SIGINT) or self._worker is None:
                continue
            if self._stop_signal is not None:
                self._worker.kill()
            self._stop_signal = number
            self._worker.send(Drain("told to stop"))
        return None

    def _say(self, line: str) -> None:
        slot = self._a.slot
        print(f"elastic: slot {slot.host}[{slot.local_rank}] ends: {line}", file=sys.stderr, flush=True)

    def _close(self) -> None:
        self._selector.close()
        if self._log is not None:
            self._log.close()


def default_budgets() -> dict[Cause, Budget]:
    """Return how often a slot is started again, by cause."""
    return {Cause.CRASH: Budget(5, 60.0), Cause.HANG: Budget(3, 300.0), Cause.REENTRY: Budget(10, 60.0)}


def start(assignment: Assignment) -> int:
    """Run an agent on the real clock."""
    return Agent(assignment, default_budgets(), time.monotonic).run()
