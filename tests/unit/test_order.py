from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from elastic.config import Batch
from elastic.worker.order import Cut, cut, grid, keys, owed, permute, shard
from elastic.worker.order_ops import Order

SEEDS = st.integers(-(2**31), 2**64)
SIZES = st.integers(1, 7)
MICROS = st.one_of(st.none(), st.integers(1, 12))


def full(n: int, seed: int, epoch: int) -> list[int]:
    return permute(np.arange(n), n, seed, epoch).tolist()


def world(
    n: int,
    consumed: int,
    batch: int,
    size: int,
    drop_last: bool = False,
    shards: int | None = None,
    micro: int | None = None,
) -> list[Cut]:
    return [cut(n, consumed, batch, rank, size, drop_last, shards=shards, micro=micro) for rank in range(size)]


def positions(part: Cut, step: int) -> list[int]:
    """Return the positions of the epoch's order that a rank feeds in a step, piece after piece."""
    start = part.start + step * part.batch
    return [start + offset for run in part.runs(step) for offset in range(run.low, run.high)]


def epoch_through_resizes(
    n: int, batch: Batch, worlds: list[tuple[int, int]], last_size: int, drop_last: bool, micro: int | None = None
) -> tuple[list[int], int]:
    """Return the positions fed, over all ranks, and the samples counted, when each world does so many steps."""
    fed: list[int] = []
    consumed = 0
    for size, steps in [*worlds, (last_size, n + 1)]:
        cuts = world(n, consumed, batch.total(size), size, drop_last, micro=micro)
        for step in range(min(steps, cuts[0].steps)):
            fed += [p for c in cuts for p in positions(c, step)]
            consumed += cuts[0].total(step)
    return fed, consumed


@given(st.integers(0, 300), SEEDS, st.integers(0, 1_000_000))
def test_an_epochs_order_holds_every_sample_once(n: int, seed: int, epoch: int) -> None:
    assert sorted(full(n, seed, epoch)) == list(range(n))


@given(st.integers(1, 300), SEEDS, st.data())
def test_a_position_has_its_sample_whatever_else_is_asked_for(n: int, seed: int, data: st.DataObject) -> None:
    some = data.draw(st.lists(st.integers(0, n - 1)))
    order = full(n, seed, 3)
    assert permute(np.array(some, np.int64), n, seed, 3).tolist() == [order[p] for p in some]


@given(st.integers(1, 2**62))
def test_the_grid_holds_all_samples_and_hardly_a_cell_more(n: int) -> None:
    rows, columns = grid(n)
    assert n <= rows * columns < n + rows
    assert columns <= rows <= 2**31


def test_epochs_and_seeds_have_orders_of_their_own() -> None:
    orders = [full(1000, seed, epoch) for seed in (1, 2) for epoch in (0, 1, 2)] + [list(range(1000))]
    agreeing = [sum(a == b for a, b in zip(x, y, strict=True)) for i, x in enumerate(orders) for y in orders[:i]]
    assert max(agreeing) < 20  # chance would have one of 1000 agree


@pytest.mark.parametrize("n", [4096, 5000])
def test_an_order_is_well_mixed(n: int) -> None:
    order = np.array(full(n, 1, 0))
    assert abs(np.corrcoef(np.arange(n), order)[0, 1]) < 0.05
    assert abs(np.corrcoef(order[:-1], order[1:])[0, 1]) < 0.05
    assert np.mean(np.abs(np.diff(order)) == 1) < 0.01


def test_every_sample_comes_first_in_about_as_many_epochs() -> None:
    firsts = Counter(int(permute(np.zeros(1, np.int64), 10, 1, epoch)[0]) for epoch in range(2000))
    assert all(140 < firsts[sample] < 260 for sample in range(10))  # 200 +- 4.5 standard deviations


