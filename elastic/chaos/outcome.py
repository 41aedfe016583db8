"""What came of a run of faults: the verdicts, the end, the samples; as a table and as `chaos.json`."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from elastic.chaos.plan import Planned
from elastic.chaos.verdict import Outcome, Verdict, judge
from elastic.errors import ExitCode
from elastic.events import Record
from elastic.filesystem import write_whole
from elastic.rundir import RunDir
from elastic.views.audit import audit, tell
from elastic.views.worlds import at_once


@dataclass(frozen=True, slots=True)
class End:
    """How the job ended.

    Attributes:
        code: exit code of `elastic run`, or minus a signal's number.
        stopped: whether it was told to stop.
        cut_short: why it was, when not because all faults were over.
        left: processes that stayed, in words.
    """

    code: int
    stopped: bool
    cut_short: str
    left: tuple[str, ...]

    @property
    def fault(self) -> str | None:
        """What is wrong with it, or None."""
        if self.cut_short:
            return self.cut_short
        expected = {ExitCode.GOAL_REACHED, ExitCode.TERMINATED} if self.stopped else {ExitCode.GOAL_REACHED}
        if self.code not in expected:
            return f"`elastic run` ended with {self.code}"
        return f"{len(self.left)} processes stayed: {self.left[0]}" if self.left else None


@dataclass(frozen=True, slots=True)
class Report:
    """The verdicts on a run.

    Attributes:
        exact: whether the audit proves that each sample was used once; None without records of it.
        samples: what it says, a line each.
        split: worlds that trained at the same time, in words.
    """

    verdicts: tuple[Verdict, ...]
    end: End
    exact: bool | None
    samples: tuple[str, ...]
    split: tuple[str, ...] = ()

    @property
    def faults(self) -> tuple[str, ...]:
        """What was not as it should be; empty when the job lived through everything that was injected."""
        found = [f"fault {v.fault}: {v.reason}" for v in self.verdicts if v.outcome is Outcome.NOT_SURVIVED]
        if not any(v.at_step is not None for v in self.verdicts):
            found.append("no fault was injected")
        if self.exact is not True:
            found.append(f"samples: {self.samples[-1]}")
        found += self.split
        if self.end.fault is not None:
            found.append(self.end.fault)
        return tuple(found)

    @property
    def passed(self) -> bool:
        return not self.faults


def report(planned: Sequence[Planned], records: Sequence[Record], until: float, end: End, run_dir: RunDir) -> Report:
    """Judge a run that has ended; see `verdict.judge`."""
    exact, samples = _samples(run_dir.audit)
    split = tuple(
        f"two worlds trained at once: {a.generation} on {a.host} and {b.generation} on {b.host}"
        for a, b in at_once(records)
    )
    return Report(judge(planned, records, until), end, exact, samples, split)


def _samples(folder: Path) -> tuple[bool | None, tuple[str, ...]]:
    if not any(folder.glob("*.jsonl")):
        return None, ("no records of the samples: no worker came to train",)
    try:
        found = audit(folder)
    except (ValueError, OSError) as error:
        return False, (f"the records cannot be read: {error}",)
    return found.exact, tuple(tell(found))


def write(run_dir: RunDir, plan: str, seed: int, planned: Sequence[Planned], found: Report) -> Path | None:
    """Keep everything as `chaos.json` of the run directory; returns its path, or None where it cannot be written."""
    whole = {
        "plan": plan,
        "seed": seed,
        "passed": found.passed,
        "faults": found.faults,
        "exact": found.exact,
        "samples": found.samples,
        "end": asdict(found.end),
        "schedule": [asdict(p) for p in planned],
        "verdicts": [_plain(v) for v in found.verdicts],
    }
    try:
        write_whole(run_dir.chaos, json.dumps(whole, indent=1).encode())
    except OSError as error:
        print(f"elastic: no chaos.json: {error}")
        return None
    return run_dir.chaos


def _plain(verdict: Verdict) -> dict[str, object]:
    recovery = verdict.recovery
    return asdict(verdict) | {"recovered_s": recovery.total_s if recovery is not None else None}


WIDTH = 130  # where the terminal does not say that it has more
MOST = 60  # characters of a cause
COLUMNS = ("", "fault", "at step", "outcome", "recovered", "= detect + restart + world + step", "lost", "root cause")
_UNPLACED = ("standby", "driver")
_STYLES = {
    Outcome.SURVIVED: "green",
    Outcome.NOT_SURVIVED: "bold red",
    Outcome.SKIPPED: "yellow",
    Outcome.NOT_REACHED: "yellow",
}


def show(plan: str, seed: int, found: Report, path: Path | None) -> None:
    """Print the verdicts as a table, and what follows from them."""
    console = Console(highlight=False)
    console.width = max(console.width, WIDTH)
    table = Table(title=f"{plan}, seed {seed}", title_justify="left", box=None, padding=(0, 2, 0, 0))
    for name in COLUMNS:
        numbers = name in ("", "at step", "lost")
        table.add_column(name, justify="right" if numbers else "left", no_wrap=name != "root cause")
    for v in found.verdicts:
        total, phases = _seconds(v)
        table.add_row(
            str(v.fault),
            escape(" ".join((v.kind, *(v.places or ([v.target] if v.target in _UNPLACED else ()))))),
            str(v.at_step) if v.at_step is not None else "",
            f"[{_STYLES[v.outcome]}]{v.outcome}[/]",
            total,
            phases,
            str(v.steps_lost) if v.at_step is not None else "",
            _cause(v),
        )
    console.print(table)
    for v in found.verdicts:
        if v.outcome in (Outcome.SKIPPED, Outcome.NOT_REACHED):
            console.print(f"fault {v.fault} {v.outcome}: {v.reason}", markup=False, soft_wrap=True)
    for line in found.samples[-2:]:
        console.print(f"samples: {line}", markup=False, soft_wrap=True)
    for line in found.faults:
        console.print(f"NOT as it should be: {line}", markup=False, style="bold red", soft_wrap=True)
    counts = {o: sum(v.outcome is o for v in found.verdicts) for o in Outcome}
    console.print(", ".join(f"{count} {name}" for name, count in counts.items() if count))
    if path is not None:
        console.print(f"kept in {path}", markup=False, soft_wrap=True)


def _seconds(verdict: Verdict) -> tuple[str, str]:
    """Return the time to recover and its phases in words."""
    if verdict.recovery is None:
        return ("-" if verdict.outcome is Outcome.SURVIVED else ""), ""
    r = verdict.recovery
    phases = (r.detect_s, r.replace_s, r.world_s, r.first_step_s)
    return f"{r.total_s:.2f} s", " + ".join(f"{s:.2f}" for s in phases)


def _cause(verdict: Verdict) -> str:
    first = verdict.cause.partition("\n")[0]
    first = first if len(first) <= MOST else f"{first[: MOST - 3]}..."
    words = escape(first.partition(" ")[2] if verdict.named is not False else first)
    return f"[bold red]wrong:[/] {words}" if verdict.named is False else words
