"""Pieces of this worker's share, from one endless pipeline that is built and started once.

Building a `tf.data` pipeline traces functions, and each iterator of it instantiates them anew; a
world that forms must wait for neither. So there is one iterator for all epochs and worlds, and
what it feeds is read from variables, as few numbers for an epoch of any length: where the epoch's
rest begins, the pieces of a step, what the order is random by. Positions and indices are worked
out on the way.

A new epoch or a new world sets the variables and restarts the count of pieces below zero. What
was prefetched before comes out first and is thrown away, up to the piece that says `_MARK`: the
one after it is number 0.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from elastic.worker.augment import PerSample
from elastic.worker.data import Arrays, Source
from elastic.worker.each import CORES
from elastic.worker.order import Cut, in_order
from elastic.worker.order_ops import Order
from elastic.worker.plan import Plan
from elastic.worker.reading import Reading


class Piece(NamedTuple):
    """What some samples are of their step.

    Attributes:
        share: float32 scalar, their part of the step's samples over all ranks; 0 for a stand-in.
        shard: int32 scalar, the number of the shard they belong to.
        first: bool scalar, whether this is the rank's first piece of the step.
        indices: int64 [k], which samples of the source they are, from the very tensor that they
            were fetched with; empty for a stand-in, which counts for nothing.
    """

    share: Any
    shard: Any
    first: Any
    indices: Any


_MARK, _NOTHING = -1, -2  # in place of a shard's number: pieces that hold no sample and are never seen outside
_PREFETCHED = 100  # more pieces than can be on the way
_IDLE = np.iinfo(np.int64).max // 2  # a number of a piece that is past any end


class Feed:
    """Feeds one source, again and again.

    Args:
        source: samples by index.
        augment: what is done to each sample, if anything.
    """

    def __init__(self, source: Source, augment: PerSample | None = None) -> None:
        self.source = source
        self._order = Order(len(source))
        with tf.device("/CPU:0"):
            self._number = tf.Variable(_IDLE, dtype=tf.int64, trainable=False)  # of the last piece begun
            self._shuffled = tf.Variable(True, trainable=False)
        self._plan = Plan()
        self._augment = augment
        self._reader = source if isinstance(source, Arrays) else Reading(source)

        def element(_: tf.Tensor) -> Any:
            indices, piece = self._next_piece()
            return self._samples(indices), piece

        options = tf.data.Options()
        options.autotune.enabled = False  # the tuner costs more than it gains
        options.deterministic = True
        options.experimental_optimization.apply_default_optimizations = False
        options.threading.private_threadpool_size = 2 if augment is None else CORES
        endless = tf.data.Dataset.range(np.iinfo(np.int64).max)
        element = tf.autograph.experimental.do_not_convert(element)
        self._pieces = iter(endless.map(element).prefetch(2).with_options(options))

    def training(self, part: Cut, seed: int, epoch: int) -> Iterator[Any]:
        """Return this rank's pieces of the rest of an epoch, step after step.

        Elements are `(samples, Piece)`, `part.pieces(step)` of them a step; no more may be read. A
        rank without samples in a step gets one stand-in with share 0, so that its step has the same
        ops. It is the feed's only iterator: those returned earlier go on from here too.
        """
        return self._restart(part, (seed, epoch))

    def validation(self, low: int, high: int, batch: int) -> Iterator[Any]:
        """Return the samples [low, high) in their own order, `(samples, Piece)` a batch, each with share 1.

        Without any there is one stand-in. Otherwise as `training`.
        """
        return self._restart(in_order(low, high, batch), None)

    def named(self) -> AbstractContextManager[None]:
        """Let what the source raises within come out as a `SampleError` that names the sample."""
        return self._reader.named() if isinstance(self._reader, Reading) else nullcontext()

    def example(self) -> Any:
        """Return the first sample, a batch of one, as the model will see it."""
        return self._samples(tf.zeros(1, tf.int64))

    def _restart(self, part: Cut, shuffle: tuple[int, int] | None) -> Iterator[Any]:
        self._number.assign(_IDLE)
        self._shuffled.assign(shuffle is not None)
        if shuffle is not None:
            self._order.begin(*shuffle)
        self._plan.follow(part)
        self._number.assign(_MARK - 1)
        for _ in range(_PREFETCHED):
            try:
                _, piece = next(self._pieces)
            except tf.errors.OpError:
                continue  # what a source cannot read is an error when it is its turn, not when it was prefetched
            if int(piece.shard) == _MARK:
                return self._pieces  # type: ignore[no-any-return]
        raise RuntimeError(f"the feed did not begin anew within {_PREFETCHED} pieces")

    def _samples(self, indices: tf.Tensor) -> Any:
        samples = self._reader.fetch(indices)
        return samples if self._augment is None else self._augment(self._order.seeds(indices), samples)

    def _next_piece(self) -> tuple[tf.Tensor, Piece]:
        """Return the sample indices of the next piece (one for a stand-in), and what it is."""
        number = self._number.assign_add(1)
        inside, (low, high, share, shard, first) = self._plan.has(number), self._plan.place(number)
        shard = tf.where(inside, shard, tf.where(tf.equal(number, _MARK), _MARK, _NOTHING))
        positions = tf.range(low, tf.where(inside, tf.maximum(high, low + 1), low))
        indices = tf.cond(self._shuffled, lambda: self._order.indices(positions), lambda: positions)
        indices.set_shape([None])
        return indices, Piece(share, shard, first, indices[: high - low])
