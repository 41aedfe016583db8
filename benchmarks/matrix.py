"""What does it survive? Every kind of fault at every moment: `python -m benchmarks.matrix [--json] [--write]`.

Each kind of `elastic.chaos.kinds` strikes at the start of a job, in a step, in a commit, while a checkpoint
is written, while a world re-forms and during another recovery. One `elastic chaos` run takes all moments of
a kind, one after the other, each when the one before has been recovered from; where one is not, the rest
goes on in a run of its own. What is done is kept in a file and not done again, so that an
interrupted matrix goes on where it was. A cell is survived if `elastic chaos` says so, of its fault and of the run:
all workers train again within a minute, no sample is lost or seen twice, no process stays.

Half an hour on two cores.
"""

import argparse
import json
import shutil
import subprocess
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import yaml

from benchmarks.matrix_plans import LIMIT_S, MEANS, Moment, Numbered, plan, senseless
from benchmarks.report import end_when_told, into_readme, machine, say, tell
from elastic.chaos.faults import obstacle
from elastic.chaos.kinds import Kind
from elastic.chaos.verdict import Outcome
from elastic.filesystem import write_whole
from tests.e2e.job import BIN, ROOT

KEPT = ROOT / "runs" / "matrix.json"
RUNS = ROOT / "runs" / "matrix"
MNIST = ROOT / "configs" / "mnist.yaml"
TRIES = 3  # to hit a moment that is short
GRACE_S = 90.0  # for the end of a run, after its own limit

Key = tuple[Kind, Moment]


@dataclass(frozen=True, slots=True)
class Cell:
    """What became of one kind of fault at one moment.

    Attributes:
        outcome: survived, not survived, or skipped.
        reason: why not, or what was wrong about it all the same.
        recovered_s: until all trained again; None when training was not disturbed.
        steps_lost: done again.
    """

    outcome: Outcome
    reason: str = ""
    recovered_s: float | None = None
    steps_lost: int = 0


def judged(report: dict[str, Any], cells: Sequence[Numbered]) -> dict[Moment, Cell | None]:
    """Return what a run's `chaos.json` says of each cell; None of one that the run did not come to."""
    verdicts = {v["fault"]: v for v in report["verdicts"]}
    cut_short = report["end"]["cut_short"]
    wrong = [] if cut_short else [w for w in report["faults"] if not w.startswith("fault ")]
    return {cell.moment: _cell(verdicts, cell, wrong) for cell in cells}


def _cell(verdicts: dict[int, dict[str, Any]], cell: Numbered, wrong: Sequence[str]) -> Cell | None:
    own, others = verdicts[cell.own], [verdicts[number] for number in cell.others]
    failed = [v for v in (own, *others) if v["outcome"] == Outcome.NOT_SURVIVED]
    if failed:
        return Cell(Outcome.NOT_SURVIVED, "; ".join(f"{v['kind']}: {v['reason']}" for v in failed))
    if own["outcome"] == Outcome.SKIPPED:
        return Cell(Outcome.SKIPPED, own["reason"])
    if any(v["outcome"] != Outcome.SURVIVED for v in (own, *others)):
        return None
    if wrong:
        return Cell(Outcome.NOT_SURVIVED, f"in the run of this kind: {'; '.join(wrong)}")
    misnamed = f"survived, but the facts name another cause: {own['cause']}" if own["named"] is False else ""
    return Cell(Outcome.SURVIVED, misnamed, own["recovered_s"], own["steps_lost"])


