"""Validation whose metrics are the same bits, whoever computes them (see `shards`).

The samples are cut into a fixed number of shards. Each starts with fresh metrics, the other state as
training left it and seeds by place; the metrics of all shards are summed as integers.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import horovod.tensorflow as hvd
import keras
import tensorflow as tf

from elastic.worker import fixed_point, order
from elastic.worker.guard import StepGuard
from elastic.worker.seeds import Seeds, seed_states
from elastic.worker.validation import Run, Validation
from elastic.worker.writes import names_of, refuse_hidden_state

_APART = 1 << 31  # added to a shard's number, so that its seeds are not those of a shard in training


class ShardValidation(Validation):
    """The compiled validation step of a model, with results that do not depend on the world.

    Args:
        model: compiled and built.
        shards: into which all samples are cut, whatever the world.
        seed: of the job.
    """

    def __init__(self, model: keras.Model, shards: int, seed: int) -> None:
        super().__init__(model)
        self._shards = shards
        self._seeds = Seeds(seed_states(model), seed)
        self._guard = StepGuard(model)
        self._metrics = [v.value for v in model.metrics_variables]
        self._terms: list[list[Any]] = []  # of each run, its metrics
        self._place = tf.Variable([0, 0, 0], dtype=tf.int64, trainable=False, name="place")  # step, shard, batch

    def runs(self, n: int) -> Sequence[Run]:
        low, high = order.shard(self._shards, hvd.rank(), hvd.size())
        return [Run(number, *order.shard(n, number, self._shards)) for number in range(low, high)]

    def batch_size(self, total: int, micro: int | None) -> int:
        mine = max(1, total // self._shards)
        return min(mine, micro or mine)

    def begin(self, step: int) -> None:
        self._place.assign([step, 0, 0])
        self._guard.keep()
        self._terms = []

    def begin_run(self, run: Run) -> None:
        self._guard.put_back()
        self._model.reset_metrics()
        self._place.assign([self._place[0], run.number + _APART, 0])

    def batch(self, iterator: Iterator[Any]) -> None:
        if not self._guard.watching:
            traced = self._step.get_concrete_function(iterator)
            self._guard.watch(traced)  # nothing has run yet, so what is there now is what counts as kept
            known = [*(live for live, _ in self._guard.pairs), *self._seeds.states, self._place]
            refuse_hidden_state(traced, known, names_of(self._model))
        self._step(iterator)

    def end_run(self, run: Run) -> None:
        self._terms.append([tf.cast(v.read_value(), fixed_point.wide(v.dtype)) for v in self._metrics])

    def join(self) -> None:
        self._guard.put_back()  # before what may fail, so that a validation done again starts from there
        largest = tf.reduce_max([fixed_point.exponents(terms) for terms in self._terms], axis=0)
        agreed = hvd.allreduce(largest, op=hvd.Max, name="elastic.validation.largest")
        whole = [fixed_point.to_integers(terms, agreed, self._shards) for terms in self._terms]
        mine = [tf.add_n(parts) for parts in zip(*whole, strict=True)]
        totals = hvd.grouped_allreduce(mine, op=hvd.Sum, name="elastic.validation.sums")
        sums = fixed_point.from_integers(totals, agreed, self._shards, [v.dtype for v in self._metrics])
        for variable, value in zip(self._metrics, sums, strict=True):
            variable.assign(value)

    def _on(self, iterator: Iterator[Any]) -> None:
        samples, _ = next(iterator)
        step, shard, number = tf.unstack(self._place.read_value())
        self._seeds.set(step, shard, number)
        self._place.assign_add([0, 0, 1])
        self._model.test_step(samples)
