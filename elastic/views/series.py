"""What can be drawn against time or samples: pure folds over a run's records."""

import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence

from elastic.events import Record
from elastic.views.goodput import Stretch, seconds
from elastic.views.pauses import Pause

Points = list[tuple[float, float]]


def throughput(records: Sequence[Record], waits: Sequence[Pause]) -> Points:
    """Return samples per second against seconds since 1970; nothing while training stands still."""
    told = [(r.time, float(r.get("samples_per_s", 0.0))) for r in records if r.event == "Progressed"]
    points: Points = []
    at = 0
    for pause in waits:
        until = bisect_right(told, pause.begin, lo=at, key=lambda p: p[0])
        points += [*told[at:until], (pause.begin, 0.0), (pause.end, 0.0)]
        at = bisect_right(told, pause.end, lo=until, key=lambda p: p[0])
    return points + told[at:]


def world_size(waits: Sequence[Pause], last: float) -> Points:
    """Return the number of workers that train against seconds since 1970, as the corners of steps."""
    points: Points = []
    for pause in waits:
        size = float(pause.world[0].get("size", 0)) if pause.world else 0.0
        before = points[-1][1] if points else 0.0
        points += [(pause.begin, before), (pause.begin, 0.0), (pause.end, 0.0), (pause.end, size)]
    return [*points, (last, points[-1][1])] if points else []


def metrics(records: Sequence[Record]) -> dict[str, Points]:
    """Return each metric at the end of each epoch against samples; steps done again replace what they were."""
    found: dict[str, Points] = {}
    for r in records:
        if r.event == "EpochEnded":
            _put(found, r)
    return {name: points for name, points in found.items() if points}


def running_metrics(records: Sequence[Record]) -> dict[str, Points]:
    """Return each metric of rank 0's epoch in progress against samples."""
    found: dict[str, Points] = {}
    for r in records:
        if r.event == "Progressed":
            _put(found, r)
    return {name: points for name, points in found.items() if points}


def _put(found: dict[str, Points], record: Record) -> None:
    """Add a fact's metrics; a loss that is no number (a diverged model) leaves a gap."""
    samples = float(record.get("samples", 0))
    for name, value in record.get("metrics", {}).items():
        points = found.setdefault(name, [])
        while points and points[-1][0] >= samples:
            points.pop()
        if math.isfinite(value):
            points.append((samples, float(value)))


def families(names: Iterable[str]) -> list[tuple[str, tuple[str, ...]]]:
    """Return the metrics to be drawn together, `loss` with `val_loss`, in the order given."""
    found: dict[str, list[str]] = {}
    for name in names:
        found.setdefault(name.removeprefix("val_"), []).append(name)
    return [(name, tuple(members)) for name, members in found.items()]


def coarse(spent: Sequence[Stretch], least_s: float) -> list[Stretch]:
    """Return stretches of at least `least_s` (but for the last): shorter ones are drawn as the longest of their kind.

    The time they cover stays the same, without gaps.
    """
    found: list[Stretch] = []
    group: list[Stretch] = []
    for stretch in spent:
        group.append(stretch)
        if group[-1].end - group[0].begin >= least_s or stretch is spent[-1]:
            total = seconds(group)
            found.append(Stretch(max(total, key=lambda phase: total[phase]), group[0].begin, group[-1].end))
            group = []
    return found


def fewer(points: Points, most: int) -> Points:
    """Return at most about `most` points that look the same when drawn: the extremes of equal runs of points."""
    if len(points) <= most:
        return points
    size = -(-len(points) // (most // 2))
    kept: Points = []
    for i in range(0, len(points), size):
        part = points[i : i + size]
        kept += sorted({min(part, key=lambda p: p[1]), max(part, key=lambda p: p[1])})
    return [points[0], *kept, points[-1]]
