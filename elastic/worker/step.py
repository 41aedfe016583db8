"""One training step as compiled functions of an iterator.

A step of one piece is one function. A step of more is a beginning (keep what the forward pass may
change, hold no gradients), all pieces but the last, whose gradients are held, and the last one,
which adds those, reduces and applies. The model's own `train_step` is called in each; what differs
is what the optimizer's `apply` does (see `optimizer`).
"""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import horovod.tensorflow as hvd
import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from elastic.errors import ConfigError
from elastic.worker.collective import sum_arrays
from elastic.worker.feed import Piece
from elastic.worker.guard import StepGuard
from elastic.worker.held import Held
from elastic.worker.optimizer import Exchanged, Reduction, Take
from elastic.worker.own_time import OwnTime
from elastic.worker.validation import Validation

Fed = Callable[[NDArray[np.int64]], None]


class Steps:
    """The compiled steps of a model; they survive resets, so nothing is traced twice.

    Args:
        model: compiled, built, its optimizer distributed with `reduction`.
        reduction: what a step exchanges with the other workers.
        fed: is told which samples each piece is made of, before its step's collective can begin.

    Attributes:
        validation: the same for validation.
        own: the time that steps cost this worker itself.
        joint_metrics: whether the model's metrics are those of all workers' samples after each step,
            and not of this worker's alone until `join`.
    """

    joint_metrics = False

    def __init__(self, model: keras.Model, reduction: Reduction, fed: Fed | None = None) -> None:
        self._model = model
        self._reduction = reduction
        self._fed = fed
        self._guard = StepGuard(model)
        self._held = Held()
        self.own = OwnTime()
        self._inside = False
        self._done = int(reduction.arrived.numpy())
        self.validation = Validation(model)
        if model.run_eagerly:
            self._guard.watch()
        self._compile()

    def _compile(self) -> None:
        self._whole = self._compiled(self._whole_on)
        self._begin = self._compiled(self._begin_step)
        self._part = self._compiled(self._part_on)
        self._last = self._compiled(self._last_on)
        self._traced: set[bool] = set()
        self._outgrown = False

    def _compiled(self, step: Callable[..., Any]) -> Any:
        if self._model.run_eagerly:
            return step
        return tf.function(step, reduce_retracing=True, autograph=False)

    def in_collective(self) -> bool:
        """Tell whether this worker's gradients are ready and it waits for the others'."""
        return self._inside and int(self._reduction.arrived.numpy()) > self._done

    def traced(self, pieces: int) -> bool:
        """Tell whether a step of so many pieces has been compiled, so that it takes its usual time."""
        return (pieces > 1) in self._traced

    def train(self, iterator: Iterator[Any], pieces: int = 1, step: int = 0) -> tuple[dict[str, Any], Any]:
        """Do one step; return its logs and the signals of all workers (see `optimizer.Signal`).

        Args:
            iterator: yields `(samples, Piece)`.
            pieces: how many of them are this worker's in the step.
            step: its number in the training.

        Raises:
            HorovodInternalError: when a peer is gone; the model is then as before the step.
        """
        self._inside = True
        logs, share, exchanged = self._whole(iterator) if pieces == 1 else self._in_pieces(iterator, pieces)
        if not share:
            self._guard.put_back()  # a stand-in sample leaves no trace
        self._traced.add(pieces > 1)
        seen = self._over(exchanged)
        if self._outgrown:
            self._compile()
        return logs, seen

    def _over(self, exchanged: Exchanged) -> Any:
        """Note that a step is done; return all workers' signals."""
        self._inside, self._done = False, int(exchanged.arrived)
        self.own.step(float(exchanged.arrived_at), time.time())
        return exchanged.seen.numpy()

    def take_back(self) -> None:
        """Undo the forward pass of a step that failed in its collective; else do nothing."""
        if self._inside:
            self._guard.put_back()
            self._inside, self._done = False, int(self._reduction.arrived.numpy())

    def join(self, iterator: Iterator[Any]) -> None:
        """Make equal on all workers what the forward passes of an epoch moved apart, in one collective.

        Metrics become those of all workers' samples: Keras keeps sums, which are added. Statistics of
        layers (BatchNorm) become the workers' mean. Seeds stay, each worker draws its own numbers.

        Args:
            iterator: as for `train`; nothing is taken from it.
        """
        if not self._guard.watching:  # this worker has come after the epoch's last step
            self._whole.get_concrete_function(iterator)
        metrics = [v.value for v in self._model.metrics_variables]
        statistics = self._guard.statistics
        mine = [v.numpy() for v in metrics] + [v.numpy().astype(np.float64) / hvd.size() for v in statistics]
        for variable, total in zip([*metrics, *statistics], sum_arrays(mine, "elastic.epoch"), strict=True):
            variable.assign(total.astype(variable.dtype.as_numpy_dtype))

    def _in_pieces(self, iterator: Iterator[Any], pieces: int) -> tuple[Any, Any, Exchanged]:
        if not self._held.sums and not self._model.run_eagerly:
            self._part.get_concrete_function(iterator)  # what there is to keep and to hold is known from here on
        self._begin()
        for _ in range(pieces - 1):
            self._part(iterator)
        return self._last(iterator)

    def _begin_step(self) -> None:
        self._guard.keep()
        self._held.clear()

    def _whole_on(self, iterator: Iterator[Any]) -> tuple[Any, Any, Exchanged]:
        """Do a step of one piece; return its logs, its share of the step, and what was exchanged."""
        samples, piece, told = self._next(iterator)
        step = self._seen(self._model.train_step, samples)
        with tf.control_dependencies([*self._guard.keep(), *told]):
            logs = step(samples)
        return logs, piece.share, self._reduction.exchanged()

    def _part_on(self, iterator: Iterator[Any]) -> None:
        samples, _, told = self._next(iterator)
        step = self._step_with(self._hold, samples)
        with tf.control_dependencies(told):
            step(samples)

    def _last_on(self, iterator: Iterator[Any]) -> tuple[Any, Any, Exchanged]:
        samples, piece, told = self._next(iterator)
        step = self._step_with(self._reduce_all, samples)
        with tf.control_dependencies(told):
            logs = step(samples)
        return logs, piece.share, self._reduction.exchanged()

    def _hold(self, grads: Sequence[Any], variables: Any) -> None:
        self._held.add(self._reduction.weighted(grads), variables)

    def _reduce_all(self, grads: Sequence[Any], variables: Any) -> list[Any]:
        return self._reduction.reduce(grads, add=lambda weighted: self._held.total(weighted, variables))

    def _next(self, iterator: Iterator[Any]) -> tuple[Any, Piece, list[Any]]:
        """Return the next samples, what they are, and what must run before their step's collective."""
        samples, piece = next(iterator)
        self._reduction.share.assign(piece.share)
        return samples, piece, self._tell(piece)

    def _tell(self, piece: Piece) -> list[Any]:
        fed = self._fed
        if fed is None:
            return []

        def tell(indices: NDArray[np.int64]) -> NDArray[np.int64]:
            fed(indices)
            return indices

        return [tf.numpy_function(tell, [piece.indices], tf.int64)]

    def _step_with(self, take: Take, samples: Any) -> Callable[[Any], Any]:
        """Return the model's step with `take` as what `apply` does first."""

        def step(samples: Any) -> Any:
            with self._reduction.taking(once(take)):
                return self._model.train_step(samples)

        return self._seen(step, samples)

    def _seen(self, step: Callable[[Any], Any], samples: Any) -> Callable[[Any], Any]:
        """Return a step whose trace has been seen.

        It is a function of its own inside the compiled one, since its trace has to be seen before the
        guard's ops can be made, which run before it. TensorFlow inlines it.
        """
        if self._model.run_eagerly:
            return step
        function = tf.function(step, autograph=False)
        self._see(function.get_concrete_function(samples))
        return function

    def _see(self, traced: Any) -> None:
        """Learn from the trace of a step what it changes."""
        first = not self._guard.watching
        if self._guard.watch(traced) and not first:
            self._outgrown = True  # what was compiled before keeps too little: it is compiled again after this step


def once(take: Take) -> Take:
    """Return `take` for one call: pieces put aside for later have one sum of gradients."""
    calls = 0

    def taken(grads: Sequence[Any], variables: Any) -> list[Any] | None:
        nonlocal calls
        calls += 1
        if calls > 1:
            raise ConfigError(
                "found a train_step that applies gradients more than once a step; batch.micro and deterministic "
                "expect one that does so once: leave them out, or compute all gradients first"
            )
        return take(grads, variables)

    return taken


def build(model: keras.Model, example: Any) -> None:
    """Create every variable of the model, its metrics and its optimizer from one batch.

    Args:
        example: a batch as the source gives it, (x, y, ...).
    """
    batch = keras.tree.map_structure(tf.convert_to_tensor, example)
    model._symbolic_build(data_batch=batch)
    if not model.optimizer.built:
        model.optimizer.build(model.trainable_variables)
