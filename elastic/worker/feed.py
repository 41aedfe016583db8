"""Pieces of this worker's share, from one endless pipeline that is built and started once.

Building a `tf.data` pipeline traces functions, and each iterator of it instantiates them anew; a
world that forms must wait for neither. So there is one iterator for all epochs and worlds, and
what it feeds is read from variables, as few numbers for an epoch of any length: where the epoch's
rest begins, the pieces of a step, what the order is random by. Positions and indices are worked
out on the way.

Working them out takes many small ops, so it is done for several pieces at once.

Each new epoch or new world is an *era*: it sets the variables and lets pieces be counted anew. What
was on the way before comes out first and is thrown away (of what nobody has read yet, no sample is),
up to the piece that says `_MARK`: the one after it is the era's first.
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
_AT_ONCE = 8  # pieces
_ERA = 1 << 40  # numbers in an era: 0 is the mark, k + 1 is piece k
_ON_THE_WAY = 100  # more pieces than there can be


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
            self._next = tf.Variable(0, dtype=tf.int64, trainable=False)  # number to be worked out
            self._era = tf.Variable(0, dtype=tf.int64, trainable=False)
            self._shuffled = tf.Variable(True, trainable=False)
        self._plan = Plan()
        self._augment = augment
        self._reader = source if isinstance(source, Arrays) else Reading(source)

        options = tf.data.Options()
        options.autotune.enabled = False  # the tuner costs more than it gains
        options.deterministic = True
        options.experimental_optimization.apply_default_optimizations = False
        options.threading.private_threadpool_size = 2 if augment is None else CORES
        work_out, fetch = (tf.autograph.experimental.do_not_convert(f) for f in (self._work_out, self._fetch))
        endless = tf.data.Dataset.range(np.iinfo(np.int64).max)
        self._pieces = iter(endless.map(work_out).unbatch().map(fetch).prefetch(2).with_options(options))

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
        era = self._era.assign_add(1)
        self._shuffled.assign(shuffle is not None)
        if shuffle is not None:
            self._order.begin(*shuffle)
        self._plan.follow(part)
        self._next.assign(era * _ERA)
        for _ in range(_ON_THE_WAY):
            try:
                _, piece = next(self._pieces)
            except tf.errors.OpError:
                continue  # what a source cannot read is an error when it is its turn, not when it was prefetched
            if int(piece.shard) == _MARK:
                return self._pieces  # type: ignore[no-any-return]
        raise RuntimeError(f"the feed did not begin anew within {_ON_THE_WAY} pieces")

    def _samples(self, indices: tf.Tensor) -> Any:
        samples = self._reader.fetch(indices)
        return samples if self._augment is None else self._augment(self._order.seeds(indices), samples)

    def _work_out(self, _: tf.Tensor) -> "_Planned":
        """Return the next pieces, one a row; there may be fewer left, or none."""
        first = self._next.assign_add(_AT_ONCE) - _AT_ONCE
        with tf.control_dependencies([first]):  # whoever has a number of an era sees all that the era has set
            numbers = first + tf.range(_AT_ONCE, dtype=tf.int64)
            of_era = numbers % _ERA
            inside, (low, high, share, shard, begins) = self._plan.has(of_era - 1), self._plan.place(of_era - 1)
            shard = tf.where(inside, shard, tf.where(tf.equal(of_era, 0), _MARK, _NOTHING))
            last = tf.maximum(high - 1, low)  # a stand-in has one sample that counts for nothing
            reads = tf.where(inside, last + 1 - low, 0)
            columns = tf.range(tf.maximum(tf.reduce_max(reads), 1))  # rows of nothing are more than unbatch can cut
            positions = tf.reshape(tf.minimum(low[:, None] + columns, last[:, None]), [-1])
            indices = tf.cond(self._shuffled, lambda: self._order.indices(positions), lambda: positions)
            table = tf.reshape(indices, [_AT_ONCE, tf.size(columns)])
        return _Planned(numbers // _ERA, table, reads, high - low, share, shard, begins)

    def _fetch(self, p: "_Planned") -> tuple[Any, Piece]:
        fresh = tf.equal(p.era, self._era)
        indices = p.indices[: tf.where(fresh, p.reads, 0)]
        indices.set_shape([None])
        piece = Piece(p.share, tf.where(fresh, p.shard, _NOTHING), p.first, indices[: p.counts])
        return self._samples(indices), piece


class _Planned(NamedTuple):
    """A piece without its samples: the first `reads` indices are read, the first `counts` count."""

    era: tf.Tensor
    indices: tf.Tensor
    reads: tf.Tensor
    counts: tf.Tensor
    share: tf.Tensor
    shard: tf.Tensor
    first: tf.Tensor
