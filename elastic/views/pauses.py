"""When training stood still, why, and what each part of the wait was for: a pure fold over a run's records.

A pause ends when a world has done its first step. It begins with the last step before, as those
have measured it who were there; where nobody survived, with the last fact of progress; at first,
with the run. Between the two lie, in this order and without gaps,

    detect       until a loss is noted
    idle         until the last worker of the next world is up and asks to enter
    rendezvous   until all have met and Horovod is initialised
    sync         until all hold the same state
    first step   until that step is done everywhere

Edges are what the facts say, each no earlier than the one before, so the phases always add up to the
pause. Clocks of several hosts are taken to agree; what they do not agree in shifts time between neighbours.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

from elastic.events import Record
from elastic.views.worlds import ENDS, PROGRESS, by_world, end_of, first_steps, members, within


class Phase(StrEnum):
    """What time was spent on; see `goodput` for what is no part of a pause."""

    USEFUL = "useful"
    REDONE = "redone"
    DETECT = "detect"
    RENDEZVOUS = "rendezvous"
    SYNC = "sync"
    FIRST_STEP = "first step"
    CHECKPOINT = "checkpoint"
    IDLE = "idle"
    OFF = "off"


IN_A_PAUSE = (Phase.DETECT, Phase.IDLE, Phase.RENDEZVOUS, Phase.SYNC, Phase.FIRST_STEP)
SKEW_S = 0.5  # hosts' clocks may differ by so much without a loss being taken for another pause's


@dataclass(frozen=True, slots=True)
class Pause:
    """A time without training.

    Attributes:
        edges: seconds since 1970, where the phases of `IN_A_PAUSE` begin and the last one ends.
        world: the first facts of the world that ended it; empty while it lasts.
        causes: what brought it about: workers lost or leaving, hosts changed, a start; in the order of time.
        step: where training went on.
        redone: steps that had been done before, beyond that one.
    """

    edges: tuple[float, ...]
    world: tuple[Record, ...]
    causes: tuple[Record, ...]
    step: int
    redone: int

    @property
    def begin(self) -> float:
        return self.edges[0]

    @property
    def end(self) -> float:
        return self.edges[-1]

    @property
    def took_s(self) -> float:
        return self.end - self.begin

    @property
    def generation(self) -> int:
        """The number of the world that ended it, 0 while it lasts."""
        return self.world[0].generation if self.world else 0

    def phases(self) -> Iterator[tuple[Phase, float, float]]:
        """Yield each phase with its begin and its end."""
        for phase, (begin, end) in zip(IN_A_PAUSE, pairwise(self.edges), strict=True):
            yield phase, begin, end


LOST = frozenset({"WorkerLost", "WorkerFailed"})
_CAUSES = LOST | {"WorkerLeft", "HostsChanged", "JobStarted", "SlotGaveUp", "CollectiveFailed"}
_BREAKS = LOST | {"WorldFormed", "CollectiveFailed", "JobStarted"}


def pauses(records: Sequence[Record]) -> tuple[Pause, ...]:
    """Return every pause of a run, in order; the last may still last.

    Args:
        records: of a run, in the order of their time.
    """
    return tuple(_pauses(records)) if records else ()


def _pauses(records: Sequence[Record]) -> Iterator[Pause]:
    resumed = records[0].time  # the end of the last pause
    progress: float | None = None  # the last fact of progress
    reached = 0
    for number, part in enumerate(by_world(records)):
        firsts = first_steps(part) if number > 0 else []
        if firsts:
            pause = _closed(records, part, firsts, resumed, progress, reached)
            yield pause
            resumed = progress = pause.end
        if progress is not None:  # training has begun
            progress = max((progress, *(r.time for r in part if r.event in PROGRESS)))
        reached = max((reached, *(int(r.get("step", 0)) for r in part if r.event in PROGRESS | {"CollectiveFailed"})))
    last = _open(records, progress)
    if last is not None:
        yield last


def _closed(
    records: Sequence[Record],
    part: Sequence[Record],
    firsts: Sequence[Record],
    resumed: float,
    progress: float | None,
    reached: int,
) -> Pause:
    end = max(resumed, *(r.time for r in firsts))
    floor = resumed if progress is None else max(resumed, progress)
    stood = [r.time - float(r.get("pause_s")) for r in firsts if float(r.get("pause_s")) > 0.0]
    begin = min(max(min(stood, default=floor), floor), end) if progress is not None else floor
    since = within(records, begin if progress is None else max(resumed, begin - SKEW_S), end)
    met = members(part)
    up = max((r.time - sum(r.get("phases_s", {}).values()) for r in met), default=begin)
    syncing = max((r.time - float(r.get("phases_s", {}).get("sync", 0.0)) for r in met), default=up)
    synced = max((r.time for r in met), default=syncing)
    step = int(part[0].get("step", 0))
    return Pause(
        edges=_edges(begin, _detected(since, begin) if progress is not None else begin, up, syncing, synced, end),
        world=tuple(met),
        causes=tuple(r for r in since if r.event in _CAUSES),
        step=step,
        redone=max(0, reached - step),
    )


def _open(records: Sequence[Record], progress: float | None) -> Pause | None:
    """Return the pause that a run ends with, or that lasts; None while it trains or when it has reached its goal."""
    end, last = end_of(records), records[-1].time
    if progress is None:
        begin, since = records[0].time, records
    else:
        begin, since = progress, within(records, progress, last)
        broken = any(r.event in _BREAKS and r.event not in ENDS for r in since)
        if not broken and (end is None or end.event == "JobFinished"):
            return None
    if end is not None:
        last = max(begin, end.time)
    detected = _detected(since, begin) if progress is not None else begin
    causes = tuple(r for r in since if r.event in _CAUSES)
    return Pause(_edges(begin, detected, last, last, last, last), (), causes, 0, 0)


def _detected(since: Sequence[Record], begin: float) -> float:
    for signs in (LOST, {"CollectiveFailed"}, {"SlotGaveUp", "JobStarted"}):
        found = [r.time for r in since if r.event in signs and r.get("root_cause", True)]
        if found:
            return max(begin, found[0])
    return begin


def _edges(*times: float) -> tuple[float, ...]:
    """Return the times, each no earlier than the one before and none later than the last."""
    found: list[float] = []
    for time in times:
        found.append(min(times[-1], max(time, found[-1])) if found else min(time, times[-1]))
    return tuple(found)
