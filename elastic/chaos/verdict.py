"""Did the job live through it? The verdict on each fault of a plan, from the facts of a run alone. Pure."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from elastic.chaos.kinds import Kind
from elastic.chaos.plan import WORKERS, Planned
from elastic.chaos.scene import Scene, after
from elastic.chaos.trial import Recovery, Trial
from elastic.deeds import EXIT_CODE, MESSAGE
from elastic.events import Record


class Outcome(StrEnum):
    """What became of a fault."""

    SURVIVED = "survived"
    NOT_SURVIVED = "not survived"
    SKIPPED = "skipped"
    NOT_REACHED = "not reached"


@dataclass(frozen=True, slots=True)
class Verdict:
    """On one fault.

    Attributes:
        at_step: what training had reached when it was injected; None when it was not.
        reason: why it was not survived, not injected, or why not in this run.
        recovery: None when training was not disturbed, or did not recover.
        steps_lost: done again because of it.
        named: whether the facts name the root cause rightly; None where they need not.
        cause: what the facts say.
        hang: whether training stood still without end.
    """

    fault: int
    kind: str
    target: str
    outcome: Outcome
    reason: str = ""
    at_step: int | None = None
    places: tuple[str, ...] = ()
    recovery: Recovery | None = None
    steps_lost: int = 0
    named: bool | None = None
    cause: str = ""
    hang: bool = False


_ENDED = ("killed by SIGKILL", "killed by SIGABRT", "MemoryError", "ResourceExhausted", "bad_alloc")

# What the fact about a worker's end must say, as an expression over "EVENT cause: summary".
_SAYS: dict[Kind, str] = {
    Kind.KILL: r"WorkerLost crash: killed by SIGKILL",
    Kind.TERM: r"WorkerLeft preempted",
    Kind.STOP: r"WorkerLost hang: no heartbeat",
    Kind.RAISE: rf"WorkerFailed .*{re.escape(MESSAGE)}",
    Kind.SEGFAULT: r"WorkerLost crash: killed by SIGSEGV",
    Kind.ABORT: r"WorkerLost crash: killed by SIGABRT",
    Kind.EXIT: rf"WorkerLost crash: exit code {EXIT_CODE}",
    Kind.HOLD_GIL: r"WorkerLost hang: no heartbeat",
    Kind.SPIN: r"WorkerLost hang: no progress",
    Kind.OOM: r"WorkerLost crash: killed by SIGKILL",
    Kind.STDOUT_CHILD: r"WorkerLost crash: killed by SIGKILL",
    Kind.MEMORY: rf"Worker(Lost|Failed) .*({'|'.join(_ENDED)})",
}


def judge(planned: Sequence[Planned], records: Sequence[Record], until: float) -> tuple[Verdict, ...]:
    """Return the verdict on each fault of a schedule.

    Args:
        planned: the schedule.
        records: all facts of the run, in the order in which they were written.
        until: when the run was no longer watched, seconds since 1970.
    """
    trials, skipped = follow(planned, records)
    return tuple(
        _verdict(trials[p.number], tuple(trials.values()), until)
        if p.number in trials
        else _not_injected(p, skipped.get(p.number))
        for p in planned
    )


def follow(planned: Sequence[Planned], records: Sequence[Record]) -> tuple[dict[int, Trial], dict[int, str]]:
    """Return the trials of the faults that were injected, and why others were skipped, by their numbers."""
    by_number = {p.number: p for p in planned}
    trials: dict[int, Trial] = {}
    skipped: dict[int, str] = {}
    scene = Scene()
    for record in records:
        if record.event == "FaultInjected":
            number = int(record.get("fault"))
            trials[number] = Trial(by_number[number], record, scene)
        elif record.event == "FaultSkipped":
            skipped[int(record.get("fault"))] = str(record.get("reason"))
        scene = after(scene, record)
        for trial in trials.values():
            trial.take(record, scene)
    return trials, skipped


def _not_injected(planned: Planned, reason: str | None) -> Verdict:
    if reason is not None:
        return Verdict(planned.number, planned.kind, planned.target, Outcome.SKIPPED, reason)
    return Verdict(planned.number, planned.kind, planned.target, Outcome.NOT_REACHED, "the run ended before")


def _verdict(trial: Trial, all_: Sequence[Trial], until: float) -> Verdict:
    planned, waited = trial.planned, until - trial.since
    outcome, reason, hang = Outcome.SURVIVED, "", False
    if not trial.over:
        outcome = Outcome.NOT_SURVIVED
        if trial.failure:
            reason = trial.failure
        elif waited >= planned.settle_s:
            reason, hang = f"{trial.injected.get('slots')} workers do not train {waited:.0f} s later", True
        else:
            outcome, reason = Outcome.NOT_REACHED, "the run ended before the job could recover"
    if trial.damage_loaded:
        outcome, reason = Outcome.NOT_SURVIVED, f"the damaged checkpoint {trial.injected.get('target')} was loaded"
    named, cause = _naming(trial, all_) if trial.over else (None, "")
    return Verdict(
        fault=planned.number,
        kind=planned.kind,
        target=planned.target,
        outcome=outcome,
        reason=reason,
        at_step=int(trial.injected.get("at_step")),
        places=tuple(trial.injected.get("places")),
        recovery=trial.recovery(),
        steps_lost=trial.steps_lost,
        named=named,
        cause=cause,
        hang=hang,
    )


def _naming(trial: Trial, all_: Sequence[Trial]) -> tuple[bool | None, str]:
    """Return whether the root cause was named rightly, and what was said.

    Whoever is called a root cause and is no fault's victim is blamed wrongly. A victim of several faults
    ends of one of them.
    """
    victims = {place for t in all_ for place in t.injected.get("places")}
    blamed = [f"{where} {words}" for where, words in trial.said if "[" in where and where not in victims]
    if blamed:
        return False, blamed[0]
    if rejected := [words for where, words in trial.said if where == trial.injected.get("target")]:
        return True, rejected[0]
    planned, mine = trial.planned, set(trial.injected.get("places"))
    if planned.target in {"standby", "driver"}:
        found = [words for where, words in trial.said if where == planned.target]
        return (bool(found) if planned.kind is Kind.KILL else None), (found or [""])[0]
    said = [words for where, words in trial.said if where in mine]
    if not WORKERS.fullmatch(planned.target) or planned.kind not in _SAYS or not (trial.fatal or said):
        return None, (said or [""])[0]
    shared = [t.planned.kind for t in all_ if mine & set(t.injected.get("places")) and _at_once(t, trial)]
    fitting = [words for words in said if any(re.search(_SAYS[kind], words) for kind in shared if kind in _SAYS)]
    return bool(fitting), (fitting or said or ["nothing"])[0]


def _at_once(one: Trial, other: Trial) -> bool:
    """Tell whether a fault was injected while another was not over."""
    first, second = sorted((one, other), key=lambda t: t.injected.time)
    return first.recovered_at is None or second.injected.time <= first.recovered_at
