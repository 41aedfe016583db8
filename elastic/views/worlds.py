"""The worlds of a run: its records split where a world forms, and how far training came in each."""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

from elastic.events import Record

# Facts whose `step` says how far training has come, and those that also show that it went on.
REACHED = frozenset({"FirstStepDone", "Progressed", "EpochEnded", "Committed", "JobFinished", "CollectiveFailed"})
PROGRESS = REACHED - {"CollectiveFailed"}
ENDS = {"JobFinished": "finished", "JobFailed": "failed", "JobStopped": "stopped"}
_GOING_BACK = frozenset({"WorldFormed", "CheckpointLoaded"})  # their step is where training goes on, not what it did


def within(records: Sequence[Record], begin: float, end: float) -> Sequence[Record]:
    """Return the records, which are in the order of time, from `begin` to `end`, both included."""
    low = bisect_left(records, begin, key=lambda r: r.time)
    return records[low : bisect_right(records, end, lo=low, key=lambda r: r.time)]


def by_world(records: Sequence[Record]) -> list[list[Record]]:
    """Split the records where a world forms; the first part comes before any.

    Each member records its world. When all workers were lost, the new ones may number their worlds from
    1 again; a rank that seems to form the same world twice shows that.
    """
    parts: list[list[Record]] = [[]]
    members: dict[tuple[int, int], set[int]] = {}
    for record in records:
        if record.event == "WorldFormed":
            ranks = members.setdefault((record.generation, int(record.get("size"))), set())
            if not ranks or record.rank in ranks:
                ranks.clear()
                parts.append([])
            ranks.add(record.rank)
        parts[-1].append(record)
    return parts


def members(part: Sequence[Record]) -> list[Record]:
    """Return what each worker of the world that begins a part has told of it."""
    return [r for r in part if r.event == "WorldFormed" and r.generation == part[0].generation]


def first_steps(part: Sequence[Record]) -> list[Record]:
    """Return what each worker of a world has told of its first step in it."""
    return [r for r in part if r.event == "FirstStepDone" and r.generation == part[0].generation]


def steps(records: Sequence[Record]) -> tuple[int, int]:
    """Return the steps done, and those done before that a world went back behind."""
    reached = lost = 0
    for number, part in enumerate(by_world(records)):
        if number > 0:
            begins_at = int(part[0].get("step"))
            lost += max(0, reached - begins_at)
            reached = begins_at
        done = (int(r.get("step")) for r in part if "step" in r.fields and r.event not in _GOING_BACK)
        reached = max((reached, *done))
    return reached, lost


def last_moment(records: Sequence[Record]) -> float:
    """Return when the run ended, or said something last; there must be a record. Seconds since 1970."""
    return (end_of(records) or records[-1]).time


def end_of(records: Sequence[Record]) -> Record | None:
    """Return how the run ended, unless it has been started again since."""
    last = next((r for r in reversed(records) if r.event in ENDS or r.event == "JobStarted"), None)
    return last if last is not None and last.event in ENDS else None


def at_once(records: Sequence[Record]) -> list[tuple[Record, Record]]:
    """Return each two worlds that trained at the same time: there must be none.

    A world trains from the first step to the last fact of progress that its rank 0 tells of; whoever is
    rank 0 of two worlds cannot be in both. Each world is returned as rank 0's first fact of it.
    """
    spans: dict[tuple[str, int, int], list[Record]] = {}
    for record in records:
        if record.rank == 0 and record.event in PROGRESS:
            span = spans.setdefault((record.host, record.pid, record.generation), [record, record])
            span[1] = record
    ordered = sorted(spans.values(), key=lambda span: span[0].time)
    found = []
    for number, (first, last) in enumerate(ordered):
        later = (other for other, _ in ordered[number + 1 :] if other.time < last.time)
        found += [(first, other) for other in later if other.pid != first.pid or other.host != first.host]
    return found
