"""A training step whose result is the same bits, whoever computes it.

The samples of each step are cut into a fixed number of shards (see `order`), and a worker computes
those that are its own one after the other. What a shard contributes is a function of the state
before the step, of its samples and of its place alone:

* each of its pieces starts from the state before the step, with seeds that are set from its place
  (see `seeds`);
* its kernels see the same shapes and use one thread in any world (see `devices`);
* it leaves its weighted gradient, and by how much it moved every other variable: those of metrics as
  they are, those of layers (BatchNorm's statistics) weighted with its part of the samples.

Contributions are summed as integers (see `fixed_point`), which does not depend on how shards are
grouped into workers, and every worker adds the sums to the state before the step. So a step takes
two collectives: one for the largest exponents (and for the check that integer state moved alike in
all pieces), one for the sums; the workers' signals ride in the second. Nothing changes before both
have arrived, but for what the guard puts back when they fail.
"""

import time
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import horovod.tensorflow as hvd
import keras
import numpy as np
import tensorflow as tf

from elastic.errors import ConfigError
from elastic.worker import fixed_point
from elastic.worker.moves import Moves
from elastic.worker.optimizer import Exchanged, Reduction
from elastic.worker.seeds import Seeds, seed_states
from elastic.worker.shard_validation import ShardValidation
from elastic.worker.step import Fed, Steps, once
from elastic.worker.writes import names_of, refuse_hidden_state

_MAX = partial(hvd.allreduce, op=hvd.Max, ignore_name_scope=True)
_SUM = partial(hvd.grouped_allreduce, op=hvd.Sum, ignore_name_scope=True)


class Contribution(NamedTuple):
    """What a shard brings to a step.

    Attributes:
        terms: weighted gradients, then the moves that are summed, of types `fixed_point.wide` returns.
        largest: what the largest of all workers must be known of, float64: the exponents of the
            terms, the moves of integers, and the negatives of these.
    """

    terms: list[Any]
    largest: Any


