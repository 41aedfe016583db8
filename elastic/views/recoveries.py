"""What each interruption was and how it went: the pauses of a run in plain words."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from elastic.events import Record
from elastic.views.pauses import LOST, Pause, pauses
from elastic.views.words import workers


@dataclass(frozen=True, slots=True)
class Recovery:
    """A pause after training had begun.

    Attributes:
        begin, end: seconds since 1970; `end` is the last fact while it lasts.
        over: whether training goes on.
        cause: "crash", "hang", "user code", ... (see `agent.policy.Cause`), "peer gone", "hosts changed", "start".
        words: what happened, in a sentence without its end.
        generation: of the world that training went on in, 0 while it lasts.
        size_before, size_after: workers.
        phases_s: in order; they add up to `end - begin`.
        redone: steps that must be done again.
    """

    begin: float
    end: float
    over: bool
    cause: str
    words: str
    generation: int
    size_before: int
    size_after: int
    phases_s: dict[str, float]
    redone: int

    @property
    def took_s(self) -> float:
        return self.end - self.begin


def recoveries(records: Sequence[Record]) -> tuple[Recovery, ...]:
    """Return the interruptions of a run, in order; the start is none, nor is the end.

    Args:
        records: of a run, in the order of their time.
    """
    return tuple(_recoveries(records))


def _recoveries(records: Sequence[Record]) -> Iterator[Recovery]:
    before: tuple[Record, ...] = ()
    sources = {int(r.get("worker_pid", 0)): str(r.get("source")) for r in records if r.event == "WorkerStarted"}
    for pause in pauses(records):
        causes = [c for c in pause.causes if c.event != "JobStarted" or c.get("restarts") or before]
        if before and (pause.world or any(c.event in LOST | {"CollectiveFailed"} for c in causes)):
            after = len(pause.world)
            phases: dict[str, float] = {}
            for phase, begin, end in pause.phases():
                phases[phase.value] = round(end - begin, 6)
            yield Recovery(
                begin=pause.begin,
                end=pause.end,
                over=bool(pause.world),
                cause=_cause(causes),
                words=_words(pause, causes, before, sources),
                generation=pause.generation,
                size_before=_size(before),
                size_after=_size(pause.world) if after else 0,
                phases_s=phases,
                redone=pause.redone,
            )
        before = pause.world or before


def _size(world: Sequence[Record]) -> int:
    return int(world[0].get("size", len(world)))


def _lost(causes: Sequence[Record]) -> list[Record]:
    return [c for c in causes if c.event in LOST and c.get("root_cause", True)]


def _cause(causes: Sequence[Record]) -> str:
    lost = _lost(causes)
    if lost:
        return str(lost[0].get("cause", "user code"))
    if any(c.event == "JobStarted" for c in causes):
        return "start"
    return "peer gone" if any(c.event == "CollectiveFailed" for c in causes) else "hosts changed"


def _words(pause: Pause, causes: Sequence[Record], before: Sequence[Record], sources: Mapping[int, str]) -> str:
    lost = _lost(causes)
    took = f"{pause.took_s:.2f} s"
    if not lost:
        what = _without_loss(_cause(causes), pause, before)
        outcome = f"training went on after {took}" if pause.world else "not over yet"
    else:
        fates = [_fate(r) for r in lost]
        times = {fate: fates.count(fate) for fate in fates}
        what = " and ".join(fate if n == 1 else f"{fate} ({n} times)" for fate, n in times.items())
        outcome = _outcome(lost, pause, sources, took)
    redone = f"; {pause.redone} step{'' if pause.redone == 1 else 's'} done again" if pause.world else ""
    return f"{what}; {outcome}{redone}"


def _fate(lost: Record) -> str:
    who = f"rank {lost.rank} on {lost.host}" if lost.rank >= 0 else f"the worker of {lost.host}[{lost.slot}]"
    summary = str(lost.get("summary"))
    if lost.event == "WorkerFailed":
        return f"{who} failed ({summary})"
    if lost.get("cause") == "hang":
        return f"{who} hung ({summary})"
    return f"{who} was {summary}" if summary.startswith("killed") else f"{who} was lost ({summary})"


def _without_loss(cause: str, pause: Pause, before: Sequence[Record]) -> str:
    if cause == "start":
        return "the launcher was started again"
    old, new = _size(before), _size(pause.world) if pause.world else 0
    if cause == "peer gone":
        return f"{workers(max(1, old - new))} went silent" if new < old or not pause.world else "a worker went silent"
    if new == old:
        return f"hosts changed: {workers(new)} as before"
    return f"hosts changed: {workers(abs(new - old))} {'joined' if new > old else 'left'}"


def _outcome(lost: Sequence[Record], pause: Pause, sources: Mapping[int, str], took: str) -> str:
    if not pause.world:
        return "not over yet"
    slots = {(r.host, r.slot) for r in lost}
    back = slots & {(r.host, r.slot) for r in pause.world}
    if not back:
        return f"{workers(_size(pause.world))} went on after {took}"
    pids = {r.pid for r in pause.world if (r.host, r.slot) in back}
    standby = all(sources.get(pid) == "standby" for pid in pids)
    return f"replaced {'from standby' if standby else 'by a new process'} in {took}"
