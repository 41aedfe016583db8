import traceback
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import keras
import numpy as np
import psutil
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from elastic.errors import ConfigError, SampleError
from elastic.worker.data import Arrays, as_source, split
from elastic.worker.feed import Feed
from elastic.worker.order import Cut, cut, permute, shard


def numbered(n: int) -> Arrays:
    """Return a source whose x is the sample's number and whose y is ten times that."""
    return Arrays((np.arange(n, dtype=np.float32)[:, np.newaxis], np.arange(n) * 10))


def test_a_graph_that_reads_arrays_does_not_hold_them() -> None:
    arrays, sizes = Arrays((np.zeros((1000, 1000), np.float32),)), []

    @tf.function
    def reading(indices: tf.Tensor) -> Any:
        samples = arrays.fetch(indices)
        sizes.append(tf.compat.v1.get_default_graph().as_graph_def().ByteSize())
        return samples

    reading(tf.constant([1, 2], tf.int64))
    assert max(sizes) < 100_000  # of 4 MB; 2 GB are the most that a graph can hold


class Squares:
    """A source of the user's own: no arrays."""

    def __init__(self, n: int) -> None:
        self.n = n
        self.asked: list[list[int]] = []

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, indices: NDArray[np.int64]) -> Any:
        self.asked.append(indices.tolist())
        return {"a": indices.astype(np.float32)}, indices**2


@cache
def feed_of(n: int) -> Feed:
    """Return a feed of so many numbers; there is one, as for a job."""
    return Feed(numbered(n))


def fed(feed: Feed, part: Cut, seed: int, epoch: int) -> list[Any]:
    """Return the pieces of a part of an epoch, all of them, as pairs of samples and piece."""
    pieces = feed.training(part, seed, epoch)
    return list(islice(pieces, sum(part.pieces(step) for step in range(part.steps))))


def batches(n: int, rank: int, size: int, batch: int, consumed: int = 0) -> list[tuple[list[int], float]]:
    found = fed(feed_of(n), cut(n, consumed, batch, rank, size), seed=5, epoch=2)
    return [(x.numpy()[:, 0].astype(int).tolist(), float(piece.share)) for (x, _), piece in found]


def test_arrays_of_different_length_are_the_users_to_change() -> None:
    with pytest.raises(ConfigError, match=r"different lengths: \[3, 4\]"):
        as_source((np.zeros((3, 2)), np.zeros(4)))


class Sequence(keras.utils.PyDataset):
    """Keras's own kind of source, indexed by batch."""

    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> Any:
        return np.zeros((8, 2)), np.zeros(8)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (Sequence(), "a PyDataset is indexed by batch"),
        ((x for x in range(3)), "generator"),
        (np.array([object()]), "one sample a row"),
        (np.array(3), "one sample a row"),
        (3, "found int"),
        ((), "different lengths"),
    ],
    ids=["py dataset", "generator", "objects", "scalar", "number", "nothing"],
)
def test_what_has_no_random_access_is_refused(data: Any, expected: str) -> None:
    with pytest.raises(ConfigError, match=expected):
        as_source(data)


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        ((np.zeros((3, 2)),), 1),
        (((np.zeros((3, 2)), np.zeros(3)),), 2),
        (([np.zeros((3, 2)), np.zeros(3)],), 2),
        ((np.zeros((3, 2)), np.zeros(3)), 2),
        ((np.zeros((3, 2)), np.zeros(3), np.ones(3)), 3),
        ((tf.zeros((3, 2)), tf.zeros(3)), 2),
        (({"a": np.zeros(3), "b": np.zeros((3, 1))}, np.zeros(3)), 2),
    ],
)
def test_arrays_become_a_source(arguments: tuple[Any, ...], parts: int) -> None:
    source = as_source(*arguments)
    found = source[np.array([0, 2])]
    assert len(source) == 3
    assert (len(found) if isinstance(found, tuple) else 1) == parts


def test_a_py_dataset_is_refused_beside_targets_too() -> None:
    with pytest.raises(ConfigError, match="a PyDataset is indexed by batch"):
        as_source(Sequence(), np.zeros(3))


