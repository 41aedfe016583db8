from dataclasses import FrozenInstanceError
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic.progress import Progress

STEPS = st.lists(st.one_of(st.integers(1, 1000), st.just("epoch")), max_size=20)


def walk(moves: list[int | str]) -> list[Progress]:
    points = [Progress()]
    for move in moves:
        points.append(points[-1].after_epoch() if move == "epoch" else points[-1].after_step(int(move)))
    return points


def test_a_step_counts_in_the_epoch_and_in_all() -> None:
    before = Progress(epoch=2, consumed=30, epoch_step=3, step=13, samples=130)
    assert before.after_step(7) == Progress(epoch=2, consumed=37, epoch_step=4, step=14, samples=137)


def test_a_new_epoch_forgets_its_own_counts_alone() -> None:
    before = Progress(epoch=2, consumed=37, epoch_step=4, step=14, samples=137)
    assert before.after_epoch() == Progress(epoch=3, consumed=0, epoch_step=0, step=14, samples=137)


@given(STEPS)
def test_every_move_leads_further(moves: list[int | str]) -> None:
    points = walk(moves)
    assert all(a < b for a, b in pairwise(points))
    assert max(points) == points[-1]


@given(STEPS)
def test_totals_are_the_sums_of_the_steps(moves: list[int | str]) -> None:
    steps = [int(move) for move in moves if move != "epoch"]
    end = walk(moves)[-1]
    assert (end.step, end.samples, end.epoch) == (len(steps), sum(steps), len(moves) - len(steps))


@pytest.mark.parametrize(
    ("behind", "ahead"),
    [
        (Progress(epoch=0, consumed=900, step=9), Progress(epoch=1, consumed=0, step=9)),
        (Progress(epoch=1, consumed=64), Progress(epoch=1, consumed=65)),
        (Progress(epoch=1, consumed=64, epoch_step=1), Progress(epoch=1, consumed=64, epoch_step=2)),
    ],
)
def test_the_epoch_counts_before_the_samples_in_it(behind: Progress, ahead: Progress) -> None:
    assert behind < ahead


def test_a_point_of_training_does_not_change() -> None:
    with pytest.raises(FrozenInstanceError):
        Progress().step = 1  # type: ignore[misc]