class Matrix:
    """The cells so far, kept in a file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.cells: dict[Key, Cell] = {}

    def read(self) -> None:
        if self._path.exists():
            raw = json.loads(self._path.read_text(encoding="utf-8"))
            for name, cell in raw.items():
                kind, _, moment = name.partition(":")
                self.cells[Kind(kind), Moment(moment)] = Cell(**cell | {"outcome": Outcome(cell["outcome"])})

    def put(self, kind: Kind, moment: Moment, cell: Cell) -> None:
        self.cells[kind, moment] = cell
        say(f"{kind} at {moment}: {cell.outcome} {cell.reason}")
        self._path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(self._path, json.dumps(plain(self.cells), indent=1).encode())

    def fill(self, kind: Kind, moments: Sequence[Moment]) -> None:
        """Have a kind of fault strike at these moments, in as many runs as it takes."""
        left = dict.fromkeys(moments, TRIES)
        while left:
            found = strike(kind, list(left))
            done = {m: c for m, c in found.items() if c is not None}
            if not done:
                first = next(iter(left))
                done = {first: Cell(Outcome.NOT_SURVIVED, "the run ended before it was over; see its output")}
            for moment, cell in done.items():
                left[moment] -= 1
                if cell.outcome is not Outcome.SKIPPED or not left[moment]:
                    self.put(kind, moment, cell)
                    del left[moment]


def strike(kind: Kind, moments: Sequence[Moment]) -> dict[Moment, Cell | None]:
    """Run one job in which a kind of fault strikes at these moments; its folder stays where something went wrong."""
    whole, cells = plan(kind, moments)
    folder = RUNS / f"{kind}-{time.strftime('%H%M%S')}"
    folder.mkdir(parents=True)
    (folder / "plan.yaml").write_text(yaml.safe_dump(whole))
    line = [str(BIN / "elastic"), "chaos", str(folder / "plan.yaml"), str(MNIST), "--run-dir", str(folder / "run")]
    with (folder / "output.txt").open("wb") as output:
        process = subprocess.Popen(line, cwd=ROOT, stdout=output, stderr=subprocess.STDOUT, start_new_session=True)
    try:
        process.wait(LIMIT_S + GRACE_S)
    except subprocess.TimeoutExpired:
        say(f"{kind}: the run did not end; see {folder}")
    finally:
        _end(process)
    try:
        report = json.loads((folder / "run" / "chaos.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return dict.fromkeys(moments)
    found = judged(report, cells)
    if all(cell is not None and cell.outcome is Outcome.SURVIVED for cell in found.values()):
        shutil.rmtree(folder)
    return found


def _end(process: subprocess.Popen[bytes]) -> None:
    """Stop a run that goes on: the first signal lets its job drain, the second kills it."""
    for _ in range(2):
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(GRACE_S)
            except subprocess.TimeoutExpired:
                continue
    if process.poll() is None:
        process.kill()
        process.wait()


def plain(cells: dict[Key, Cell]) -> dict[str, Any]:
    """Return cells as JSON has them."""
    return {f"{kind}:{moment}": asdict(cell) for (kind, moment), cell in cells.items()}


def chosen(only: str) -> list[Key]:
    """Return the cells that `kind` and `kind:moment`, comma-separated, mean; all of them for an empty text.

    Raises:
        ValueError: for what there is not.
    """
    found: list[Key] = []
    for word in filter(None, only.split(",")):
        kind, _, moment = word.partition(":")
        found += [(Kind(kind), m) for m in ([Moment(moment)] if moment else Moment)]
    return found or [(kind, moment) for kind in Kind for moment in Moment]


def impossible(keys: Iterable[Key]) -> dict[Key, Cell]:
    """Return the cells that cannot be filled on this machine, or make no sense."""
    reasons = {(kind, moment): senseless(kind, moment) or obstacle(kind) for kind, moment in keys}
    return {key: Cell(Outcome.SKIPPED, reason) for key, reason in reasons.items() if reason is not None}


def table(cells: dict[Key, Cell]) -> str:
    """Return the matrix as Markdown, with the reasons of what went wrong or was left out below."""
    reasons: dict[str, int] = {}
    lines = [f"| fault, while | {' | '.join(Moment)} |", f"| --- |{' --- |' * len(Moment)}"]
    for kind in Kind:
        if any((kind, moment) in cells for moment in Moment):
            row = [_words(cells.get((kind, moment)), reasons) for moment in Moment]
            lines.append(f"| `{kind}` | {' | '.join(row)} |")
    counts = ", ".join(
        f"{count} {outcome}" for outcome in Outcome if (count := sum(c.outcome is outcome for c in cells.values()))
    )
    open_ = len(Kind) * len(Moment) - len(cells)
    host = machine()
    return "\n".join(
        [
            *lines,
            "",
            "Seconds until all workers train again, or `ok` where training was not disturbed; **no**: not survived;",
            f"-: left out. {counts or 'None'}{f', {open_} not run yet' if open_ else ''}.",
            "",
            *(f"{number}. {reason}" for reason, number in reasons.items()),
            "",
            *(f"* {moment}: {means}" for moment, means in MEANS.items()),
            "",
            f"{host['cpu']}, {host['cores']} cores, {host['memory']}, {host['date']};",
            "`uv run python -m benchmarks.matrix`.",
        ]
    )


def _words(cell: Cell | None, reasons: dict[str, int]) -> str:
    if cell is None:
        return ""
    words = {Outcome.NOT_SURVIVED: "**no**", Outcome.SKIPPED: "-"}.get(cell.outcome)
    if words is None:
        words = f"{cell.recovered_s:.1f}" if cell.recovered_s is not None else "ok"
        words += f", {cell.steps_lost} steps again" if cell.steps_lost else ""
    if cell.reason:
        reason = " ".join(cell.reason.split())
        words += f" [{reasons.setdefault(reason, len(reasons) + 1)}]"
    return words


def main() -> None:
    """Fill the matrix and tell."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--write", action="store_true", help="write the table into the README")
    parser.add_argument("--only", default="", help="kinds, or kind:moment, comma-separated")
    parser.add_argument("--keep", type=Path, default=KEPT, help="the file of what is done")
    parser.add_argument("--anew", action="store_true", help="do the chosen cells again")
    parser.add_argument("--dry", action="store_true", help="run nothing: tell what is kept")
    options = parser.parse_args()
    end_when_told()
    try:
        keys = chosen(options.only)
    except ValueError as error:
        parser.error(f"--only: {error}; expected some of {', '.join(Kind)}, each with one of {', '.join(Moment)}")
    matrix = Matrix(options.keep)
    matrix.read()
    without = impossible((kind, moment) for kind in Kind for moment in Moment)
    for kind in Kind if not options.dry else ():
        moments = [m for k, m in keys if k is kind and (k, m) not in without]
        matrix.fill(kind, [m for m in moments if options.anew or (kind, m) not in matrix.cells])
    cells = matrix.cells | {key: cell for key, cell in without.items() if key not in matrix.cells}
    result = {"machine": machine(), "cells": plain(cells)}
    tell(result, as_json=options.json, table=table(cells))
    if options.write:
        into_readme("matrix", table(cells))


if __name__ == "__main__":
    main()