class Frame:
    """What a data frame of pandas or polars looks like: `frame[indices]` would take columns."""

    def __init__(self, values: Any) -> None:
        self.values = np.array(values)

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, column: Any) -> Any:
        raise KeyError(column)

    def to_numpy(self) -> Any:
        return self.values

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return self.values


def test_a_data_frame_of_numbers_is_an_array() -> None:
    frame = Frame([[0.0, 1.0], [2.0, 3.0]])
    for source in (as_source(frame), as_source((frame, frame)), as_source(frame, frame)):
        assert isinstance(source, Arrays)
        assert len(source) == 2
        assert np.ravel(source[np.array([1])])[:2].tolist() == [2.0, 3.0]


def test_a_data_frame_with_more_than_numbers_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"found Frame \(object\), expected an array"):
        as_source(Frame([["a", None]]))


def test_a_source_of_the_users_own_is_taken_as_it_is() -> None:
    squares = Squares(4)
    assert as_source(squares) is squares


def test_wide_floats_become_what_models_compute_in_and_integers_stay() -> None:
    x, y = as_source((np.zeros(2), np.zeros(2, np.int64)))[np.array([0])]
    assert (x.dtype, y.dtype) == (np.float32, np.int64)


def test_a_split_takes_the_end_for_validation() -> None:
    first, last = split(numbered(10), 0.3)
    assert first[np.arange(len(first))][1].tolist() == [0, 10, 20, 30, 40, 50, 60]
    assert last[np.arange(len(last))][1].tolist() == [70, 80, 90]


@pytest.mark.parametrize("fraction", [0.0, 1.0, 0.999, -1.0])
def test_a_split_with_an_empty_part_is_refused(fraction: float) -> None:
    with pytest.raises(ConfigError, match="validation_split"):
        split(numbered(10), fraction)


def test_a_source_of_the_users_own_cannot_be_split() -> None:
    with pytest.raises(ConfigError, match="pass validation_data"):
        split(Squares(10), 0.5)


@settings(max_examples=6)
@given(st.integers(1, 40), st.integers(1, 20), st.integers(1, 4), st.data())
def test_the_ranks_batches_are_the_rest_of_the_epochs_order(n: int, batch: int, size: int, data: st.DataObject) -> None:
    consumed = data.draw(st.integers(0, n - 1))
    ranks = [batches(n, rank, size, batch, consumed) for rank in range(size)]
    fed = []
    for step in zip(*ranks, strict=True):
        assert sum(share for _, share in step) == pytest.approx(1.0)
        assert all(len(samples) >= 1 for samples, _ in step)
        real = [samples for samples, share in step if share > 0]
        total = sum(len(samples) for samples in real)
        assert [share for _, share in step if share > 0] == pytest.approx([len(s) / total for s in real])
        fed += [sample for samples in real for sample in samples]
    assert fed == permute(np.arange(consumed, n), n, 5, 2).tolist()


def test_a_rank_without_samples_gets_a_stand_in_that_counts_nothing() -> None:
    shares = [batches(2, rank, 4, 8) for rank in range(4)]
    assert [len(steps) for steps in shares] == [1] * 4
    assert [len(samples) for ((samples, _),) in shares] == [1] * 4
    assert [share for ((_, share),) in shares] == [0.0, 0.5, 0.0, 0.5]


def test_inputs_and_targets_stay_together() -> None:
    found = fed(feed_of(20), cut(20, 0, 6, 0, 1), seed=1, epoch=0)
    for (x, y), _ in found:
        np.testing.assert_array_equal(x.numpy()[:, 0] * 10, y.numpy())


def test_an_epoch_that_is_used_up_has_no_batches() -> None:
    assert batches(6, 0, 1, 4, consumed=6) == []


