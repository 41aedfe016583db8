"""The matrix of faults and moments: its plans are valid, and what a run says of a cell is taken rightly."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from benchmarks.matrix import Cell, Matrix, chosen, judged, table
from benchmarks.matrix_plans import Moment, Numbered, plan, senseless
from elastic.chaos.kinds import Kind
from elastic.chaos.plan import load_plan, overrides, schedule
from elastic.chaos.verdict import Outcome
from elastic.jobfile import load

ROOT = Path(__file__).parents[2]
CELLS = (Numbered(Moment.STEP, 1, ()), Numbered(Moment.REENTRY, 3, (2,)))


@pytest.mark.parametrize("kind", Kind)
def test_the_plan_of_each_kind_is_one_that_chaos_takes(kind: Kind, tmp_path: Path) -> None:
    moments = [moment for moment in Moment if senseless(kind, moment) is None]
    whole, cells = plan(kind, moments)
    (tmp_path / "plan.yaml").write_text(yaml.safe_dump(whole))
    loaded = load_plan(tmp_path / "plan.yaml")
    planned = {p.number: p for p in schedule(loaded, 1)}
    assert [cell.moment for cell in cells] == moments
    assert all(planned[cell.own].kind is kind for cell in cells)
    assert sorted(n for cell in cells for n in (cell.own, *cell.others)) == sorted(planned)
    assert load(ROOT / "configs" / "mnist.yaml", list(overrides(loaded.job))).workers.max >= 2


def verdict(fault: int, outcome: str, reason: str = "", **more: Any) -> dict[str, Any]:
    own = {"recovered_s": 0.4, "steps_lost": 0, "named": True, "cause": "crash", "kind": "segfault"}
    return own | {"fault": fault, "outcome": outcome, "reason": reason} | more


def report(*verdicts: dict[str, Any], faults: tuple[str, ...] = (), cut_short: str = "") -> dict[str, Any]:
    return {"verdicts": list(verdicts), "faults": list(faults), "end": {"cut_short": cut_short}}


def test_a_cell_is_survived_if_its_fault_and_those_of_its_story_are() -> None:
    found = judged(report(*(verdict(n, "survived") for n in (1, 2, 3))), CELLS)
    assert found == dict.fromkeys((Moment.STEP, Moment.REENTRY), Cell(Outcome.SURVIVED, "", 0.4, 0))
    found = judged(report(verdict(1, "survived"), verdict(2, "not survived", "no"), verdict(3, "survived")), CELLS)
    assert found[Moment.REENTRY] == Cell(Outcome.NOT_SURVIVED, "segfault: no")


def test_what_a_run_did_not_come_to_is_left_for_another() -> None:
    verdicts = [verdict(1, "not survived", "hangs"), verdict(2, "not reached"), verdict(3, "not reached")]
    found = judged(report(*verdicts, cut_short="fault 1 was not recovered from"), CELLS)
    assert found == {Moment.STEP: Cell(Outcome.NOT_SURVIVED, "segfault: hangs"), Moment.REENTRY: None}


def test_a_lost_sample_is_held_against_all_cells_of_its_run() -> None:
    lost = report(*(verdict(n, "survived") for n in (1, 2, 3)), faults=("samples: 3 are missing",))
    assert {c.outcome for c in judged(lost, CELLS).values() if c is not None} == {Outcome.NOT_SURVIVED}


def test_a_cause_that_is_misnamed_is_told() -> None:
    found = judged(report(verdict(1, "survived", named=False, cause="WorkerLost hang")), CELLS[:1])[Moment.STEP]
    assert found is not None
    assert found.reason == "survived, but the facts name another cause: WorkerLost hang"


def test_cells_are_kept_and_read_again(tmp_path: Path) -> None:
    first = Matrix(tmp_path / "new" / "matrix.json")
    first.put(Kind.KILL, Moment.STEP, Cell(Outcome.SURVIVED, "", 0.4, 2))
    second = Matrix(tmp_path / "new" / "matrix.json")
    second.read()
    assert second.cells == first.cells


def test_cells_are_chosen_by_kind_or_one_by_one() -> None:
    assert chosen("kill:step,term") == [(Kind.KILL, Moment.STEP), *((Kind.TERM, moment) for moment in Moment)]
    assert len(chosen("")) == len(Kind) * len(Moment)
    with pytest.raises(ValueError, match="kil"):
        chosen("kil")


def test_the_table_shows_failures_and_gives_each_reason_once() -> None:
    cells = {
        (Kind.KILL, Moment.STEP): Cell(Outcome.SURVIVED, "", 0.42, 0),
        (Kind.CLOCK, Moment.STEP): Cell(Outcome.SURVIVED),
        (Kind.TERM, Moment.STEP): Cell(Outcome.NOT_SURVIVED, "hangs"),
        (Kind.SPIN, Moment.START): Cell(Outcome.NOT_SURVIVED, "hangs"),
        (Kind.OOM, Moment.STEP): Cell(Outcome.SKIPPED, "needs a memory cgroup"),
    }
    text = table(cells)
    assert "| `kill` |  | 0.4 |  |  |  |  |" in text
    assert "| `clock` |  | ok |  |  |  |  |" in text
    assert "| `term` |  | **no** [1] |  |  |  |  |" in text
    assert "| `spin` | **no** [1] |  |  |  |  |  |" in text
    assert "| `oom` |  | - [2] |  |  |  |  |" in text
    assert text.count("hangs") == 1
    assert "2 survived, 2 not survived, 1 skipped" in text
