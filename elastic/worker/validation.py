"""Validation: each worker takes a part of the samples, and the metrics are those of all."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import horovod.tensorflow as hvd
import keras
import tensorflow as tf

from elastic.worker import order
from elastic.worker.collective import sum_arrays


class Run(NamedTuple):
    """Samples [low, high) that one worker validates, batch after batch; `number` is that of the shard."""

    number: int
    low: int
    high: int


class Validation:
    """The compiled validation step of a model, and the way from it to joint metrics.

    Args:
        model: compiled and built.
    """

    def __init__(self, model: keras.Model) -> None:
        self._model = model
        self._step: Any = self._on
        if not model.run_eagerly:
            self._step = tf.function(self._on, reduce_retracing=True, autograph=False)

    def runs(self, n: int) -> Sequence[Run]:
        """Return which of n samples are this worker's."""
        return [Run(hvd.rank(), *order.shard(n, hvd.rank(), hvd.size()))]

    def batch_size(self, total: int, micro: int | None) -> int:
        """Return how many samples a batch has at most, given those of a training step over all workers."""
        mine = max(1, total // hvd.size())
        return min(mine, micro or mine)

    def begin(self, step: int) -> None:
        """Begin a validation, after so many steps of training."""
        self._model.reset_metrics()

    def begin_run(self, run: Run) -> None:
        """Begin with a run's batches."""

    def batch(self, iterator: Iterator[Any]) -> None:
        """Add one batch, `(samples, Piece)`, to the model's metrics."""
        self._step(iterator)

    def end_run(self, run: Run) -> None:
        """End a run, after its last batch."""

    def join(self) -> None:
        """Make the model's metrics those of all workers' samples.

        Keras metrics keep sums (of values, of counts, of confusions), so the sums over all workers
        give the exact metric of the joint samples.
        """
        sums = sum_arrays([v.numpy() for v in self._model.metrics_variables], "elastic.metrics.validation")
        for variable, total in zip(self._model.metrics_variables, sums, strict=True):
            variable.assign(total)

    def _on(self, iterator: Iterator[Any]) -> None:
        samples, _ = next(iterator)
        self._model.test_step(samples)
