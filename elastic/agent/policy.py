"""What a slot does when its worker has ended: pure decisions with their reasons."""

import signal
from dataclasses import dataclass
from enum import StrEnum

from elastic.errors import ExitCode

LAUNCHER_GRACE_S = 0.5  # a launcher that ends the job signals the worker first and then this agent


class Cause(StrEnum):
    """Why a worker ended."""

    GOAL = "goal"  # training is done
    PREEMPTED = "preempted"  # told to leave by somebody other than this agent
    REMOVED = "removed"  # discovery took its slot away
    CONFIG = "config"  # the user must change the job
    USER_CODE = "user code"  # an exception in the user's code
    CRASH = "crash"  # a signal, an abort, an unexplained exit
    HANG = "hang"  # killed by the agent because it stood still
    REENTRY = "reentry"  # aborted while joining a world


@dataclass(frozen=True, slots=True)
class WorkerExit:
    """The facts about an end.

    Attributes:
        code: exit code, or minus the signal's number.
        finished, left, config, failed: what the worker said before.
        whole_job: it left with everybody.
        removed: Horovod said that the slot is gone.
        entering: it was joining a world.
        hung: the agent's verdict when it killed it.
        failure: the exception's last line, when it failed.
        same_failure: it failed on its first step, with the same traceback as the worker before it.
    """

    code: int
    finished: bool = False
    left: bool = False
    whole_job: bool = False
    config: bool = False
    failed: bool = False
    removed: bool = False
    entering: bool = False
    hung: str | None = None
    failure: str = ""
    same_failure: bool = False


def cause_of(end: WorkerExit) -> Cause:
    """Return why a worker ended; what it said itself counts most."""
    if end.finished:
        return Cause.GOAL
    if end.left:
        return Cause.PREEMPTED
    if end.config:
        return Cause.CONFIG
    if end.failed:
        return Cause.USER_CODE
    if end.hung is not None:
        return Cause.HANG
    if end.removed:
        return Cause.REMOVED
    if end.entering and end.code in (-signal.SIGABRT, 128 + signal.SIGABRT):
        return Cause.REENTRY
    return Cause.CRASH


def words_for(end: WorkerExit) -> str:
    """Return the end in plain words."""
    if end.hung is not None:
        return end.hung
    if end.failure:
        return end.failure
    if end.code < 0:
        try:
            return f"killed by {signal.Signals(-end.code).name}"
        except ValueError:
            return f"killed by signal {-end.code}"
    return f"exit code {end.code}"


@dataclass(frozen=True, slots=True)
class Budget:
    """How many ends of one kind a slot survives within a window.

    Attributes:
        limit: restarts within `window_s`; one more end spends the budget.
        ends: times of the ends so far, oldest first.
    """

    limit: int
    window_s: float
    ends: tuple[float, ...] = ()

    def after(self, now: float) -> "Budget":
        """Return the budget with one more end; those before the window are forgiven."""
        recent = tuple(t for t in self.ends if now - t < self.window_s)
        return Budget(self.limit, self.window_s, (*recent, now))

    @property
    def spent(self) -> bool:
        return len(self.ends) > self.limit


@dataclass(frozen=True, slots=True)
class Restart:
    """Start another worker in this slot, after `delay_s`."""

    reason: str
    delay_s: float = 0.0


@dataclass(frozen=True, slots=True)
class EndSlot:
    """Exit with `code`.

    Attributes:
        alarm: somebody should look at it.
        bug: another host would fail alike.
        whole_job: everybody leaves.
    """

    code: int
    reason: str
    alarm: bool
    bug: bool = False
    whole_job: bool = False


def after_exit(end: WorkerExit, budget: Budget, stop_signal: int | None) -> Restart | EndSlot:
    """Choose what a slot does when its worker has ended.

    Args:
        end: the facts.
        budget: of the end's cause, this end included.
        stop_signal: SIGTERM or SIGINT, if this agent was told to stop.
    """
    cause, words = cause_of(end), words_for(end)
    if cause is Cause.GOAL:
        return EndSlot(ExitCode.GOAL_REACHED, "the goal is reached", alarm=False)
    if stop_signal is not None:
        code = ExitCode.INTERRUPTED if stop_signal == signal.SIGINT else ExitCode.TERMINATED
        return EndSlot(code, "told to stop", alarm=False, whole_job=end.whole_job)
    if cause is Cause.REMOVED:
        return EndSlot(ExitCode.SLOT_LOST, "discovery took the slot away", alarm=False)
    if cause is Cause.CONFIG:
        return EndSlot(ExitCode.CONFIG, words, alarm=True, bug=True)
    if end.whole_job:
        return EndSlot(ExitCode.TERMINATED, "the whole job was told to stop", alarm=False, whole_job=True)
    if end.same_failure:
        return EndSlot(ExitCode.FAILED, f"the same error twice on the first step: {words}", alarm=True, bug=True)
    if budget.spent:
        reason = f"{len(budget.ends)} ends by {cause} within {budget.window_s:.0f} s, last: {words}"
        return EndSlot(ExitCode.FAILED, reason, alarm=True)
    return Restart(words, delay_s=LAUNCHER_GRACE_S if cause is Cause.PREEMPTED else 0.0)
