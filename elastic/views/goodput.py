"""Where a run's time went: a pure fold over its records that gives each moment to one phase.

    useful       steps that bring training further than it ever was, with what lies between steps:
                 callbacks, validation
    redone       steps that had been done before, until training is again where it was
    detect, idle, rendezvous, sync, first step    pauses, see `pauses`
    checkpoint   training stood still for one to be taken
    off          between an end of the job and its next start; no part of the run's time

Goodput is useful / (all but off): never above 1, as every moment counts once. A moment of the running
world is useful as long as nothing says otherwise, so that of a run that goes on may still go down a little.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, islice

from elastic.events import Record
from elastic.views.pauses import Pause, Phase, pauses
from elastic.views.worlds import ENDS, REACHED, last_moment, within


@dataclass(frozen=True, slots=True)
class Stretch:
    """Time from `begin` to `end`, seconds since 1970, that went into one phase."""

    phase: Phase
    begin: float
    end: float

    @property
    def took_s(self) -> float:
        return self.end - self.begin


def stretches(records: Sequence[Record]) -> tuple[Stretch, ...]:
    """Return what a run's time went into, from its first fact to its end (or the last fact), without gaps.

    Args:
        records: of a run, in the order of their time.
    """
    if not records:
        return ()
    found = [s for s in _all(records, pauses(records), last_moment(records)) if s.took_s > 0.0]
    return tuple(found)


def seconds(found: Sequence[Stretch]) -> dict[Phase, float]:
    """Return the seconds of every phase."""
    total = dict.fromkeys(Phase, 0.0)
    for stretch in found:
        total[stretch.phase] += stretch.took_s
    return total


def goodput(total: Mapping[Phase, float]) -> float:
    """Return the share of a run's time in which training went forward, from 0 to 1."""
    spent = sum(took for phase, took in total.items() if phase is not Phase.OFF)
    return min(1.0, total[Phase.USEFUL] / spent) if spent > 0.0 else 0.0


def _all(records: Sequence[Record], waits: Sequence[Pause], last: float) -> Iterator[Stretch]:
    offs, saves = _Parts.of(_offs(records)), _Parts.of(_saves(records))
    reached = 0
    for number, pause in enumerate(waits):
        for phase, begin, end in pause.phases():
            yield from _with(Phase.OFF, offs, Stretch(phase, min(begin, last), min(end, last)))
        if not pause.world:
            continue
        until = min(last, waits[number + 1].begin if number + 1 < len(waits) else last)
        told = within(records, pause.end, until)
        points = [(r.time, int(r.get("step", 0))) for r in told if r.event in REACHED]
        again = _reached_at(points, pause, reached, until)
        reached = max((reached, *(step for _, step in points)))
        yield from _with(Phase.CHECKPOINT, saves, Stretch(Phase.REDONE, pause.end, again))
        yield from _with(Phase.CHECKPOINT, saves, Stretch(Phase.USEFUL, again, until))


def _reached_at(points: Sequence[tuple[float, int]], pause: Pause, goal: int, until: float) -> float:
    """Return when training is at step `goal` again after a pause; between two facts steps are taken to be even."""
    time, step = pause.end, pause.step + 1  # the first step is part of the pause
    if step > goal:
        return time
    for next_time, next_step in points:
        if next_step >= goal:
            return time + (next_time - time) * (goal - step) / max(1, next_step - step)
        if next_step > step:
            time, step = next_time, next_step
    return until


@dataclass(frozen=True, slots=True)
class _Parts:
    """Times from a begin to an end, by their begin; `ended` is the latest end so far, so that it only grows."""

    times: list[tuple[float, float]]
    ended: list[float]

    @classmethod
    def of(cls, found: Iterable[tuple[float, float]]) -> "_Parts":
        times = sorted(found)
        return cls(times, list(accumulate((end for _, end in times), max)))


def _with(phase: Phase, inside: _Parts, stretch: Stretch) -> Iterator[Stretch]:
    """Yield a stretch, the parts of it that lie `inside` given to another phase."""
    at = stretch.begin
    for begin, end in islice(inside.times, bisect_right(inside.ended, at), None):
        if begin >= stretch.end:
            break
        if end <= at:
            continue
        begin, end = max(at, begin), min(stretch.end, end)  # noqa: PLW2901 - cut to the stretch
        yield Stretch(stretch.phase, at, begin)
        yield Stretch(phase, begin, end)
        at = end
    if at < stretch.end:
        yield Stretch(stretch.phase, at, stretch.end)


def _saves(records: Sequence[Record]) -> Iterator[tuple[float, float]]:
    """Yield when training stood still for checkpoints: the first `blocked_s` of the `took_s` before the fact."""
    for r in records:
        if r.event == "CheckpointWritten" and float(r.get("blocked_s", 0.0)) > 0.0:
            began = r.time - float(r.get("took_s", 0.0))
            yield began, began + float(r.get("blocked_s"))


def _offs(records: Sequence[Record]) -> Iterator[tuple[float, float]]:
    """Yield when nobody ran the job: from an end until the next start."""
    ended: float | None = None
    for r in records:
        if r.event in ENDS:
            ended = r.time
        elif r.event in {"JobStarted", "AgentStarted"} and ended is not None:
            yield ended, r.time
            ended = None
