"""The report as HTML: pure functions of what it tells. One file, no script, nothing from a network."""

import time
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path

from elastic.views.charts import css
from elastic.views.pauses import IN_A_PAUSE, Phase
from elastic.views.recoveries import Recovery
from elastic.views.state import State
from elastic.views.status import duration

_STYLE = Path(__file__).with_name("report.css")
_ORDER = (
    Phase.USEFUL,
    Phase.REDONE,
    Phase.DETECT,
    Phase.RENDEZVOUS,
    Phase.SYNC,
    Phase.FIRST_STEP,
    Phase.CHECKPOINT,
    Phase.IDLE,
)


def page(title: str, *parts: str) -> str:
    """Return the whole file."""
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{escape(title)}</title>
<link rel="icon" href="data:,">
<style>
{_STYLE.read_text(encoding="utf-8")}</style>
</head>
<body>
{"".join(parts)}</body>
</html>
"""


def section(title: str, body: str, note: str = "") -> str:
    """Return a part under a heading; nothing where there is nothing to show."""
    if not body:
        return ""
    told = f"<p>{escape(note)}</p>\n" if note else ""
    return f"<section>\n<h2>{escape(title)}</h2>\n{told}{body}\n</section>\n"


def wide(chart: str) -> str:
    """Return a chart that a small screen scrolls."""
    return f'<div class="scroll">{chart}</div>' if chart else ""


def head(state: State, began: float, last: float) -> str:
    """Return the title and the figures that matter most."""
    s = state.summary
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(began))
    facts = {
        "status": s.status + (" early" if s.stopped_early else ""),
        "goodput": f"{s.goodput:.3f}",
        "wall time": duration(last - began),
        "epochs": f"{s.epochs} of {state.epochs}" if state.epochs else str(s.epochs),
        "steps": str(s.steps),
        "steps done again": str(s.lost_steps),
        "workers lost": str(sum(state.lost.values())),
        "recoveries": str(sum(r.over for r in state.recoveries)),
        **{name: f"{value:.4f}" for name, value in s.metrics.items()},
    }
    cells = "\n".join(f"<div><b>{escape(v)}</b><span>{escape(k)}</span></div>" for k, v in facts.items())
    why = f"<p>{escape(s.reason)}</p>\n" if s.reason else ""
    title = f"<h1>{escape(state.job)}</h1>\n<p>{escape(state.directory)}, from {when}</p>\n"
    return f'{title}{why}<div class="facts">\n{cells}\n</div>\n'


def legend(phases: Iterable[Phase]) -> str:
    """Return the colours of phases."""
    return "".join(f'<span class="key"><i class="{css(p)}"></i>{p.value}</span>' for p in phases)


def waterfall(seconds: Mapping[str, float]) -> str:
    """Return where the time went, each phase beginning where the one above ends."""
    total = sum(seconds.get(phase.value, 0.0) for phase in _ORDER)
    if total <= 0.0:
        return ""
    rows, at = [], 0.0
    for phase in _ORDER:
        took = seconds.get(phase.value, 0.0)
        place = f"margin-left:{100 * at / total:.2f}%;width:{100 * took / total:.2f}%"
        bar = f'<div class="{css(phase)}" style="{place}"></div>'
        rows.append(
            f'<tr><td>{phase.value}</td><td class="bar">{bar if took else ""}</td>'
            f'<td class="n">{took:.2f} s</td><td class="n">{100 * took / total:.1f} %</td></tr>'
        )
        at += took
    rows.append(f'<tr><th>all</th><td class="bar"></td><td class="n">{total:.2f} s</td><td class="n">100.0 %</td></tr>')
    return f'<table class="fall">\n{"".join(rows)}\n</table>'


def recoveries(found: Sequence[Recovery], began: float) -> str:
    """Return the interruptions; the phases of each add up to its total."""
    if not found:
        return ""
    names = [phase.value for phase in IN_A_PAUSE]
    heads = "".join(f'<th class="n">{n}</th>' for n in ("at", *names, "total", "redone"))
    rows = []
    for r in found:
        cells = [seconds(r.begin - began), *(f"{r.phases_s[n]:.3f}" for n in names), f"{r.took_s:.3f}", str(r.redone)]
        numbers = "".join(f'<td class="n">{c}</td>' for c in cells)
        rows.append(f'<tr><td class="words">{escape(r.words)}</td>{numbers}</tr>')
    return f'<div class="scroll"><table>\n<tr><th>what happened</th>{heads}</tr>\n{"".join(rows)}\n</table></div>'


def seconds(took_s: float) -> str:
    """Return a time since the start."""
    return f"{took_s:.1f} s"


def table(rows: Iterable[tuple[str, str]]) -> str:
    """Return names and values."""
    return "<table>" + "".join(f"<tr><td>{escape(k)}</td><td>{escape(v)}</td></tr>" for k, v in rows) + "</table>"


def folded(title: str, text: str) -> str:
    """Return a text that is shown on request."""
    return f"<details><summary>{escape(title)}</summary><pre>{escape(text)}</pre></details>\n" if text else ""
