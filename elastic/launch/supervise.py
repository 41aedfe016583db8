"""What `elastic run` does when its launcher has ended or stands still: pure decisions."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from elastic.errors import ExitCode
from elastic.events import Record


@dataclass(frozen=True, slots=True)
class Done:
    """The goal is reached."""


@dataclass(frozen=True, slots=True)
class GiveUp:
    """The job has failed; `reason` is the first root cause, `code` what the shell is told."""

    reason: str
    traceback: str = ""
    source: str = ""
    code: int = ExitCode.FAILED


@dataclass(frozen=True, slots=True)
class StartAgain:
    """Start the launcher once more, from the newest checkpoint, after `delay_s`."""

    reason: str
    delay_s: float


@dataclass(frozen=True, slots=True)
class Ended:
    """How a launcher ended.

    Attributes:
        records: the facts of this start, in order.
        code: its exit code.
        last_words: its last line of output.
        stalled_s: for how long nothing had happened when it was ended for that, else None.
        disk_full: whether facts may be missing, as there was no room for them.
    """

    records: Sequence[Record]
    code: int
    last_words: str = ""
    stalled_s: float | None = None
    disk_full: bool = False


_STEPS = frozenset({"FirstStepDone", "Progressed", "EpochEnded", "Committed"})


@dataclass(frozen=True, slots=True)
class Starts:
    """The starts of a job's launcher so far.

    Attributes:
        again: how many there were after the first.
        in_vain: how many of these in a row have brought training no further than it had been.
        furthest: the step that it has reached.
    """

    again: int = 0
    in_vain: int = 0
    furthest: int = 0

    def ended(self, end: Ended) -> "Starts":
        """Return this with what a launcher that has ended came to."""
        reached = max((int(r.get("step")) for r in end.records if r.event in _STEPS), default=0)
        return replace(self, in_vain=0, furthest=reached) if reached > self.furthest else self

    def another(self) -> "Starts":
        """Return this with one more start."""
        return replace(self, again=self.again + 1, in_vain=self.in_vain + 1)


def after_launcher(end: Ended, restarts: int, most_restarts: int, backoff_s: float) -> Done | GiveUp | StartAgain:
    """Choose what follows the end of a launcher that nobody asked to stop.

    A bug of the job (the same error twice on the first step, a wrong configuration) is not tried
    again; anything else is, from the newest checkpoint, while restarts are left.

    Args:
        end: how it ended.
        restarts: that were in vain (see `Starts`).
        most_restarts: how many of these there may be.
        backoff_s: what the first waits; each further one waits twice as long.
    """
    told = any(r.event == "JobFinished" for r in end.records)
    if told or (end.disk_full and end.code == ExitCode.GOAL_REACHED and end.stalled_s is None):
        return Done()
    cause = root_cause(end)
    if any(r.event == "SlotGaveUp" and r.get("bug") for r in end.records) or restarts >= most_restarts:
        return cause
    return StartAgain(cause.reason, backoff_s * 2**restarts)


def root_cause(end: Ended) -> GiveUp:
    """Return the first thing that went wrong, not what it did to others."""
    if end.stalled_s is not None:
        return GiveUp(f"nothing happened for {end.stalled_s:.0f} s")
    gave_up = next((r for r in end.records if r.event == "SlotGaveUp"), None)
    failed = next((r for r in end.records if r.event == "WorkerFailed"), None)
    if gave_up is not None:
        where = f"{gave_up.host}[{gave_up.slot}]"
        if gave_up.get("code") == ExitCode.CONFIG:
            return GiveUp(gave_up.get("reason"), code=ExitCode.CONFIG)
        if failed is not None:
            source = f"worker {failed.host}[{failed.slot}], rank {failed.rank}"
            return GiveUp(f"slot {where} given up: {gave_up.get('reason')}", failed.get("traceback"), source)
        return GiveUp(f"slot {where} given up: {gave_up.get('reason')}")
    return GiveUp(f"the launcher ended with code {end.code}: {end.last_words or 'it printed nothing'}")
