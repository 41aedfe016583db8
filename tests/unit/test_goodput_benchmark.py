"""What the benchmark of goodput makes of the steps that it saw."""

import json
from pathlib import Path

import pytest

from benchmarks.goodput import Round, Window, figures, gained, table, verdict
from benchmarks.goodput_plot import draw
from benchmarks.others import Row


def rows(*seen: tuple[float, int, int]) -> list[Row]:
    return [Row(time, 0, size, step, 0) for time, size, step in seen]


def test_steps_before_the_window_do_not_count() -> None:
    assert gained(rows((1.0, 2, 10), (11.0, 2, 15), (31.0, 2, 99)), 10.0, [20.0]) == [5.0]


def test_what_is_done_again_is_no_gain() -> None:
    seen = rows((11.0, 2, 5), (12.0, 2, 6), (13.0, 2, 3), (14.0, 2, 6), (15.0, 2, 8))
    assert gained(seen, 10.0, [12.5, 14.5, 20.0]) == [6.0, 6.0, 8.0]


def test_the_step_of_a_lone_worker_counts_half() -> None:
    assert gained(rows((1.0, 2, 10), (11.0, 1, 14)), 10.0, [20.0]) == [2.0]


def test_the_same_step_of_two_workers_counts_once() -> None:
    assert gained(rows((11.0, 2, 1), (11.1, 2, 1), (11.2, 2, 2), (11.3, 2, 2)), 10.0, [20.0]) == [2.0]


@pytest.mark.parametrize(
    ("medians", "reached"),
    [
        ({"ours": 0.95, "torchrun": 0.40}, True),
        ({"ours": 0.89, "torchrun": 0.40}, False),
        ({"ours": 0.95, "torchrun": 0.40, "torchft": 0.48}, False),
        ({"ours": 0.95}, True),
    ],
)
def test_ours_must_be_good_and_twice_as_good_as_the_best_peer(medians: dict[str, float], reached: bool) -> None:
    assert verdict(medians)["reached"] is reached


def one(share: float, ended_s: float | None = None) -> Round:
    return Round(Window(100.0, 0, ()), Window(100.0 * share, 18, (10.0, 20.0), ended_s))


RESULT = {"ours": [one(0.95)], "stock": [one(0.1, 22.0)]}


def test_the_table_tells_of_a_job_that_ended_and_of_a_peer_that_is_not_there() -> None:
    text = table(figures(RESULT, {"torchft": "torchft not installed"}, 180.0, 10.0))
    assert "| ours | 0.950 (0.950 to 0.950, n = 1) | 95 | 100 | 18 |" in text
    assert "n = 1); the job ended after 22 s | 10 | 100 | 18 |" in text
    assert "| torchft, documented settings | left out: torchft not installed |" in text
    assert "reached (9.5 times the best peer's)" in text


def test_the_figures_survive_being_kept_and_are_drawn(tmp_path: Path) -> None:
    kept = json.loads(json.dumps(figures(RESULT, {}, 180.0, 10.0)))
    assert table(kept) == table(figures(RESULT, {}, 180.0, 10.0))
    draw(kept, tmp_path / "goodput.svg")
    assert b"stock Horovod Elastic, two hosts: 0.10" in (tmp_path / "goodput.svg").read_bytes()
