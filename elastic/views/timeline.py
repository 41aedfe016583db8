"""Who worked where and when: the life of each worker, by slot, as a pure fold over a run's records."""

from collections.abc import Sequence
from dataclasses import dataclass

from elastic.events import Record
from elastic.views.worlds import last_moment

_ENDS = frozenset({"WorkerLost", "WorkerLeft", "WorkerFailed"})


@dataclass(frozen=True, slots=True)
class Bar:
    """A part of a worker's life, from `begin` to `end` in seconds since 1970.

    Attributes:
        generation: the world it was part of; 0 while it came up.
        rank: in that world; -1 while it came up.
    """

    begin: float
    end: float
    pid: int
    generation: int
    rank: int
    source: str


@dataclass(frozen=True, slots=True)
class Mark:
    """A worker's end that was not meant to be."""

    time: float
    words: str


@dataclass(frozen=True, slots=True)
class Lane:
    """A slot."""

    host: str
    slot: int
    bars: tuple[Bar, ...]
    marks: tuple[Mark, ...]


def lanes(records: Sequence[Record]) -> tuple[Lane, ...]:
    """Return the slots of a run by host and number, each with its workers in the order of time.

    Args:
        records: of a run, in the order of their time.
    """
    if not records:
        return ()
    last = last_moment(records)
    slots = sorted({(r.host, r.slot) for r in records if r.event == "WorkerStarted"})
    return tuple(
        _lane(host, slot, [r for r in records if (r.host, r.slot) == (host, slot)], last) for host, slot in slots
    )


def _lane(host: str, slot: int, records: Sequence[Record], last: float) -> Lane:
    bars: list[Bar] = []
    marks: list[Mark] = []
    now: Bar | None = None

    def close(time: float) -> None:
        nonlocal now
        time = min(time, last)
        if now is not None and time > now.begin:
            bars.append(Bar(now.begin, time, now.pid, now.generation, now.rank, now.source))
        now = None

    for r in records:
        if r.event == "WorkerStarted":
            close(r.time)
            now = Bar(r.time, last, int(r.get("worker_pid")), 0, -1, str(r.get("source")))
        elif r.event == "WorldFormed" and now is not None and r.pid == now.pid:
            source = now.source
            close(r.time)
            now = Bar(r.time, last, r.pid, r.generation, r.rank, source)
        elif r.event in _ENDS:
            close(r.time)
            if r.event != "WorkerLeft":
                marks.append(Mark(r.time, str(r.get("summary"))))
    close(last)
    return Lane(host, slot, tuple(bars), tuple(marks))
