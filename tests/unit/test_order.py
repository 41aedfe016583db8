from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic.config import Batch
from elastic.worker.order import Cut, cut, owed, permute, shard

SEEDS = st.integers(-(2**31), 2**64)
SIZES = st.integers(1, 7)


def full(n: int, seed: int, epoch: int) -> list[int]:
    return permute(np.arange(n), n, seed, epoch).tolist()


def world(n: int, consumed: int, batch: int, size: int, drop_last: bool = False) -> list[Cut]:
    return [cut(n, consumed, batch, rank, size, drop_last) for rank in range(size)]


def epoch_through_resizes(
    n: int, batch: Batch, worlds: list[tuple[int, int]], last_size: int, drop_last: bool
) -> tuple[list[int], int]:
    """Return the positions fed, over all ranks, and the samples counted, when each world does so many steps."""
    fed: list[int] = []
    consumed = 0
    for size, steps in [*worlds, (last_size, n + 1)]:
        cuts = world(n, consumed, batch.total(size), size, drop_last)
        for step in range(min(steps, cuts[0].steps)):
            fed += [p for c in cuts for p in range(c.low[step], c.high[step])]
            consumed += int(cuts[0].total[step])
    return fed, consumed


@given(st.integers(0, 300), SEEDS, st.integers(0, 1_000_000))
def test_an_epochs_order_holds_every_sample_once(n: int, seed: int, epoch: int) -> None:
    assert sorted(full(n, seed, epoch)) == list(range(n))


@given(st.integers(1, 300), SEEDS, st.data())
def test_a_position_has_its_sample_whatever_else_is_asked_for(n: int, seed: int, data: st.DataObject) -> None:
    some = data.draw(st.lists(st.integers(0, n - 1)))
    order = full(n, seed, 3)
    assert permute(np.array(some, np.int64), n, seed, 3).tolist() == [order[p] for p in some]


def test_epochs_and_seeds_have_orders_of_their_own() -> None:
    orders = [full(1000, seed, epoch) for seed in (1, 2) for epoch in (0, 1, 2)] + [list(range(1000))]
    agreeing = [sum(a == b for a, b in zip(x, y, strict=True)) for i, x in enumerate(orders) for y in orders[:i]]
    assert max(agreeing) < 20  # chance would have one of 1000 agree


def test_an_order_is_well_mixed() -> None:
    order = np.array(full(4096, 1, 0))
    assert abs(np.corrcoef(np.arange(4096), order)[0, 1]) < 0.05
    assert abs(np.corrcoef(order[:-1], order[1:])[0, 1]) < 0.05
    assert np.mean(np.abs(np.diff(order)) == 1) < 0.01


def test_the_order_stays_what_it_is_since_checkpoints_count_on_it() -> None:
    assert full(10, 1, 0) == [4, 1, 0, 8, 6, 9, 7, 5, 2, 3]


@given(
    st.integers(0, 120),
    st.one_of(st.builds(Batch, per_worker=st.integers(1, 20)), st.builds(Batch, global_=st.integers(1, 60))),
    st.lists(st.tuples(SIZES, st.integers(0, 5)), max_size=5),
    SIZES,
)
def test_an_epoch_feeds_every_sample_once_through_any_resizes(
    n: int, batch: Batch, worlds: list[tuple[int, int]], last_size: int
) -> None:
    fed, consumed = epoch_through_resizes(n, batch, worlds, last_size, drop_last=False)
    assert Counter(fed) == Counter(range(n))
    assert consumed == n


@given(st.integers(0, 120), st.integers(1, 40), st.lists(st.tuples(SIZES, st.integers(0, 5)), max_size=5), SIZES)
def test_dropping_the_last_batch_leaves_out_what_does_not_fill_one(
    n: int, batch: int, worlds: list[tuple[int, int]], last_size: int
) -> None:
    fed, consumed = epoch_through_resizes(n, Batch(global_=batch), worlds, last_size, drop_last=True)
    assert fed == list(range(n - n % batch))
    assert consumed == owed(n, batch, drop_last=True) == n - n % batch


@given(st.integers(0, 200), st.integers(1, 60), SIZES, st.booleans(), st.data())
def test_the_ranks_runs_tile_each_steps_batch(n: int, batch: int, size: int, drop: bool, data: st.DataObject) -> None:
    consumed = data.draw(st.integers(0, n))
    cuts = world(n, consumed, batch, size, drop)
    assert len({c.steps for c in cuts}) == 1
    at = consumed
    for step in range(cuts[0].steps):
        assert len({int(c.total[step]) for c in cuts}) == 1
        assert cuts[0].low[step] == at
        assert all(a.high[step] == b.low[step] for a, b in pairwise(cuts))
        at += int(cuts[0].total[step])
        assert cuts[-1].high[step] == at
        lengths = [int(c.high[step] - c.low[step]) for c in cuts]
        assert max(lengths) - min(lengths) <= 1


@given(st.integers(1, 200), st.integers(1, 60), SIZES, SIZES)
def test_steps_have_the_same_samples_in_a_world_of_any_size(n: int, batch: int, one: int, other: int) -> None:
    def batches(size: int) -> list[tuple[int, int]]:
        cuts = world(n, 0, batch, size)
        return list(zip(cuts[0].low.tolist(), cuts[-1].high.tolist(), strict=True))

    assert batches(one) == batches(other)


@pytest.mark.parametrize(
    ("n", "consumed", "batch", "drop", "totals"),
    [
        (10, 0, 4, False, [4, 4, 2]),
        (10, 0, 4, True, [4, 4]),
        (10, 3, 4, False, [4, 3]),
        (10, 3, 4, True, [4]),
        (8, 0, 4, True, [4, 4]),
        (3, 0, 4, True, []),
        (10, 10, 4, False, []),
        (0, 0, 4, False, []),
    ],
)
def test_an_epoch_has_these_steps(n: int, consumed: int, batch: int, drop: bool, totals: list[int]) -> None:
    assert cut(n, consumed, batch, 0, 2, drop).total.tolist() == totals


def test_with_fewer_samples_than_workers_some_get_none_and_all_do_the_step() -> None:
    cuts = world(2, 0, 50, 5)
    assert [c.steps for c in cuts] == [1] * 5
    assert sorted(int(c.high[0] - c.low[0]) for c in cuts) == [0, 0, 0, 1, 1]


@pytest.mark.parametrize(("n", "batch", "drop", "samples"), [(10, 4, False, 10), (10, 4, True, 8), (3, 4, True, 0)])
def test_an_epoch_owes_its_samples(n: int, batch: int, drop: bool, samples: int) -> None:
    assert owed(n, batch, drop) == samples


@given(st.integers(0, 100), SIZES)
def test_validation_shards_tile_the_samples_evenly(n: int, size: int) -> None:
    shards = [shard(n, rank, size) for rank in range(size)]
    assert [p for low, high in shards for p in range(low, high)] == list(range(n))
    lengths = [high - low for low, high in shards]
    assert max(lengths) - min(lengths) <= 1
