"""Batches of this worker's share, from a pipeline that is built once.

Building a `tf.data` pipeline traces a function; a world that forms anew must not wait for that.
So the pipeline reads what to feed (the order, each step's run of positions, its share) from
variables: a new epoch or a new world sets these and takes a fresh iterator.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from elastic.worker.data import Arrays, Source
from elastic.worker.order import Cut, permute


class Feed:
    """Feeds one source, again and again.

    Args:
        source: samples by index.
    """

    def __init__(self, source: Source) -> None:
        self.source = source
        with tf.device("/CPU:0"):
            self._order, self._low, self._high = (_vector(np.zeros(1, np.int64)) for _ in range(3))
            self._share = _vector(np.ones(1, np.float32))
        fetch = _gather(source.tensors()) if isinstance(source, Arrays) else _ask(source)

        def element(step: tf.Tensor) -> Any:
            step = tf.minimum(step, tf.size(self._low) - 1)  # what is prefetched past the end is never asked for
            return fetch(self._order[self._low[step] : self._high[step]]), self._share[step]

        options = tf.data.Options()
        options.autotune.enabled = False  # two threads of ours suffice; the tuner costs more than it gains
        options.deterministic = True
        options.experimental_optimization.apply_default_optimizations = False
        options.threading.private_threadpool_size = 2
        endless = tf.data.Dataset.range(np.iinfo(np.int32).max, output_type=tf.int32)
        element = tf.autograph.experimental.do_not_convert(element)
        self._batches = endless.map(element).prefetch(2).with_options(options)

    def training(self, part: Cut, seed: int, epoch: int, consumed: int) -> Iterator[Any]:
        """Return this rank's batches for the rest of an epoch, `part.steps` of them.

        Elements are `(samples, share)`: `share` is the rank's part of the step's samples. A rank
        without samples in a step gets one stand-in with share 0, so that its step has the same ops.
        """
        n = len(self.source)
        order = permute(np.arange(consumed, n, dtype=np.int64), n, seed, epoch)
        low, high = part.low - consumed, part.high - consumed
        share = ((high - low) / part.total).astype(np.float32)
        return self._iterate(order, low, np.maximum(high, low + 1), share)

    def validation(self, low: int, high: int, batch: int) -> Iterator[Any]:
        """Return the samples [low, high) in their own order, `(samples, 1.0)` a batch."""
        starts = np.arange(0, max(1, high - low), batch, dtype=np.int64)
        ends = np.minimum(starts + batch, max(1, high - low))
        order = np.arange(low, max(high, low + 1), dtype=np.int64)
        return self._iterate(order, starts, ends, np.ones(len(starts), np.float32))

    def _iterate(
        self, order: NDArray[np.int64], low: NDArray[np.int64], high: NDArray[np.int64], share: NDArray[np.float32]
    ) -> Iterator[Any]:
        for variable, value in ((self._order, order), (self._low, low), (self._high, high), (self._share, share)):
            variable.assign(value if len(value) else np.zeros(1, value.dtype))
        return iter(self._batches)  # type: ignore[no-any-return]


def _vector(value: NDArray[Any]) -> tf.Variable:
    return tf.Variable(value, trainable=False, shape=tf.TensorShape([None]))


def _gather(tensors: Any) -> Callable[[tf.Tensor], Any]:
    return lambda indices: keras.tree.map_structure(lambda t: tf.gather(t, indices), tensors)


def _ask(source: Source) -> Callable[[tf.Tensor], Any]:
    example = keras.tree.map_structure(np.asarray, source[np.zeros(1, np.int64)])
    flat = keras.tree.flatten(example)
    types = [tf.as_dtype(a.dtype) for a in flat]

    def read(indices: NDArray[np.int64]) -> Sequence[NDArray[Any]]:
        return [np.asarray(a) for a in keras.tree.flatten(source[indices])]

    def fetch(indices: tf.Tensor) -> Any:
        parts = tf.numpy_function(read, [indices], types)
        for part, array in zip(parts, flat, strict=True):
            part.set_shape((None, *array.shape[1:]))
        return keras.tree.pack_sequence_as(example, parts)

    return fetch
