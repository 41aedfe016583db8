"""Feeds a `tf.data.Dataset`, which can only be read from its beginning.

Position i of an epoch is element i. Each rank reads past what was consumed, then through all the
rest, and keeps what belongs to its pieces. The dataset is part of the pipeline, so unlike `Feed`
this takes a fresh iterator for each epoch and world; what it feeds comes from variables there too,
so that nothing is traced again.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import tensorflow as tf

from elastic.worker.augment import PerSample
from elastic.worker.data import Source
from elastic.worker.elements import Elements
from elastic.worker.feed import Feed, Piece
from elastic.worker.order import Cut, in_order
from elastic.worker.order_ops import Order
from elastic.worker.plan import Plan


class ElementsFeed:
    """Feeds one dataset, again and again; what its methods return is as `Feed` says.

    Args:
        source: the dataset.
        augment: what is done to each sample, if anything.
    """

    def __init__(self, source: Elements, augment: PerSample | None = None) -> None:
        self.source = source
        self._augment = augment
        self._order = Order(len(source))  # for the samples' seeds alone
        self._plan = Plan()
        plain = tf.autograph.experimental.do_not_convert
        options = tf.data.Options()
        options.deterministic = True
        rest = tf.data.Dataset.from_tensors(0).flat_map(plain(lambda _: self._rest()))
        pieces = rest.group_by_window(
            key_func=plain(lambda number, *_: number),
            reduce_func=plain(lambda number, window: window.batch(self._size(number))),
            window_size_func=plain(self._size),
        )
        self._pieces = pieces.map(plain(self._element)).prefetch(2).with_options(options)

    def training(self, part: Cut, seed: int, epoch: int) -> Iterator[Any]:
        """Return this rank's pieces of the rest of an epoch, step after step."""
        self._order.begin(seed, epoch)
        self._plan.follow(part)
        return iter(self._pieces)  # type: ignore[no-any-return]

    def validation(self, low: int, high: int, batch: int) -> Iterator[Any]:
        """Return the samples [low, high) in their order."""
        self._plan.follow(in_order(low, high, batch))
        return iter(self._pieces)  # type: ignore[no-any-return]

    def named(self) -> AbstractContextManager[None]:
        """Leave errors as they are: TensorFlow does not say which element failed."""
        return nullcontext()

    def example(self) -> Any:
        """Return the first sample, a batch of one, as the model will see it."""
        return self._augmented(tf.zeros(1, tf.int64), next(iter(self.source.dataset.batch(1))))

    def _rest(self) -> tf.data.Dataset:
        """Return the elements of this rank, each as (number of its piece, position, element)."""
        start, dataset = self._plan.start, self.source.dataset
        places = tf.data.Dataset.zip((tf.data.Dataset.counter(start), dataset.skip(start).take(self._plan.samples)))
        numbered = places.map(lambda position, sample: (self._plan.number(position), position, sample))
        return numbered.filter(lambda number, *_: number >= 0)

    def _size(self, number: tf.Tensor) -> tf.Tensor:
        place = self._plan.place(number)
        return tf.maximum(place.high - place.low, 1)

    def _element(self, number: tf.Tensor, positions: tf.Tensor, samples: Any) -> Any:
        low, high, share, shard, first = self._plan.place(number[0])
        return self._augmented(positions, samples), Piece(share, shard, first, positions[: high - low])

    def _augmented(self, indices: tf.Tensor, samples: Any) -> Any:
        return samples if self._augment is None else self._augment(self._order.seeds(indices), samples)


def feed_of(source: Source, augment: PerSample | None = None) -> Feed | ElementsFeed:
    """Return what feeds a source: by index, or a dataset from its beginning."""
    return ElementsFeed(source, augment) if isinstance(source, Elements) else Feed(source, augment)
