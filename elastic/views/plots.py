"""The report's charts as PNG, for slides and papers. Needs matplotlib; nothing else here does."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from elastic.events import Record
from elastic.views import series
from elastic.views.goodput import Stretch, seconds, stretches
from elastic.views.pauses import Phase, pauses
from elastic.views.timeline import lanes

COLOURS = {
    Phase.USEFUL: "#2e9e5b",
    Phase.REDONE: "#e08a1e",
    Phase.DETECT: "#cf3b3b",
    Phase.RENDEZVOUS: "#3a78d0",
    Phase.SYNC: "#8559c8",
    Phase.FIRST_STEP: "#1999a8",
    Phase.CHECKPOINT: "#b3892a",
    Phase.IDLE: "#9aa3ad",
    Phase.OFF: "#e3e6ea",
}
_COMING, _WORLDS = "#d5d9de", ("#b9d3f3", "#8fb7ea")  # of even and odd worlds
DPI = 130
MOST_PARTS = 1000


def write(records: Sequence[Record], beside: Path) -> list[Path]:
    """Draw every plot of a run into files named after the report; return them."""
    found = []
    for name, figure in _figures(records):
        path = beside.with_name(f"{beside.stem}-{name}.png")
        figure.savefig(path, dpi=DPI)
        found.append(path)
    return found


def _figures(records: Sequence[Record]) -> Iterator[tuple[str, Figure]]:
    spent = stretches(records)
    if not spent:
        return
    began = spent[0].begin
    yield "timeline", _timeline(records, spent)
    yield "pace", _pace(records, began, spent[-1].end)
    if found := series.metrics(records):
        yield "metrics", _metrics(found)
    yield "goodput", _goodput(seconds(spent))


def _timeline(records: Sequence[Record], spent: Sequence[Stretch]) -> Figure:
    found, began, last = lanes(records), spent[0].begin, spent[-1].end
    figure, axes = _figure(1.4 + 0.35 * (len(found) + 1))
    for s in series.coarse(spent, (last - began) / MOST_PARTS):
        axes.barh(0, s.took_s, left=s.begin - began, color=COLOURS[s.phase], height=0.8)
    for row, lane in enumerate(found, 1):
        for b in lane.bars:
            colour = _COMING if b.generation == 0 else _WORLDS[b.generation % 2]
            axes.barh(row, b.end - b.begin, left=b.begin - began, color=colour, height=0.8)
        for m in lane.marks:
            axes.plot(m.time - began, row, "x", color=COLOURS[Phase.DETECT])
    axes.set_yticks(range(len(found) + 1), ["job", *(f"{lane.host}[{lane.slot}]" for lane in found)])
    axes.invert_yaxis()
    axes.set_xlim(0, last - began)
    axes.set_xlabel("seconds")
    return figure


def _pace(records: Sequence[Record], began: float, last: float) -> Figure:
    figure = Figure(figsize=(9, 4.2), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
    waits = pauses(records)
    for axes, points, name in (
        (above, series.throughput(records, waits), "samples/s"),
        (below, series.world_size(waits, last), "workers"),
    ):
        axes.plot([t - began for t, _ in points], [v for _, v in points], linewidth=1.3)
        axes.set_ylabel(name)
        axes.set_ylim(bottom=0)
        axes.grid(alpha=0.3)
    below.set_xlabel("seconds")
    return figure


def _metrics(found: dict[str, series.Points]) -> Figure:
    groups = series.families(found)
    figure = Figure(figsize=(4.6 * len(groups), 3.4), layout="constrained")
    for axes, (name, members) in zip(figure.subplots(1, len(groups), squeeze=False)[0], groups, strict=True):
        for member in members:
            axes.plot(*zip(*found[member], strict=True), marker="." if len(found[member]) < 30 else "", label=member)
        axes.set_title(name)
        axes.set_xlabel("samples")
        axes.grid(alpha=0.3)
        axes.legend()
    return figure


def _goodput(spent: dict[Phase, float]) -> Figure:
    figure, axes = _figure(3.4)
    at, phases = 0.0, [p for p in Phase if p is not Phase.OFF]
    for row, phase in enumerate(phases):
        axes.barh(row, spent[phase], left=at, color=COLOURS[phase])
        axes.text(at + spent[phase], row, f"  {spent[phase]:.1f} s", va="center", fontsize=9)
        at += spent[phase]
    axes.set_yticks(range(len(phases)), [phase.value for phase in phases])
    axes.invert_yaxis()
    axes.set_xlim(0, at * 1.1 or 1.0)
    axes.set_xlabel("seconds")
    return figure


def _figure(height: float) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(9, height), layout="constrained")
    return figure, figure.subplots()