@settings(max_examples=6)
@given(st.integers(1, 40), st.integers(1, 20), st.integers(1, 3), st.integers(0, 4), st.integers(1, 6), st.data())
def test_pieces_say_which_samples_they_hold_and_what_part_of_the_step_they_are(
    n: int, batch: int, size: int, more: int, micro: int, data: st.DataObject
) -> None:
    consumed = data.draw(st.integers(0, n - 1))
    counted: list[int] = []
    for rank in range(size):
        part = cut(n, consumed, batch, rank, size, shards=size + more, micro=micro)
        found = iter(fed(feed_of(n), part, seed=5, epoch=2))
        for step in range(part.steps):
            for number, run in enumerate(part.runs(step)):
                (x, _), piece = next(found)
                indices = piece.indices.numpy().tolist()
                assert float(piece.share) == pytest.approx((run.high - run.low) / part.total(step))
                assert (int(piece.shard), bool(piece.first)) == (run.shard, number == 0)
                if run.low < run.high:
                    assert x.numpy()[:, 0].astype(int).tolist() == indices
                else:
                    assert (len(x), indices) == (1, [])
                counted += indices
        assert list(found) == []
    assert sorted(counted) == sorted(permute(np.arange(consumed, n), n, 5, 2).tolist())


def test_a_feed_goes_from_world_to_world_and_epoch_to_epoch_without_being_built_anew() -> None:
    feed = feed_of(10)

    def samples(part: Cut, epoch: int) -> list[int]:
        pieces = islice(feed.training(part, 1, epoch), part.steps)
        return [i for _, piece in pieces for i in piece.indices.numpy().tolist()]

    order = permute(np.arange(10), 10, 1, 0).tolist()
    assert samples(cut(10, 0, 4, 0, 1), 0) == order
    assert samples(cut(10, 7, 2, 1, 2), 0) == [order[8], order[9]]
    assert samples(cut(10, 0, 4, 0, 1), 1) == permute(np.arange(10), 10, 1, 1).tolist()
    assert [piece.indices.numpy().tolist() for _, piece in islice(feed.validation(2, 7, 3), 2)] == [[2, 3, 4], [5, 6]]
    assert samples(cut(10, 0, 4, 0, 1), 0) == order


def test_a_source_of_the_users_own_is_asked_for_this_ranks_samples_alone() -> None:
    squares = Squares(10)
    part = cut(10, 0, 4, rank=1, size=2)
    found = fed(Feed(squares), part, seed=5, epoch=0)
    order = permute(np.arange(10), 10, 5, 0)
    mine = [order[low:high].tolist() for low, high in ((2, 4), (6, 8), (9, 10))]
    assert squares.asked == [[0], *mine]  # the first to learn what a sample looks like
    for ((x, y), piece), indices in zip(found, mine, strict=True):
        assert x["a"].numpy().tolist() == indices == piece.indices.numpy().tolist()
        assert y.numpy().tolist() == [i**2 for i in indices]
        assert float(piece.share) == 0.5


def test_batches_of_a_users_source_have_a_static_shape_but_for_their_length() -> None:
    ((x, y), piece) = Feed(Squares(10)).training(cut(10, 0, 4, 0, 1), 5, 0).element_spec
    assert (x["a"].shape.as_list(), y.shape.as_list()) == ([None], [None])
    assert [(s.shape.as_list(), s.dtype) for s in piece] == [
        ([], tf.float32),
        ([], tf.int32),
        ([], tf.bool),
        ([None], tf.int64),
    ]


@pytest.mark.timeout(60)
def test_a_world_that_comes_after_an_epochs_last_step_has_nothing_left_to_feed() -> None:
    feed = feed_of(3)
    for epoch in range(40):  # in one of four of them, the fourth cell of the order's grid leads to itself
        feed.training(cut(3, 3, 8, 0, 3), 7, epoch)
        assert len(fed(feed, cut(3, 0, 8, 0, 1), 7, epoch)) == 1


