"""`elastic report`: a run written up as one HTML file, and its plots as PNG where matplotlib is installed."""

import time
from collections.abc import Sequence
from pathlib import Path

from elastic.errors import ConfigError
from elastic.events import Record
from elastic.views import charts, page, series
from elastic.views.goodput import Stretch, stretches
from elastic.views.load import Run, load
from elastic.views.pauses import pauses
from elastic.views.state import state_of
from elastic.views.timeline import lanes
from elastic.views.words import words

_SLOTS = (
    "Above, what the job's time went into; below, the workers of each slot: grey while one comes up, blue in world w "
    "with rank r, a cross where it was lost. Point at a part to read more."
)
_WHERE = "Each moment counts once; goodput is the useful share."
_HEALED = "Seconds by phase, which add up to the total: from the last step before to the first one after."
_MOST_FACTS = 400


def write(run_dir: Path, output: Path | None = None) -> list[Path]:
    """Write the report of a run; return the files, the HTML first.

    Args:
        run_dir: of a run that goes on, has ended, or was copied here.
        output: the HTML file; by default `report.html` in the run directory. PNGs lie beside it.

    Raises:
        ConfigError: when `run_dir` is no run directory, or `output` cannot be written.
    """
    run = load(run_dir)
    target = output or run.directory.report
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(html(run, time.time()), encoding="utf-8")
        return [target, *_plots(run, target)]
    except OSError as error:
        raise ConfigError(f"{target}: cannot be written: {error.strerror}; choose another with --output") from None


def html(run: Run, now: float) -> str:
    """Return the report.

    Args:
        run: its records in the order of their time.
        now: seconds since 1970.
    """
    records = run.records
    spent = stretches(records)
    if not spent:
        return page.page("no facts yet", "<p>The run has no facts yet.</p>\n")
    state, waits = state_of(run, now), pauses(records)
    began, last = spent[0].begin, spent[-1].end
    pace = charts.pace(series.throughput(records, waits), series.world_size(waits, last), began, last)
    return page.page(
        f"{state.job}: {state.summary.status}",
        page.head(state, began, last),
        page.section("Workers", _workers(records, spent), _SLOTS),
        page.section("Pace", page.wide(pace)),
        page.section("Metrics", _curves(records)),
        page.section("Where the time went", page.waterfall(state.seconds), _WHERE),
        page.section("Recoveries", page.recoveries(state.recoveries, began), _HEALED),
        page.section("Versions", page.table(run.versions.items()) if run.versions else ""),
        page.folded("Configuration", _text(run.directory.config)),
        page.folded("Facts", _facts(records, began)),
    )


def _workers(records: Sequence[Record], spent: Sequence[Stretch]) -> str:
    colours = page.legend(dict.fromkeys(s.phase for s in spent))
    return page.wide(charts.timeline(lanes(records), spent)) + f'<p class="keys">{colours}</p>'


def _curves(records: Sequence[Record]) -> str:
    ends, running = series.metrics(records), series.running_metrics(records)
    drawn = [
        charts.curves(name, {n: ends[n] for n in names if n in ends}, running.get(name, []))
        for name, names in series.families({**ends, **running})
    ]
    return f'<div class="pair">{"".join(drawn)}</div>' if drawn else ""


def _facts(records: Sequence[Record], began: float) -> str:
    told = [f"{r.time - began:9.2f} s  {text}" for r in records if (text := words(r)) is not None]
    left_out = len(told) - _MOST_FACTS
    return "\n".join(told[-_MOST_FACTS:] if left_out <= 0 else [f"({left_out} earlier ones)", *told[-_MOST_FACTS:]])


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _plots(run: Run, target: Path) -> list[Path]:
    try:
        from elastic.views import plots
    except ImportError:  # matplotlib is for those who want it: pip install 'elastic-keras[plots]'
        return []
    return plots.write(run.records, target)