class ShardSteps(Steps):
    """The compiled steps of a model, with results that do not depend on the world.

    Args:
        model, reduction, fed: as for `Steps`.
        shards: of each step; at least the number of workers.
        seed: of the job.

    Raises:
        ConfigError: when the model does something whose result would depend on the world.
    """

    joint_metrics = True

    def __init__(
        self, model: keras.Model, reduction: Reduction, fed: Fed | None = None, *, shards: int, seed: int
    ) -> None:
        if model.run_eagerly:
            raise ConfigError("deterministic: found run_eagerly=True, expected a model whose step can be traced")
        super().__init__(model, reduction, fed)
        self._shards = shards
        self._seed = seed
        self.validation = ShardValidation(model, shards, seed)
        with tf.device("/CPU:0"):
            # Of the last piece: its shard, and which of the shard's pieces it was.
            self._shard, self._number = (
                tf.Variable(0, dtype=tf.int32, trainable=False, name=name) for name in ("shard", "number")
            )
        # Known from the first trace of a piece on: which gradients there are and the second argument of
        # `apply`, what else moves, the types and shapes of all terms.
        self._applied: tuple[list[bool], Any] = ([], None)
        self._moves: Any = None
        self._seeds: Any = None
        self._types: list[Any] = []
        self._shapes: list[Any] = []
        self._piece = self._compiled(self._piece_on)
        self._plus = self._compiled(self._plus_of)
        self._agree = self._compiled(self._agree_on)
        self._integers = self._compiled(self._integers_of)
        self._finish = self._compiled(self._finish_step)

    def traced(self, pieces: int) -> bool:
        return bool(self._traced)

    def train(self, iterator: Iterator[Any], pieces: int = 1, step: int = 0) -> tuple[dict[str, Any], Any]:
        """Do one step; return the metrics of all workers' samples, and the signals of all workers.

        Args:
            iterator: yields `(samples, Piece)`, of all pieces of all shards of this worker.
            pieces: how many of them are this worker's in the step.
            step: its number in the training.

        Raises:
            HorovodInternalError: when a peer is gone; the model is then as before the step.
            ConfigError: when integer state of the model did not move alike in all pieces.
        """
        place = tf.constant(step, tf.int64)
        if self._moves is None:
            self._piece.get_concrete_function(iterator, place)  # what there is to keep is known from here on
        self._inside = True
        self._begin()
        logs, differing, exchanged = self._join(self._compute(iterator, pieces, place), place)
        self._traced.add(True)
        seen = self._over(exchanged)
        self._moves.refuse(differing.numpy())
        return logs, seen

    def join(self, iterator: Iterator[Any]) -> None:
        """Do nothing: after each step, metrics are those of all workers' samples."""

    def _begin_step(self) -> None:
        self._guard.keep()
        self._shard.assign(-1)

    def _compute(self, iterator: Iterator[Any], pieces: int, step: tf.Tensor) -> list[Contribution]:
        """Return what this worker's shards contribute; pieces of one shard are added as floats, in their order."""
        found: dict[int, Contribution] = {}
        for _ in range(pieces):
            shard, share, new = self._piece(iterator, step)
            if not share:
                continue  # a stand-in leaves no trace
            key = int(shard)
            found[key] = self._plus(found[key], new) if key in found else new
        return list(found.values())

    def _join(self, mine: Sequence[Contribution], step: tf.Tensor) -> tuple[Any, tf.Tensor, Exchanged]:
        width = len(self._shapes) + 2 * self._moves.alike_size
        largest = np.max([np.full(width, -np.inf), *(m.largest.numpy() for m in mine)], axis=0)
        agreed = self._agree(tf.constant(largest), tf.constant(time.time(), tf.float64))
        total = [tf.zeros(shape, tf.int64) for shape in self._shapes] if not mine else None
        for contribution in mine:
            total = self._integers(contribution.terms, agreed, total)
        return self._finish(total, agreed, step)  # type: ignore[no-any-return]

    def _piece_on(self, iterator: Iterator[Any], step: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, Contribution]:
        samples, piece, told = self._next(iterator)
        self._number.assign(tf.where(tf.equal(piece.shard, self._shard), self._number + 1, 0))
        self._shard.assign(piece.shard)
        compute = self._seen(self._gradients, samples)
        self._guard.put_back()
        self._seeds.set(step, piece.shard, self._number)
        with tf.control_dependencies(told):
            gradients = compute(samples)
        weighted = [_wide(g) * tf.cast(piece.share, fixed_point.wide(g.dtype)) for g in gradients]
        moves = self._moves.summed(piece.share)
        terms = [*weighted, *(_wide(move) for move in moves)]
        self._types = [t.dtype for t in [*gradients, *moves]]
        self._shapes = [term.shape for term in terms]
        alike = self._moves.alike()
        return piece.shard, piece.share, Contribution(terms, _largest(terms, alike, -alike))

    def _gradients(self, samples: Any) -> list[tf.Tensor]:
        """Do the model's step up to the gradients, and return those that there are."""
        found: list[tf.Tensor] = []
        graph = tf.compat.v1.get_default_graph()

        def take(grads: Sequence[Any], variables: Any) -> None:
            if tf.compat.v1.get_default_graph() is not graph:
                raise ConfigError("deterministic: found a train_step that applies gradients in a conditional or a loop")
            like = variables or self._model.trainable_variables
            found.extend(_dense(g, v) for g, v in zip(grads, like, strict=True) if g is not None)
            self._applied = [g is not None for g in grads], variables

        with self._reduction.taking(once(take)):
            self._model.train_step(samples)
        return found

    def _see(self, traced: Any) -> None:
        if not self._applied[0]:
            raise ConfigError(
                "deterministic: found a train_step that does not apply gradients with the optimizer that the model "
                "was compiled with, expected one that does so once a step"
            )
        more = self._guard.watch(traced)
        seeds = seed_states(self._model)
        refuse_hidden_state(traced, [live for live, _ in self._guard.pairs], names_of(self._model))
        if self._moves is None:
            self._moves = Moves(self._model, self._guard, seeds)
            self._seeds = Seeds(seeds, self._seed)
        elif more:
            raise ConfigError("deterministic: found a train_step that changes more variables than when first traced")

    def _plus_of(self, one: Contribution, other: Contribution) -> Contribution:
        terms = [a + b for a, b in zip(one.terms, other.terms, strict=True)]
        return Contribution(terms, _largest(terms, tf.maximum(one.largest, other.largest)[len(terms) :]))

    def _agree_on(self, largest: tf.Tensor, now: tf.Tensor) -> tf.Tensor:
        with tf.control_dependencies(self._reduction.arrive(now)):
            return _MAX(tf.identity(largest), name="elastic.shards.largest")

    def _integers_of(self, terms: list[Any], agreed: tf.Tensor, total: list[Any] | None) -> list[tf.Tensor]:
        whole = fixed_point.to_integers(terms, agreed[: len(terms)], self._shards)
        return whole if total is None else [a + b for a, b in zip(total, whole, strict=True)]

    def _finish_step(self, mine: list[Any], agreed: tf.Tensor, step: tf.Tensor) -> tuple[Any, tf.Tensor, Exchanged]:
        """Add up what all workers have; only then change anything."""
        raised = tf.cast(tf.round(self._reduction.raised), tf.int64)
        sums = _SUM([*mine, raised], name="elastic.shards.sums")
        with tf.control_dependencies(sums):
            *totals, seen = [tf.identity(total) for total in sums]
            self._reduction.seen.assign(tf.cast(seen, tf.float32))
            exponents, most, negative = tf.split(agreed, [len(mine), self._moves.alike_size, self._moves.alike_size])
            joint = fixed_point.from_integers(totals, exponents, self._shards, self._types)
            gradients = len(joint) - self._moves.count
            differing = self._moves.carry_out(joint[gradients:], most, -negative)
            self._seeds.set(step + 1, self._shards, 0)
            self._apply(joint[:gradients])
            return self._model.get_metrics_result(), differing, self._reduction.exchanged()

    def _apply(self, joint: Sequence[tf.Tensor]) -> None:
        given, variables = self._applied
        rest = iter(joint)
        with self._reduction.taking(lambda grads, _: list(grads)):
            self._model.optimizer.apply([next(rest) if there else None for there in given], variables)


def _largest(terms: Sequence[tf.Tensor], *moves: tf.Tensor) -> tf.Tensor:
    return tf.concat([fixed_point.exponents(terms), *moves], axis=0)


def _wide(tensor: tf.Tensor) -> tf.Tensor:
    return tf.cast(tensor, fixed_point.wide(tensor.dtype))


def _dense(gradient: Any, variable: Any) -> tf.Tensor:
    """Return a gradient as a tensor of its variable's shape: rows of sparse ones have no fixed place in a sum."""
    if not isinstance(gradient, tf.IndexedSlices):
        return tf.ensure_shape(gradient, variable.shape)
    return tf.math.unsorted_segment_sum(gradient.values, gradient.indices, variable.shape[0])