def test_batches_are_as_mixed_as_chance_would_have_them() -> None:
    order = np.array(full(10_000, 3, 0)).reshape(100, 100)
    spread = [np.bincount(batch // 1000, minlength=10) for batch in order]
    assert np.var(spread) == pytest.approx(9.0, rel=0.15)  # of a hypergeometric draw: 100 * 0.1 * 0.9 * 0.99


def test_the_order_stays_what_it_is_since_checkpoints_count_on_it() -> None:
    assert full(10, 1, 0) == [6, 9, 7, 1, 0, 3, 2, 8, 4, 5]


@settings(max_examples=30, deadline=None)
@given(st.one_of(st.integers(1, 40), st.integers(1, 2**62)), SEEDS, st.integers(0, 1_000_000), st.data())
def test_tensorflow_has_the_same_order(n: int, seed: int, epoch: int, data: st.DataObject) -> None:
    asked = np.array(data.draw(st.lists(st.integers(0, n - 1), max_size=40)), np.int64)
    order = Order(n)
    order.begin(seed, epoch)
    assert order.indices(tf.constant(asked)).numpy().tolist() == permute(asked, n, seed, epoch).tolist()


@pytest.mark.timeout(60)
def test_what_lies_outside_of_an_epoch_is_no_endless_walk() -> None:
    order = Order(3)  # of a grid of four cells: where the fourth one leads to itself, a walk from it has no end
    for epoch in range(40):
        order.begin(7, epoch)
        inside = order.indices(tf.constant([0, 2], tf.int64)).numpy()
        outside = order.indices(tf.constant([-1, 3, 1000], tf.int64)).numpy()
        assert outside.tolist() == [inside[0], inside[1], inside[1]]


def test_tensorflow_traces_the_order_once_for_all_epochs() -> None:
    order = Order(1000)
    traced = tf.function(order.indices)
    for epoch in range(3):
        order.begin(7, epoch)
        found = traced(tf.range(1000, dtype=tf.int64)).numpy()
        np.testing.assert_array_equal(found, permute(np.arange(1000), 1000, 7, epoch))
    assert traced.experimental_get_tracing_count() == 1


def test_samples_seeds_differ_by_sample_epoch_and_job_alone() -> None:
    def seeds(seed: int, epoch: int, indices: list[int]) -> list[tuple[int, ...]]:
        order = Order(1000)
        order.begin(seed, epoch)
        return [tuple(s) for s in order.seeds(tf.constant(indices, tf.int64)).numpy().tolist()]

    everything = [s for seed in (1, 2) for epoch in (0, 1) for s in seeds(seed, epoch, list(range(1000)))]
    assert len(set(everything)) == 4000
    assert seeds(1, 0, [5, 3]) == [everything[5], everything[3]]


@given(st.integers(-5, 5), st.integers(0, 5))
def test_an_epochs_numbers_are_the_same_everywhere(seed: int, epoch: int) -> None:
    assert keys(seed, epoch).tolist() == keys(seed, epoch).tolist()
    assert len(set(keys(seed, epoch).tolist())) == 8


@given(
    st.integers(0, 120),
    st.one_of(st.builds(Batch, per_worker=st.integers(1, 20)), st.builds(Batch, global_=st.integers(1, 60))),
    st.lists(st.tuples(SIZES, st.integers(0, 5)), max_size=5),
    SIZES,
    MICROS,
)
def test_an_epoch_feeds_every_sample_once_through_any_resizes(
    n: int, batch: Batch, worlds: list[tuple[int, int]], last_size: int, micro: int | None
) -> None:
    fed, consumed = epoch_through_resizes(n, batch, worlds, last_size, drop_last=False, micro=micro)
    assert Counter(fed) == Counter(range(n))
    assert consumed == n


@given(st.integers(0, 120), st.integers(1, 40), st.lists(st.tuples(SIZES, st.integers(0, 5)), max_size=5), SIZES)
def test_dropping_the_last_batch_leaves_out_what_does_not_fill_one(
    n: int, batch: int, worlds: list[tuple[int, int]], last_size: int
) -> None:
    fed, consumed = epoch_through_resizes(n, Batch(global_=batch), worlds, last_size, drop_last=True)
    assert fed == list(range(n - n % batch))
    assert consumed == owed(n, batch, drop_last=True) == n - n % batch


@given(st.integers(0, 200), st.integers(1, 60), SIZES, st.booleans(), MICROS, st.data())
def test_the_ranks_pieces_tile_each_steps_batch(
    n: int, batch: int, size: int, drop: bool, micro: int | None, data: st.DataObject
) -> None:
    consumed = data.draw(st.integers(0, n))
    cuts = world(n, consumed, batch, size, drop, micro=micro)
    assert len({c.steps for c in cuts}) == 1
    at = consumed
    for step in range(cuts[0].steps):
        assert len({c.total(step) for c in cuts}) == 1
        fed = [positions(c, step) for c in cuts]
        assert [p for mine in fed for p in mine] == list(range(at, at + cuts[0].total(step)))
        at += cuts[0].total(step)
        lengths = [len(mine) for mine in fed]
        assert max(lengths) - min(lengths) <= 1


@given(st.integers(1, 200), st.integers(1, 60), st.integers(1, 12), SIZES, SIZES, MICROS)
def test_a_fixed_number_of_shards_has_the_same_pieces_in_a_world_of_any_size(
    n: int, batch: int, more: int, one: int, other: int, micro: int | None
) -> None:
    shards = max(one, other) + more

    def pieces(size: int) -> list[list[tuple[int, int, int]]]:
        cuts = world(n, 0, batch, size, shards=shards, micro=micro)
        return [
            [(r.low, r.high, r.shard) for c in cuts for r in c.runs(s) if r.low < r.high] for s in range(cuts[0].steps)
        ]

    assert pieces(one) == pieces(other)


@given(st.integers(1, 100), SIZES, st.integers(0, 9), st.integers(1, 12))
def test_pieces_hold_at_most_micro_samples_and_cover_their_shards_evenly(
    batch: int, size: int, more: int, micro: int
) -> None:
    shards = size + more
    for rank, part in enumerate(world(batch, 0, batch, size, shards=shards, micro=micro)):
        runs = [run for run in part.runs(0) if run.low < run.high]
        assert all(run.high - run.low <= micro for run in runs)
        for number in range(shards):
            low, high = batch * number // shards, batch * (number + 1) // shards
            mine = [run for run in runs if run.shard == number]
            if not shards * rank // size <= number < shards * (rank + 1) // size or low == high:
                assert mine == []
                continue
            assert (mine[0].low, mine[-1].high) == (low, high)
            assert all(a.high == b.low for a, b in pairwise(mine))
            lengths = [run.high - run.low for run in mine]
            assert max(lengths) - min(lengths) <= 1
            assert len(mine) == -(-(high - low) // micro)


@given(st.integers(1, 30), st.integers(1, 60), SIZES, st.integers(0, 9), MICROS)
def test_a_rank_without_samples_has_one_stand_in_whose_sample_exists(
    n: int, batch: int, size: int, more: int, micro: int | None
) -> None:
    for part in world(n, 0, batch, size, shards=size + more, micro=micro):
        for step in range(part.steps):
            runs = part.runs(step)
            assert part.pieces(step) == len(runs) >= 1
            if any(run.low == run.high for run in runs):
                assert len(runs) == 1
                assert part.start + step * part.batch + runs[0].low < n


@given(st.integers(1, 200), st.integers(1, 60), SIZES, SIZES)
def test_steps_have_the_same_samples_in_a_world_of_any_size(n: int, batch: int, one: int, other: int) -> None:
    def batches(size: int) -> list[list[int]]:
        cuts = world(n, 0, batch, size)
        return [[p for c in cuts for p in positions(c, step)] for step in range(cuts[0].steps)]

    assert batches(one) == batches(other)


@pytest.mark.parametrize(
    ("n", "consumed", "batch", "drop", "totals"),
    [
        (10, 0, 4, False, [4, 4, 2]),
        (10, 0, 4, True, [4, 4]),
        (10, 3, 4, False, [4, 3]),
        (10, 3, 4, True, [4]),
        (10, 9, 4, False, [1]),
        (10, 9, 4, True, []),
        (8, 0, 4, True, [4, 4]),
        (3, 0, 4, True, []),
        (10, 10, 4, False, []),
        (0, 0, 4, False, []),
    ],
)
def test_an_epoch_has_these_steps(n: int, consumed: int, batch: int, drop: bool, totals: list[int]) -> None:
    part = cut(n, consumed, batch, 0, 2, drop)
    assert [part.total(step) for step in range(part.steps)] == totals


def test_a_resize_within_what_was_to_be_the_last_batch_cuts_the_rest_anew() -> None:
    assert [part.total(0) for part in world(10, 8, 4, 1)] == [2]
    fed, consumed = epoch_through_resizes(10, Batch(per_worker=3), [(2, 1), (1, 1)], 3, drop_last=False)
    assert (fed, consumed) == (list(range(10)), 10)


def test_a_cut_is_as_small_for_many_steps_as_for_one() -> None:
    part = cut(10**12, 5, 64, 1, 2)
    assert part.steps == -(-(10**12 - 5) // 64)
    assert (len(part.full), len(part.partial)) == (1, 1)


def test_with_fewer_samples_than_workers_some_get_none_and_all_do_the_step() -> None:
    cuts = world(2, 0, 50, 5)
    assert [c.steps for c in cuts] == [1] * 5
    assert sorted(len(positions(c, 0)) for c in cuts) == [0, 0, 0, 1, 1]


@pytest.mark.parametrize(("n", "batch", "drop", "samples"), [(10, 4, False, 10), (10, 4, True, 8), (3, 4, True, 0)])
def test_an_epoch_owes_its_samples(n: int, batch: int, drop: bool, samples: int) -> None:
    assert owed(n, batch, drop) == samples


@given(st.integers(0, 100), SIZES)
def test_validation_shards_tile_the_samples_evenly(n: int, size: int) -> None:
    shards = [shard(n, rank, size) for rank in range(size)]
    assert [p for low, high in shards for p in range(low, high)] == list(range(n))
    lengths = [high - low for low, high in shards]
    assert max(lengths) - min(lengths) <= 1
