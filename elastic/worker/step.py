"""One training step and one validation step as compiled functions of an iterator."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from elastic.worker.feed import Piece
from elastic.worker.guard import StepGuard
from elastic.worker.optimizer import Reduction
from elastic.worker.own_time import OwnTime

Fed = Callable[[NDArray[np.int64]], None]


class Steps:
    """The compiled steps of a model; they survive resets, so nothing is traced twice.

    Args:
        model: compiled, built, its optimizer distributed with `reduction`.
        reduction: what a step exchanges with the other workers.
        fed: is told which samples go into a step, before its collective can begin.
    """

    def __init__(self, model: keras.Model, reduction: Reduction, fed: Fed | None = None) -> None:
        self._model = model
        self._reduction = reduction
        self._fed = fed
        self._guard = StepGuard(model)
        self.own = OwnTime()

        def wrap(step: Callable[..., Any]) -> Callable[..., Any]:
            if model.run_eagerly:
                return step
            return tf.function(step, reduce_retracing=True, autograph=False)

        self._train = wrap(self._train_on)
        self._validate = wrap(self._validate_on)
        self._inside = False
        self._done = 0

    def in_collective(self) -> bool:
        """Tell whether this worker's gradients are ready and it waits for the others'."""
        return self._inside and int(self._reduction.arrived.numpy()) > self._done

    def train(self, iterator: Iterator[Any]) -> tuple[dict[str, Any], Any]:
        """Do one step; return its logs and the signals of all workers (see `optimizer.Signal`).

        Raises:
            HorovodInternalError: when a peer is gone; the model is then as before the step.
        """
        self._done = int(self._reduction.arrived.numpy())
        self._inside = True
        logs = self._train(iterator)
        seen = self._reduction.seen.numpy()
        self._inside = False
        self.own.step(float(self._reduction.arrived_at.numpy()), time.time())
        return logs, seen

    def take_back(self) -> None:
        """Undo the forward pass of a step that failed in its collective; else do nothing."""
        if self._inside:
            self._guard.put_back()
            self._inside = False

    def validate(self, iterator: Iterator[Any]) -> None:
        """Add one batch to the model's metrics."""
        self._validate(iterator)

    def _train_on(self, iterator: Iterator[Any]) -> Any:
        samples, piece = next(iterator)
        self._reduction.share.assign(piece.share)
        with tf.control_dependencies([*self._guard.keep(), *self._tell(piece)]):
            logs = self._model.train_step(samples)
        tf.cond(piece.share > 0.0, lambda: None, self._guard.put_back)  # a stand-in sample leaves no trace
        return logs

    def _tell(self, piece: Piece) -> list[Any]:
        """Return the ops that tell which samples these are, if anybody wants to know."""
        fed = self._fed
        if fed is None:
            return []

        def tell(indices: NDArray[np.int64]) -> NDArray[np.int64]:
            fed(indices)
            return indices

        return [tf.numpy_function(tell, [piece.indices], tf.int64)]

    def _validate_on(self, iterator: Iterator[Any]) -> None:
        samples, _ = next(iterator)
        self._model.test_step(samples)


def build(model: keras.Model, example: Any) -> None:
    """Create every variable of the model, its metrics and its optimizer from one batch.

    Args:
        example: a batch as the source gives it, (x, y, ...).
    """
    batch = keras.tree.map_structure(tf.convert_to_tensor, example)
    model._symbolic_build(data_batch=batch)
    if not model.optimizer.built:
        model.optimizer.build(model.trainable_variables)
