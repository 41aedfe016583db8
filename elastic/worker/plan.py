"""What a worker feeds, as variables: a pipeline that reads them serves every epoch and every world."""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from elastic.worker.order import Cut


class Place(NamedTuple):
    """Where a piece is, and what it is of its step; all scalars, or one of each a piece.

    Attributes:
        low, high: int64, its positions [low, high) of the epoch's order.
        share: float32, their part of the step's samples over all ranks.
        shard: int32, the number of the shard they belong to.
        first: bool, whether it is the rank's first piece of the step.
    """

    low: tf.Tensor
    high: tf.Tensor
    share: tf.Tensor
    shard: tf.Tensor
    first: tf.Tensor


class Plan:
    """A `Cut` as variables, as few numbers for an epoch of any length, and as ops that read them.

    Pieces are numbered from 0 on, through all steps of the cut.
    """

    def __init__(self) -> None:
        with tf.device("/CPU:0"):
            # start of the first step, samples of a step, full steps, pieces of a full step, all pieces
            self._numbers = tf.Variable(np.array([0, 1, 1, 1, 0]), trainable=False, dtype=tf.int64)
            self._samples = tf.Variable(0, trainable=False, dtype=tf.int64)
            # low, high, shard: the pieces of a full step, then those of a last step that is not full
            self._runs = tf.Variable(np.zeros((1, 3), np.int64), trainable=False, shape=(None, 3))
            self._shares = tf.Variable(np.zeros(1, np.float32), trainable=False, shape=(None,))

    def follow(self, part: Cut) -> None:
        """Let the pieces be those of this cut."""
        full = part.steps - 1 if part.partial else part.steps
        end = full * len(part.full) + len(part.partial)
        runs = np.array([*part.full, *part.partial], np.int64)
        total = np.repeat((part.batch, max(1, part.last)), (len(part.full), len(part.partial)))
        # a part without steps has the runs of a full one all the same, for pieces past the end to look at
        numbers = (part.start, part.batch, full if end else 1, len(part.full), end)
        self._numbers.assign(np.array(numbers, np.int64))
        self._samples.assign(max(1, (part.steps - 1) * part.batch + part.last))
        self._runs.assign(runs)
        self._shares.assign(((runs[:, 1] - runs[:, 0]) / total).astype(np.float32))

    @property
    def start(self) -> tf.Tensor:
        """The position where the first step begins, int64 scalar."""
        return self._numbers.read_value()[0]

    @property
    def samples(self) -> tf.Tensor:
        """How many positions the steps have over all ranks, int64 scalar; at least one, for a stand-in."""
        return self._samples.read_value()

    def has(self, number: tf.Tensor) -> tf.Tensor:
        """Tell whether there is a piece of this number (or, of several numbers, for each)."""
        return (number >= 0) & (number < self._numbers.read_value()[4])

    def place(self, number: tf.Tensor) -> Place:
        """Return where the piece of this number is; of one that is not there, what the first would be.

        Of several numbers, int64 [k], each field is [k].
        """
        start, batch, full, per_step, end = tf.unstack(self._numbers.read_value())
        number = tf.where((number >= 0) & (number < end), number, tf.zeros_like(number))
        step = tf.minimum(number // per_step, full)
        row = number - step * per_step
        first = tf.equal(row, 0)
        row += tf.where(tf.equal(step, full), per_step, tf.zeros_like(per_step))
        low, high, shard = tf.unstack(tf.gather(self._runs.read_value(), row), num=3, axis=-1)
        at, share = start + step * batch, tf.gather(self._shares.read_value(), row)
        return Place(at + low, at + high, share, tf.cast(shard, tf.int32), first)

    def number(self, position: tf.Tensor) -> tf.Tensor:
        """Return the number of the piece that a position belongs to (of a stand-in too), -1 for another rank's."""
        start, batch, full, per_step, end = tf.unstack(self._numbers.read_value())
        step, offset = (position - start) // batch, (position - start) % batch
        runs = self._runs.read_value()
        runs = tf.cond(step < full, lambda: runs[:per_step], lambda: runs[per_step:])
        inside = (offset >= runs[:, 0]) & (offset < tf.maximum(runs[:, 1], runs[:, 0] + 1))
        found = tf.where(inside)[:, 0]
        number = tf.cond(tf.size(found) > 0, lambda: step * per_step + found[0], lambda: end)
        return tf.where(number < end, number, tf.constant(-1, tf.int64))
