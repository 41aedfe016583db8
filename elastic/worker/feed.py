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

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from elastic.worker.augment import PerSample
from elastic.worker.data import Arrays, Source
from elastic.worker.order import Cut, Run
from elastic.worker.order_ops import Order
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
            # start of the first step, samples of a step, full steps, pieces of a full step, all pieces
            self._numbers = tf.Variable(np.zeros(5, np.int64), trainable=False)
            # low, high, shard: the pieces of a full step, then those of a last step that is not full
            self._runs = tf.Variable(np.zeros((1, 3), np.int64), trainable=False, shape=(None, 3))
            self._shares = tf.Variable(np.zeros(1, np.float32), trainable=False, shape=(None,))
        self._augment = augment
        self._reader = source if isinstance(source, Arrays) else Reading(source)
        self._threads = 2 if augment is None else max(2, len(os.sched_getaffinity(0)))

        def element(_: tf.Tensor) -> Any:
            indices, piece = self._next_piece()
            return self._samples(indices), piece

        options = tf.data.Options()
        options.autotune.enabled = False  # the tuner costs more than it gains
        options.deterministic = True
        options.experimental_optimization.apply_default_optimizations = False
        options.threading.private_threadpool_size = self._threads
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
        full, rest = divmod(high - low, batch)
        last = (Run(0, rest, 0),) if rest or not full else ()
        part = Cut(low, batch, full + len(last), (Run(0, batch, 0),), last, rest if last else batch)
        return self._restart(part, None)

    def named(self) -> AbstractContextManager[None]:
        """Let what the source raises within come out as a `SampleError` that names the sample."""
        return self._reader.named() if isinstance(self._reader, Reading) else nullcontext()

    def example(self) -> Any:
        """Return the first sample, a batch of one, as the model will see it."""
        return self._samples(tf.zeros(1, tf.int64))

    def _restart(self, part: Cut, shuffle: tuple[int, int] | None) -> Iterator[Any]:
        full = part.steps - 1 if part.partial else part.steps
        end = full * len(part.full) + len(part.partial)
        runs = np.array([*part.full, *part.partial], np.int64)
        total = np.repeat((part.batch, max(1, part.last)), (len(part.full), len(part.partial)))
        # a part without steps has the runs of a full one all the same, for pieces past the end to look at
        numbers = (part.start, part.batch, full if end else 1, len(part.full), end)
        self._number.assign(_IDLE)
        self._shuffled.assign(shuffle is not None)
        if shuffle is not None:
            self._order.begin(*shuffle)
        self._numbers.assign(np.array(numbers, np.int64))
        self._runs.assign(runs)
        self._shares.assign(((runs[:, 1] - runs[:, 0]) / total).astype(np.float32))
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
        return samples if self._augment is None else self._augment(self._order.seeds(indices), samples, self._threads)

    def _next_piece(self) -> tuple[tf.Tensor, Piece]:
        """Return the sample indices of the next piece (one for a stand-in), and what it is."""
        number = self._number.assign_add(1)
        start, batch, full, per_step, end = tf.unstack(self._numbers.read_value())
        inside = (number >= 0) & (number < end)
        known = tf.where(inside, number, tf.zeros_like(number))
        step = tf.minimum(known // per_step, full)
        row = known - step * per_step
        first = tf.equal(row, 0)
        row += tf.where(step == full, per_step, tf.zeros_like(per_step))
        low, high, shard = tf.unstack(self._runs.read_value()[row])
        shard = tf.cast(shard, tf.int32)
        shard = tf.where(inside, shard, tf.where(tf.equal(number, _MARK), _MARK, _NOTHING))
        low += start + step * batch
        high += start + step * batch
        positions = tf.range(low, tf.where(inside, tf.maximum(high, low + 1), low))
        indices = tf.cond(self._shuffled, lambda: self._order.indices(positions), lambda: positions)
        indices.set_shape([None])
        share = self._shares.read_value()[row]
        return indices, Piece(share, shard, first, indices[: high - low])
