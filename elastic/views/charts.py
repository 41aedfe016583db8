"""The charts of a report as SVG, each a pure function of what it shows."""

from collections.abc import Mapping, Sequence

from elastic.views import svg
from elastic.views.goodput import Stretch
from elastic.views.pauses import Phase
from elastic.views.series import Points, coarse, fewer
from elastic.views.timeline import Lane

WIDE, NARROW = 960, 480
LEFT, RIGHT = 52, 14
ROW = 26
MOST_POINTS = 600
MOST_PARTS = 3000


def css(phase: Phase) -> str:
    """Return the class that colours a phase."""
    return f"p-{phase.value.replace(' ', '-')}"


def timeline(found: Sequence[Lane], spent: Sequence[Stretch]) -> str:
    """Return the workers by slot, what the job's time went into above them."""
    if not spent:
        return ""
    began, last = spent[0].begin, spent[-1].end
    left = 14 + 7 * max([len(f"{lane.host}[{lane.slot}]") for lane in found], default=3)
    x = svg.Scale(0.0, max(last - began, 1e-9), left, WIDE - RIGHT)
    parts = [svg.text(left - 8, 21, "job", "tick", "end")]
    for s in coarse(spent, (last - began) / MOST_PARTS):
        start, title = x(s.begin - began), f"{s.phase.value}: {s.took_s:.2f} s"
        parts.append(svg.rect(start, 8, x(s.end - began) - start, 18, css(s.phase), title))
    for row, lane in enumerate(found, 1):
        parts += _lane(lane, x, began, 8 + row * ROW, left)
    bottom = 8 + (len(found) + 1) * ROW
    parts.append(svg.x_axis(x, bottom, svg.time_ticks(last - began, 12), svg.seconds))
    return svg.drawing(WIDE, bottom + 24, "Workers by slot over time, with what the job's time went into", *parts)


def _lane(lane: Lane, x: svg.Scale, began: float, y: float, left: float) -> list[str]:
    parts = [svg.text(left - 8, y + 13, f"{lane.host}[{lane.slot}]", "tick", "end")]
    for bar in lane.bars:
        start, width = x(bar.begin - began), x(bar.end - began) - x(bar.begin - began)
        took = f"{bar.end - bar.begin:.1f} s"
        if bar.generation == 0:
            parts.append(svg.rect(start, y, width, 18, "coming", f"pid {bar.pid} ({bar.source}) comes up, {took}"))
            continue
        title = f"pid {bar.pid}, rank {bar.rank} of world {bar.generation}, {took}"
        parts.append(svg.rect(start, y, width, 18, "even" if bar.generation % 2 == 0 else "odd", title))
        if width > 34:
            parts.append(svg.text(start + 4, y + 13, f"w{bar.generation} r{bar.rank}", "inbar"))
    parts += [svg.cross(x(m.time - began), y + 9, m.words) for m in lane.marks]
    return parts


def pace(throughput: Points, size: Points, began: float, last: float) -> str:
    """Return samples per second and, below, the number of workers, both against time."""
    x = svg.Scale(0.0, max(last - began, 1e-9), LEFT, WIDE - RIGHT)
    parts = _panel("samples/s", fewer(throughput, MOST_POINTS), x, began, (24, 170), "s0")
    parts += _panel("workers", size, x, began, (204, 264), "s1", whole=True)
    parts.append(svg.x_axis(x, 264, svg.time_ticks(last - began, 12), svg.seconds))
    return svg.drawing(WIDE, 290, "Samples per second and number of workers over time", *parts)


def _panel(
    name: str, points: Points, x: svg.Scale, began: float, at: tuple[int, int], kind: str, *, whole: bool = False
) -> list[str]:
    top, bottom = at
    high = max((value for _, value in points), default=0.0) or 1.0
    y = svg.Scale(0.0, high, bottom, top)
    values = svg.ticks(0.0, high, 2 if whole else 4)
    if whole:
        values = sorted({float(round(v)) for v in values})
    parts = [svg.y_axis(y, LEFT, WIDE - RIGHT, values, svg.number), svg.text(LEFT, top - 9, name, "name")]
    if points:
        parts.append(svg.polyline([(x(t - began), y(v)) for t, v in points], kind))
    return parts


def curves(name: str, ends: Mapping[str, Points], running: Points) -> str:
    """Return a metric and its validation against samples.

    Args:
        name: of the metric.
        ends: by name, at the ends of epochs.
        running: rank 0's, within epochs.
    """
    every = [p for points in [*ends.values(), running] for p in points]
    top, bottom = 40, 210
    low, high = min(v for _, v in every), max(v for _, v in every)
    pad = (high - low) * 0.05 or abs(high) * 0.05 or 1.0
    most = max(s for s, _ in every)
    x, y = svg.Scale(0.0, most or 1.0, LEFT, NARROW - RIGHT), svg.Scale(low - pad, high + pad, bottom, top)
    parts = [svg.y_axis(y, LEFT, NARROW - RIGHT, svg.ticks(low - pad, high + pad, 4), svg.number)]
    parts.append(svg.x_axis(x, bottom, svg.ticks(0.0, most, 5), svg.number))
    if running:
        parts.append(svg.polyline([(x(s), y(v)) for s, v in fewer(running, MOST_POINTS)], "faint"))
    at = float(LEFT)
    for i, (label, points) in enumerate(ends.items()):
        kind = f"s{i % 4}"
        parts.append(svg.polyline([(x(s), y(v)) for s, v in fewer(points, MOST_POINTS)], kind))
        words = f"{label} {points[-1][1]:.4f}"
        parts += [svg.line(at, 16, at + 18, 16, kind), svg.text(at + 24, 20, words, "name")]
        at += 44 + 7.2 * len(words)
    parts.append(svg.text(NARROW - RIGHT, bottom + 34, "samples", "tick", "end"))
    return svg.drawing(NARROW, bottom + 42, f"{name} against samples", *parts)
