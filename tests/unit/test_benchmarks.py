"""What the benchmarks make of what they saw; their real runs are commands of their own."""

import dataclasses
import json
from pathlib import Path

import pytest

from benchmarks import throughput
from benchmarks.faults import PHASES, Recovery, recovery
from benchmarks.figures import Measured, figures
from benchmarks.plot import bars, draw
from benchmarks.recovery import share
from benchmarks.table import table
from benchmarks.throughput import Pair, Window
from benchmarks.torchrun import Restart
from elastic.events import Record

KILL = Recovery(0.5, dict(zip(PHASES, (0.1, 0.05, 0.15, 0.15, 0.05), strict=True)), 0)
ALL = Measured(
    kills=[KILL],
    freezes=[dataclasses.replace(KILL, total_s=5.4)],
    joins=[0.8],
    stock_kills=["the job ends (exit code 1)", "the job ends (exit code 1)"],
    stock_freezes=["no step within 45 s"],
    stock_joins=[6.0],
    torch_kills=[Restart(6.5, 40), Restart(7.5, 60)],
    torch_freezes=["no step within 45 s"],
    torch_note="PyTorch",
    pairs=[Pair(Window(30.0, 0.05, 0.001, 0.004), Window(32.0, 0.05, 0.0, 0.0))],
)


def record(event: str, time: float, *, pid: int = 1, generation: int = 2, **fields: object) -> Record:
    return Record(time, event, "localhost", 0, pid, 0, generation, fields)


def test_the_phases_of_a_recovery_add_up_to_its_time() -> None:
    seen = [
        record("WorkerLost", 10.1),
        record("WorkerStarted", 10.15, worker_pid=7),
        record("CollectiveFailed", 10.2, step=100),
        record("WorldFormed", 10.4, step=100, phases_s={"sync": 0.1}),
        record("WorldFormed", 10.45, pid=7, step=100, phases_s={"sync": 0.15}),
        record("FirstStepDone", 10.48),
        record("FirstStepDone", 10.5, pid=7),
    ]
    found = recovery(seen, at=10.0, generation=2)
    assert found.total_s == pytest.approx(0.5)
    assert found.phases_s == pytest.approx(KILL.phases_s)
    assert found.done_again == 0


def test_rounds_are_cut_into_turns_that_differ_by_one_at_most() -> None:
    assert share(10, 3) == [4, 3, 3]
    assert share(1, 2) == [1, 0]


def test_the_order_within_a_pair_turns_with_each() -> None:
    assert "".join("".join(throughput.in_turn("A", "B", number)) for number in range(4)) == "ABBAABBA"


def test_the_table_holds_every_system() -> None:
    lines = table(figures(ALL)).splitlines()
    assert lines[2].endswith(
        "| 0.50 s (0.50 to 0.50, n = 1) | the job ends (exit code 1) | 7.00 s (6.50 to 7.50, n = 2) |"
    )
    assert "| steps done again per kill | 0 | - | 50 (40 to 60) |" in lines


def test_what_was_not_measured_is_a_dash() -> None:
    lines = table(figures(Measured())).splitlines()
    assert lines[2] == "| SIGKILL of a worker -> next step on both | - | - | - |"
    assert bars(figures(Measured())) == []


def test_figures_survive_being_kept_as_json() -> None:
    assert table(json.loads(json.dumps(figures(ALL)))) == table(figures(ALL))


def test_the_same_figures_make_the_same_picture(tmp_path: Path) -> None:
    first, second = tmp_path / "first.svg", tmp_path / "second.svg"
    draw(figures(ALL), first)
    draw(figures(ALL), second)
    assert first.read_bytes() == second.read_bytes()
    assert b"SIGKILL: torchrun" in first.read_bytes()
