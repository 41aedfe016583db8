"""Small pure functions that draw SVG: strings in, strings out. Colours are classes of the page's style sheet."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape


@dataclass(frozen=True, slots=True)
class Scale:
    """From values `low` to `high` to places `start` to `stop`."""

    low: float
    high: float
    start: float
    stop: float

    def __call__(self, value: float) -> float:
        span = self.high - self.low
        share = (value - self.low) / span if span else 0.5
        return round(self.start + share * (self.stop - self.start), 2)


def ticks(low: float, high: float, most: int) -> list[float]:
    """Return at most about `most` round values (1, 2 or 5 times a power of ten apart) from `low` to `high`."""
    if not high > low or not math.isfinite(high - low):
        return [low]
    rough = (high - low) / max(1, most)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(m * power for m in (1, 2, 5, 10) if m * power >= rough * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [round(n * step, 12) for n in range(first, math.floor(high / step + 1e-9) + 1)]


def number(value: float) -> str:
    """Return a value as an axis shows it: 0.05, 12, 1.5k, 2M."""
    for unit, name in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= unit:
            return f"{value / unit:g}{name}"
    return f"{value:g}"


def seconds(value: float) -> str:
    """Return a time since the start as an axis shows it: 40s, 5m, 2h."""
    for unit, name in ((86400, "d"), (3600, "h"), (60, "m")):
        if value >= unit and value % unit == 0:
            return f"{value / unit:g}{name}"
    return f"{value:g}s"


def time_ticks(high: float, most: int) -> list[float]:
    """Return round times from 0 to `high` seconds."""
    steps = (1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 43200, 86400)
    rough = high / max(1, most)
    step = next((s for s in steps if s >= rough), 86400 * math.ceil(rough / 86400))
    return [float(n * step) for n in range(math.floor(high / step) + 1)]


def drawing(width: int, height: int, label: str, *parts: str) -> str:
    """Return an SVG that fills its place; `label` says what it shows to who cannot see it."""
    inside = "\n".join(parts)
    return f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{escape(label, quote=True)}">\n{inside}\n</svg>'


def text(x: float, y: float, words: str, kind: str = "", anchor: str = "start") -> str:
    """Return a text."""
    return f'<text x="{x:g}" y="{y:g}" class="{kind}" text-anchor="{anchor}">{escape(words)}</text>'


def rect(x: float, y: float, width: float, height: float, kind: str, title: str = "") -> str:
    """Return a rectangle, with what is shown when one points at it."""
    tip = f"<title>{escape(title)}</title>" if title else ""
    return f'<rect x="{x:g}" y="{y:g}" width="{max(0.5, width):g}" height="{height:g}" class="{kind}">{tip}</rect>'


def line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    """Return a straight line."""
    return f'<line x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}" class="{kind}"/>'


def polyline(points: Sequence[tuple[float, float]], kind: str) -> str:
    """Return a line through points; one point alone is a dot."""
    if len(points) == 1:
        return f'<circle cx="{points[0][0]:g}" cy="{points[0][1]:g}" r="3" class="{kind} dot"/>'
    return f'<polyline points="{" ".join(f"{x:g},{y:g}" for x, y in points)}" class="{kind}"/>'


def cross(x: float, y: float, title: str) -> str:
    """Return a mark."""
    path = f"M{x - 4:g} {y - 4:g}L{x + 4:g} {y + 4:g}M{x + 4:g} {y - 4:g}L{x - 4:g} {y + 4:g}"
    return f'<path d="{path}" class="cross"><title>{escape(title)}</title></path>'


def x_axis(scale: Scale, y: float, values: Sequence[float], label: Callable[[float], str]) -> str:
    """Return the ticks and labels below a chart."""
    parts = [line(scale.start, y, scale.stop, y, "axis")]
    for value in values:
        x = scale(value)
        parts += [line(x, y, x, y + 4, "axis"), text(x, y + 17, label(value), "tick", "middle")]
    return "".join(parts)


def y_axis(scale: Scale, x: float, right: float, values: Sequence[float], label: Callable[[float], str]) -> str:
    """Return the lines and labels left of a chart."""
    parts = []
    for value in values:
        y = scale(value)
        parts += [line(x, y, right, y, "grid"), text(x - 6, y + 4, label(value), "tick", "end")]
    return "".join(parts)
