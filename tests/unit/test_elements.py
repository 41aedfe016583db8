"""A tf.data.Dataset as a source, read through by every worker."""

import logging
from itertools import islice
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from elastic.errors import ConfigError
from elastic.worker.augment import PerSample
from elastic.worker.data import Arrays, as_source
from elastic.worker.elements import Elements
from elastic.worker.elements_feed import ElementsFeed
from elastic.worker.feed import Feed
from elastic.worker.order import cut, shard


def dataset(n: int) -> Any:
    return tf.data.Dataset.range(n).map(lambda i: (tf.cast([i, i], tf.float32), i * 10))


def fed(feed: ElementsFeed, consumed: int, batch: int, rank: int, size: int, **cuts: Any) -> list[Any]:
    """Return for each of a rank's steps its pieces, as (shard, share, first, indices)."""
    part = cut(len(feed.source), consumed, batch, rank, size, **cuts)
    pieces, steps = feed.training(part, 1, 0), []
    for step in range(part.steps):
        steps.append([])
        for (x, y), piece in islice(pieces, part.pieces(step)):
            indices = piece.indices.numpy().tolist()
            assert y.numpy().tolist()[: len(indices)] == [i * 10 for i in indices]
            assert x.numpy()[: len(indices), 1].tolist() == indices
            assert len(x) == max(1, len(indices))
            steps[-1].append((int(piece.shard), float(piece.share), bool(piece.first), indices))
    assert list(pieces) == []
    return steps


@settings(max_examples=8, deadline=None)
@given(
    st.integers(1, 30),
    st.integers(1, 9),
    st.integers(1, 4),
    st.integers(0, 3),
    st.one_of(st.none(), st.integers(1, 3)),
    st.booleans(),
    st.data(),
)
def test_the_ranks_read_what_a_feed_of_arrays_would_in_the_datasets_order(
    n: int, batch: int, size: int, more: int, micro: int | None, drop: bool, data: st.DataObject
) -> None:
    consumed = data.draw(st.integers(0, n - 1))
    feed = ElementsFeed(Elements(dataset(n)))
    read: list[int] = []
    for rank in range(size):
        cuts = {"shards": size + more, "micro": micro, "drop_last": drop}
        part = cut(n, consumed, batch, rank, size, **cuts)  # type: ignore[arg-type]
        for step, pieces in enumerate(fed(feed, consumed, batch, rank, size, **cuts)):
            start = consumed + step * batch
            for number, ((of, share, first, indices), run) in enumerate(zip(pieces, part.runs(step), strict=True)):
                assert indices == list(range(start + run.low, start + run.high))
                assert (of, first) == (run.shard, number == 0)
                assert share == pytest.approx((run.high - run.low) / part.total(step))
                read += indices
    left = n - consumed
    assert sorted(read) == list(range(consumed, n - left % batch if drop else n))


def test_nothing_is_traced_again_for_another_world() -> None:
    calls = []

    def count(i: Any) -> Any:
        calls.append(i)
        return i

    feed = ElementsFeed(Elements(dataset(10)), PerSample(lambda seed, x, y: (count(x), y)))
    traced = len(calls)
    for consumed, size in ((0, 1), (4, 2), (7, 3)):
        fed(feed, consumed, 3, size - 1, size)
    assert len(calls) == traced


def test_validation_covers_every_element_once_in_order() -> None:
    feed, found = ElementsFeed(Elements(dataset(10))), []
    for rank in range(3):
        low, high = shard(10, rank, 3)
        for (_, y), piece in islice(feed.validation(low, high, 2), -(-(high - low) // 2)):
            assert float(piece.share) == 1.0
            assert y.numpy().tolist() == [i * 10 for i in piece.indices.numpy().tolist()]
            found += piece.indices.numpy().tolist()
    assert found == list(range(10))
    assert float(next(feed.validation(3, 3, 2))[1].share) == 0.0


def test_a_sample_is_augmented_as_it_would_be_from_an_array() -> None:
    def noisy(seed: Any, x: Any, y: Any) -> Any:
        return x + tf.random.stateless_uniform([2], seed), y

    def sums(feed: Feed | ElementsFeed) -> dict[int, float]:
        (x, _), piece = next(feed.training(cut(8, 0, 8, 0, 1), 4, 2))  # type: ignore[misc]
        return dict(zip(piece.indices.numpy().tolist(), x.numpy().sum(axis=1).tolist(), strict=True))

    x = np.arange(8, dtype=np.float32)[:, np.newaxis].repeat(2, axis=1)
    arrays = Arrays((x, np.arange(8, dtype=np.int64) * 10))
    assert sums(ElementsFeed(Elements(dataset(8)), PerSample(noisy))) == sums(Feed(arrays, PerSample(noisy)))


@pytest.mark.parametrize(
    "batched",
    [
        dataset(10).batch(4),
        dataset(10).batch(5, drop_remainder=True),
        dataset(10).batch(4).prefetch(2).map(lambda x, y: (x, y)),
        dataset(10).padded_batch(3),
        tf.data.Dataset.from_generator(
            lambda: iter([(np.zeros((4, 2)), np.zeros(4)), (np.zeros((6, 2)), np.zeros(6))]),
            output_signature=(tf.TensorSpec([None, 2]), tf.TensorSpec([None])),
        ),
    ],
    ids=["batch", "even", "batch and more", "padded", "generator"],
)
def test_a_batched_dataset_is_unbatched_and_its_user_told(batched: Any, caplog: pytest.LogCaptureFixture) -> None:
    source = as_source(batched)
    assert len(source) == 10
    assert [part.shape for part in source[np.array([9, 0])]] == [(2, 2), (2,)]
    assert "leave out .batch()" in caplog.text


@pytest.mark.parametrize("single", [dataset(10), dataset(10).batch(2).unbatch(), tf.data.Dataset.range(10)])
def test_a_dataset_of_single_samples_is_taken_as_it_is(single: Any, caplog: pytest.LogCaptureFixture) -> None:
    assert len(as_source(single)) == 10
    assert "leave out .batch()" not in caplog.text
    assert "every worker reads all of it" in caplog.text


def test_a_dataset_that_does_not_know_its_length_is_counted_once(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "elastic"):
        source = as_source(dataset(10).filter(lambda x, y: y % 20 == 0))
    assert len(source) == 5
    assert "has 5 elements" in caplog.text


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (dataset(3).repeat(), r"endless tf\.data\.Dataset, expected one epoch: leave out \.repeat\(\)"),
        (dataset(3).shuffle(3), r"shuffled anew .*: leave out \.shuffle\(\)"),
        (dataset(3).shuffle(3, seed=1).batch(2).prefetch(1), "shuffled anew"),
    ],
    ids=["endless", "shuffled", "shuffled and more"],
)
def test_a_dataset_that_is_not_the_same_each_time_is_refused(data: Any, expected: str) -> None:
    with pytest.raises(ConfigError, match=expected):
        as_source(data)


def test_a_dataset_brings_its_own_targets() -> None:
    with pytest.raises(ConfigError, match=r"brings its targets and weights: leave out y"):
        as_source(dataset(3), np.zeros(3))


def test_the_same_shuffle_each_time_is_an_order_like_any_other() -> None:
    assert len(as_source(dataset(3).shuffle(3, seed=1, reshuffle_each_iteration=False))) == 3
