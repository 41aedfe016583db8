"""`elastic status`: how a run stands, on a terminal."""

import json
import time
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import asdict
from pathlib import Path

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from elastic.rundir import RunDir
from elastic.views.load import Following, check
from elastic.views.state import SILENT_S, State, state_of
from elastic.views.words import workers

PERIOD_S = 1.0
_COLOURS = {"training": "green", "finished": "green", "failed": "red", "recovering": "yellow", "stopped": "yellow"}


def show(run_dir: Path, *, watch: bool, as_json: bool) -> None:
    """Print how a run stands; with `watch`, again each second until it has ended.

    Raises:
        ConfigError: when `run_dir` is no run directory.
    """
    check(RunDir(run_dir))
    run = Following(run_dir)
    console = Console(highlight=False)
    live = None if as_json or not watch else Live(console=console, auto_refresh=False)
    with live or nullcontext(), suppress(KeyboardInterrupt):
        while True:
            now = time.time()
            state = state_of(run.look(), now)
            if as_json:
                print(json.dumps(asdict(state)), flush=True)
            elif live is not None:
                live.update(page(state, now), refresh=True)
            else:
                console.print(page(state, now))
            if not watch or state.silent_s is None:
                return
            time.sleep(PERIOD_S)


def page(state: State, now: float) -> RenderableType:
    """Return the page for a terminal."""
    parts: list[RenderableType] = [_head(state, now)]
    if state.members:
        parts.append(_world(state))
    if state.latest:
        parts.append(_latest(state))
    colour = _COLOURS.get(state.phase, "cyan")
    title = Text.assemble((state.job, "bold"), "  ", (state.phase, f"bold {colour}"))
    return Panel(
        Group(*parts), title=title, title_align="left", subtitle=Text(state.directory, "dim"), subtitle_align="left"
    )


def _head(state: State, now: float) -> RenderableType:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style="dim")
    table.add_column()
    add: Callable[[str, RenderableType], None] = table.add_row
    s = state.summary
    running = state.silent_s is not None
    silent_s = state.silent_s or 0.0
    if s.reason:
        add("reason", Text(s.reason))
    if silent_s > SILENT_S:
        add("silence", Text(f"nothing heard for {duration(silent_s)}: a long phase, a lost host, or a copy", "yellow"))
    add("epoch", _epoch(state))
    add("step", f"{s.steps}" + (f"  ({s.lost_steps} done again)" if s.lost_steps else ""))
    if state.samples_per_s and running and silent_s <= SILENT_S:
        eta = f", {duration(state.eta_s)} to go" if state.eta_s is not None else ""
        add("pace", f"{state.samples_per_s:.0f} samples/s{eta}")
    add("world", f"{state.generation}: {workers(state.size)}; {_pool(state)}" if state.size else "none yet")
    if state.checkpoint is not None:
        c = state.checkpoint
        add("checkpoint", f"step {c.step}, {duration(now - c.time)} ago, written in {c.took_s:.2f} s")
    spent = ", ".join(f"{name} {took:.1f} s" for name, took in state.seconds.items() if took >= 0.05)
    add("goodput", f"{s.goodput:.3f}  ({spent})")
    if s.metrics:
        add("metrics", Text("  ".join(f"{name} {value:.4f}" for name, value in s.metrics.items())))
    return table


def _epoch(state: State) -> RenderableType:
    if not state.owed or state.silent_s is None:
        return f"{state.epoch}/{state.epochs}"
    row = Table.grid(padding=(0, 2, 0, 0))
    bar = ProgressBar(total=state.owed, completed=min(state.consumed, state.owed), width=24)
    row.add_row(f"{state.epoch}/{state.epochs}", bar, f"{state.consumed}/{state.owed} samples")
    return row


def _pool(state: State) -> str:
    ready = f"{state.standbys} standby{'' if state.standbys == 1 else 's'} ready"
    return f"{ready}, {state.warming} warming" if state.warming else ready


def _world(state: State) -> RenderableType:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for name in ("rank", "host", "slot", "pid", "state", "step", "own", "heartbeat"):
        table.add_column(
            name, justify="right" if name in {"rank", "slot", "pid", "step", "own", "heartbeat"} else "left"
        )
    for m in state.members:
        table.add_row(
            str(m.rank),
            Text(m.host),
            str(m.slot),
            str(m.pid),
            Text(f"{m.state}, slow", "yellow") if m.straggles else Text(m.state),
            _ms(m.step_s),
            _ms(m.own_s),
            "-" if m.heartbeat_s is None else f"{m.heartbeat_s:.1f} s",
        )
    return table


def _ms(took_s: float) -> str:
    return f"{1000 * took_s:.0f} ms" if took_s else "-"


def _latest(state: State) -> RenderableType:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style="dim")
    table.add_column()
    for at, text in state.latest:
        table.add_row(time.strftime("%H:%M:%S", time.localtime(at)), Text(text))
    return table


def duration(took_s: float) -> str:
    """Return a duration for a person: `8.1 s`, `3 min 20 s`, `2 h 5 min`, `3 d 4 h`."""
    took_s = max(0.0, took_s)
    if took_s < 60:
        return f"{took_s:.1f} s"
    minutes, rest = divmod(round(took_s), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours < 48 else f"{hours // 24} d {hours % 24} h"