@pytest.mark.parametrize(("n", "size", "batch"), [(10, 1, 4), (10, 3, 2), (2, 4, 8), (8, 2, 4)])
def test_validation_covers_every_sample_once_in_order(n: int, size: int, batch: int) -> None:
    seen = []
    for rank in range(size):
        low, high = shard(n, rank, size)
        for (x, _), piece in islice(feed_of(n).validation(low, high, batch), -(-(high - low) // batch)):
            assert 1 <= len(x) <= batch
            assert float(piece.share) == 1.0
            assert piece.indices.numpy().tolist() == x.numpy()[:, 0].astype(int).tolist()
            seen += x.numpy()[:, 0].astype(int).tolist()
    assert seen == list(range(n))


def test_a_rank_without_samples_to_validate_has_a_stand_in_to_hand() -> None:
    ((x, _), piece) = next(feed_of(2).validation(1, 1, 8))
    assert (len(x), piece.indices.numpy().tolist()) == (1, [])


class Broken(Squares):
    """Cannot read some of its samples."""

    def __init__(self, n: int, broken: set[int]) -> None:
        super().__init__(n)
        self.broken = broken

    def __getitem__(self, indices: NDArray[np.int64]) -> Any:
        for index in indices.tolist():
            if index in self.broken:
                raise KeyError(f"no record {index}")
        return super().__getitem__(indices)


@pytest.mark.parametrize("compiled", [False, True])
def test_a_sample_that_cannot_be_read_is_named_and_the_source_s_own_traceback_kept(compiled: bool) -> None:
    feed = Feed(Broken(20, {13}))
    pieces = feed.training(cut(20, 0, 20, 0, 1), 5, 0)
    take = tf.function(lambda: next(pieces), autograph=False) if compiled else lambda: next(pieces)
    with (
        pytest.raises(SampleError, match="data: sample 13 cannot be read: KeyError: 'no record 13'") as caught,
        feed.named(),
    ):
        take()
    cause = caught.value.__cause__
    assert isinstance(cause, KeyError)
    assert "raise KeyError" in "".join(traceback.format_exception(cause))


def test_a_sample_that_was_prefetched_for_another_world_fails_when_its_turn_comes() -> None:
    order = permute(np.arange(8), 8, 5, 0).tolist()
    feed = Feed(Broken(8, {order[3]}))
    pieces = feed.training(cut(8, 0, 1, 0, 1), 5, 0)
    assert next(pieces)[1].indices.numpy().tolist() == order[:1]  # the next are on their way
    pieces = feed.training(cut(8, 1, 2, 0, 1), 5, 0)
    assert next(pieces)[1].indices.numpy().tolist() == order[1:3]
    with pytest.raises(SampleError, match=f"sample {order[3]} "), feed.named():
        next(pieces)


def test_an_error_of_something_else_stays_what_it_is() -> None:
    feed = Feed(Squares(4))
    with pytest.raises(tf.errors.UnknownError, match="network"), feed.named():
        raise tf.errors.UnknownError(None, None, "network")


class Uneven(Squares):
    def __getitem__(self, indices: NDArray[np.int64]) -> Any:
        return np.zeros((len(indices), 3 if 7 in indices else 2), np.float32)


class Short(Squares):
    def __getitem__(self, indices: NDArray[np.int64]) -> Any:
        return indices[:1].astype(np.float32)


def test_a_sample_unlike_the_first_is_named_with_what_was_found_and_expected() -> None:
    feed = Feed(Uneven(8))
    with pytest.raises(SampleError, match=r"sample 7 .* found float32\[1, 3\], expected float32\[1, 2\]"), feed.named():
        next(feed.training(cut(8, 0, 8, 0, 1), 5, 0))


def test_a_source_that_gives_other_samples_than_it_was_asked_for_is_told_so() -> None:
    feed = Feed(Short(4))
    expected = (
        r"samples .* cannot be read together, though each by itself can: .* found float32\[1\], expected float32\[4\]"
    )
    with pytest.raises(SampleError, match=expected), feed.named():
        next(feed.training(cut(4, 0, 4, 0, 1), 5, 0))


def test_arrays_mapped_from_a_file_stay_there(tmp_path: Path) -> None:
    gib = 64  # of holes: more than this machine could load
    x = np.memmap(tmp_path / "x", np.float64, "w+", shape=(gib * 2**30 // 512, 64))
    x[-10:] = np.arange(10)[:, np.newaxis]
    source = as_source((x[-10:], np.arange(10)))
    feed = Feed(source)
    before = psutil.Process().memory_info().rss
    (samples, y), piece = next(feed.training(cut(10, 0, 10, 0, 1), 5, 0))
    assert samples.dtype == tf.float32
    assert samples.shape == (10, 64)
    assert samples[:, 5].numpy().tolist() == y.numpy().tolist() == piece.indices.numpy().tolist()
    everything = Feed(as_source((x, {"again": x})))
    for _ in range(3):
        (samples, _), piece = next(everything.training(cut(len(x), 0, 10, 0, 1), 5, 0))
        assert samples.shape == (10, 64)
    assert psutil.Process().memory_info().rss - before < 2**30
