"""What `elastic run` shows: a live line of progress, facts in plain words, the summary."""

import re
import sys
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Table

from elastic.events import Record
from elastic.rundir import RunDir
from elastic.views.summary import Summary
from elastic.views.words import words, workers

_PRINTED = re.compile(r"\[(?P<rank>\d+)(?: \S+)?\]<stdout>:(?P<text>.*)")  # Horovod's, or with a place


class Screen:
    """Writes to standard output; the live line only where that is a terminal."""

    def __init__(self, directory: RunDir) -> None:
        self._directory = directory
        self._console = Console(highlight=False, soft_wrap=True)
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[speed]}"),
            TimeRemainingColumn(),
            console=self._console,
            transient=True,
            disable=not self._console.is_terminal,
        )
        self._task: TaskID | None = None
        self._generation = 0
        self._finished = False

    def __enter__(self) -> Self:
        self.line(f"run directory: {self._directory.path}")
        self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._bar.stop()

    def line(self, text: str) -> None:
        """Print one line above the live one."""
        self._console.print(text, markup=False)

    def show(self, record: Record) -> None:
        """Show a fact, if it is one for people."""
        if record.event == "Progressed":
            self._progress(record)
        elif record.event == "EpochEnded":
            metrics = "  ".join(f"{k} {v:.4f}" for k, v in record.get("metrics").items())
            cost = f"({workers(record.get('size'))}, {record.get('took_s'):.1f} s)"
            self.line(f"epoch {record.get('epoch') + 1}: {metrics}  {cost}")
        elif record.event == "FirstStepDone" and record.get("pause_s") and record.generation > self._generation:
            self._generation = record.generation
            self.line(f"training again after {record.get('pause_s'):.2f} s")
        elif (text := words(record)) is not None:
            self.line(text)
        self._finished |= record.event == "JobFinished"

    def printed(self, line: str) -> None:
        """Show what the user's code has printed, from a line of the launcher's output.

        Every worker runs the code that comes before training, rank 0 alone what comes after it.
        """
        found = _PRINTED.match(line)
        if found and (found["rank"] == "0" or self._finished):
            self.line(found["text"])

    def _progress(self, record: Record) -> None:
        if self._task is None:
            self._task = self._bar.add_task("", total=record.get("owed"), speed="")
        self._bar.update(
            self._task,
            description=f"epoch {record.get('epoch') + 1}/{record.get('epochs')}, step {record.get('step')}",
            completed=record.get("consumed"),
            total=record.get("owed"),
            speed=f"{record.get('samples_per_s'):.0f} samples/s, {workers(record.get('size'))}",
        )

    def error(self, text: str, source: str) -> None:
        """Print a traceback to standard error, saying whose."""
        print(f"{text}\n({source})", file=sys.stderr, flush=True)

    def summary(self, summary: Summary) -> None:
        """Print the outcome as a small table, and where the run is."""
        table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
        rows = {
            "status": summary.status + (" (early)" if summary.stopped_early else ""),
            "epochs, steps": f"{summary.epochs}, {summary.steps}",
            **{name: f"{value:.4f}" for name, value in summary.metrics.items()},
            "wall time": f"{summary.wall_s:.1f} s",
            "worlds": " -> ".join(str(s) for s in summary.world_sizes),
            "workers lost": str(summary.workers_lost),
            "steps done again": str(summary.lost_steps),
            "samples seen / owed": f"{summary.samples_seen} / {summary.samples_owed or '-'}",
            "goodput": f"{summary.goodput:.3f}",
        }
        for name, value in rows.items():
            table.add_row(name, value)
        self._console.print(table)
        self.line(f"run directory: {self._directory.path}")
