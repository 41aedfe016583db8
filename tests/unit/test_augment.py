"""A user's function on each sample, with the sample's own seed."""

import logging
from itertools import islice
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from elastic.errors import ConfigError
from elastic.worker.augment import PerSample
from elastic.worker.data import Arrays
from elastic.worker.feed import Feed
from elastic.worker.order import cut

N = 23


def noisy(seed: Any, x: Any, y: Any) -> Any:
    return tf.concat([x, tf.random.stateless_uniform([1], seed)], 0), tf.cast(y, tf.float32)


def numbers() -> Arrays:
    return Arrays((np.arange(N, dtype=np.float32)[:, np.newaxis], np.arange(N)))


@pytest.fixture(scope="module", name="feed")
def feed_of_noise() -> Feed:
    return Feed(numbers(), PerSample(noisy))


def by_sample(feed: Feed, epoch: int, size: int, micro: int | None = None, seed: int = 3) -> dict[int, float]:
    """Return the random number that each sample of an epoch is given, by whichever rank."""
    found = {}
    for rank in range(size):
        part = cut(N, 0, 6, rank, size, shards=4, micro=micro)
        pieces = feed.training(part, seed, epoch)
        for (x, y), piece in islice(pieces, sum(map(part.pieces, range(part.steps)))):
            assert x[:, 0].numpy().tolist() == y.numpy().tolist()
            for index, number in zip(piece.indices.numpy().tolist(), x[:, 1].numpy().tolist(), strict=False):
                assert index not in found
                found[index] = number
    assert len(found) == N
    return found


def test_a_sample_is_made_alike_whoever_reads_it(feed: Feed) -> None:
    assert by_sample(feed, 0, size=1) == by_sample(feed, 0, size=3) == by_sample(feed, 0, size=2, micro=1)


def test_samples_epochs_and_jobs_have_chances_of_their_own(feed: Feed) -> None:
    everything = [n for epoch, seed in ((0, 3), (1, 3), (0, 4)) for n in by_sample(feed, epoch, 1, seed=seed).values()]
    assert len(set(everything)) == 3 * N


def test_the_model_is_built_on_what_the_function_makes(feed: Feed) -> None:
    x, y = feed.example()
    assert (x.shape, y.shape, y.dtype) == ((1, 2), (1,), tf.float32)


def test_the_shapes_are_static_but_for_the_number_of_samples(feed: Feed) -> None:
    pieces = feed.training(cut(N, 0, 6, 0, 1), 1, 0)
    assert [spec.shape.as_list() for spec in pieces.element_spec[0]] == [[None, 2], [None]]


def test_a_source_of_one_part_is_given_to_the_function_as_it_is() -> None:
    feed = Feed(Arrays({"a": np.arange(5)}), PerSample(lambda seed, x: {"b": x["a"] + 1}))
    samples, piece = next(feed.training(cut(5, 0, 5, 0, 1), 1, 0))
    assert samples["b"].numpy().tolist() == (piece.indices.numpy() + 1).tolist()


def test_python_s_if_may_ask_a_tensor() -> None:
    def odd_only(seed: Any, x: Any) -> Any:
        if x % 2 == 0:
            x = -x
        return x

    feed = Feed(Arrays(np.arange(6)), PerSample(odd_only))
    samples, piece = next(feed.training(cut(6, 0, 6, 0, 1), 1, 0))
    assert samples.numpy().tolist() == [i if i % 2 else -i for i in piece.indices.numpy().tolist()]


def crop(seed: Any, x: Any) -> Any:
    side = tf.random.stateless_uniform([], seed, 2, 3, tf.int32)
    return x[:side]


def test_a_shape_that_is_not_known_beforehand_goes_through_worlds_without_samples() -> None:
    feed = Feed(Arrays(np.zeros((2, 5))), PerSample(crop))
    for _ in range(2):
        samples, piece = next(feed.training(cut(2, 0, 8, 0, 4), 1, 0))
        assert (samples.shape, float(piece.share)) == ((1, 2), 0.0)


def test_validation_is_not_augmented_unless_asked() -> None:
    (x, _), _ = next(Feed(numbers()).validation(0, 3, 3))
    assert x.shape == (3, 1)


@pytest.mark.parametrize("returned", [None, ()])
def test_a_function_that_returns_no_tensors_is_refused(returned: Any) -> None:
    with pytest.raises(ConfigError, match=r"data\.map: .* returned .*, expected tensors"):
        Feed(numbers(), PerSample(lambda seed, x, y: returned))


def flipped(seed: Any, x: Any, y: Any) -> Any:
    return x + tf.random.uniform([1]), y


def test_random_ops_with_a_state_are_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "elastic"):
        Feed(numbers(), PerSample(noisy))
        assert caplog.text == ""
        Feed(numbers(), PerSample(flipped))
    assert "flipped is not the same on every worker" in caplog.text
    assert "RandomUniform" in caplog.text
