"""A Keras optimizer whose `apply` first reduces the gradients over all workers.

Horovod's own `DistributedOptimizer` overrides methods that Keras 3 no longer calls, so it reduces
nothing and says nothing. Here `apply` is overridden, the one method that every update of Keras 3
goes through.

A step is atomic: every gradient (and the few signals that workers exchange) travels in one phase of
collectives, one for each type of number on the wire, and no variable, `iterations` included,
changes before all of them have arrived. A failed collective therefore leaves the model and the
optimizer as the last completed step left them.

What `apply` does first with its gradients can be replaced while a step is traced (`taking`): in all
but the last piece of a step they are put aside, and the optimizer does nothing more. So a model's
own `train_step`, which knows of none of this, computes pieces of steps as well as whole ones.

The optimizer object stays what it was: two of its methods are overridden on the instance alone, so
`isinstance`, saving and loading see the plain Keras optimizer.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import IntEnum
from functools import partial
from typing import Any, NamedTuple

import horovod.tensorflow as hvd
import keras
import tensorflow as tf


class Signal(IntEnum):
    """What a worker may tell all others with its gradients; each is a count of who raised it."""

    HOSTS_CHANGED = 0  # the next world is to be made (see `agent.ahead`)
    DRAIN = 1  # this worker is to leave
    LEAVE = 2  # rank 0: whoever is to leave does so after this step
    NEXT_WORLD = 3  # rank 0: the next world's newcomers are there, all go over after this step


class Exchanged(NamedTuple):
    """What a step leaves in `Reduction`, under the same names."""

    seen: Any
    arrived: Any
    arrived_at: Any


# What `apply` does first with its gradients, in the order of the variables (the second argument as
# `apply` gets it): returns those of the joint batch, or None when nothing is to be updated yet.
Take = Callable[[Sequence[Any], Any], list[Any] | None]


@dataclass(eq=False)
class Reduction:
    """What one step exchanges, and how.

    Attributes:
        share: the part of the step's samples that is being computed here, from 0 to 1; the shares
            of a step sum to 1 over all workers, so that the reduced gradient is that of the joint
            batch.
        raised: signals this worker sends with the next step, one number each.
        seen: their sums over all workers, from the last completed step.
        scale: what the optimizer's learning rate is multiplied by.
        arrived: how often this worker's gradients were ready and the wait for the others began.
        arrived_at: when that was last, in seconds since 1970; on a GPU, when their last op was dispatched.
        fp16: send gradients as half precision.
        take: what `apply` does first with its gradients; see `taking`.
    """

    fp16: bool = False
    share: tf.Variable = field(default_factory=lambda: tf.Variable(1.0, trainable=False, name="share"))
    scale: tf.Variable = field(default_factory=lambda: tf.Variable(1.0, trainable=False, name="lr_scale"))
    raised: tf.Variable = field(
        default_factory=lambda: tf.Variable([0.0] * len(Signal), trainable=False, name="raised")
    )
    arrived: tf.Variable = field(
        default_factory=lambda: tf.Variable(0, dtype=tf.int64, trainable=False, name="arrived")
    )
    arrived_at: tf.Variable = field(default_factory=lambda: _on_cpu(0.0, "arrived_at"))
    seen: tf.Variable = field(default_factory=lambda: tf.Variable([0.0] * len(Signal), trainable=False, name="seen"))

    def __post_init__(self) -> None:
        self.take: Take = lambda grads, _: self.reduce(grads)

    @contextmanager
    def taking(self, take: Take) -> Iterator[None]:
        """Let `apply` do something else with its gradients, for the code (or the tracing) inside."""
        usual, self.take = self.take, take
        try:
            yield
        finally:
            self.take = usual

    def reduce(self, grads: Sequence[Any], add: Callable[[list[Any]], list[Any]] = list) -> list[Any]:
        """Return the gradients of the joint batch; `None` stays `None`, sparse stays sparse.

        Every returned tensor depends on all collectives of the step.

        Args:
            grads: of the samples computed last, not yet weighted with their share.
            add: adds what this worker has beside these (weighted gradients in, sums out).
        """
        mine = add(self.weighted(grads))
        dense = [(i, g) for i, g in enumerate(mine) if g is not None and not isinstance(g, tf.IndexedSlices)]
        sparse = [(i, g) for i, g in enumerate(mine) if isinstance(g, tf.IndexedSlices)]
        wire = [self._to_wire(g) for _, g in dense]
        with tf.control_dependencies([*wire, *(g.values for _, g in sparse)]):
            arrived = self.arrive()
        with tf.control_dependencies(arrived):
            raised = self.raised.read_value()
        rows = [self._to_wire(g.values) for _, g in sparse]
        *summed, seen = _by_dtype(partial(hvd.grouped_allreduce, op=hvd.Sum), [*wire, raised], "elastic.gradients")
        values = _by_dtype(hvd.grouped_allgather, rows, "elastic.sparse.values")
        places = _by_dtype(hvd.grouped_allgather, [g.indices for _, g in sparse], "elastic.sparse.indices")
        result: list[Any] = list(grads)
        with tf.control_dependencies([*summed, seen, *values, *places]):
            self.seen.assign(seen)
            for (i, g), total in zip(dense, summed, strict=True):
                result[i] = _pinned(total, g.dtype)
            for (i, g), value, place in zip(sparse, values, places, strict=True):
                result[i] = tf.IndexedSlices(_pinned(value, g.dtype), tf.identity(place), g.dense_shape)
            return result

    def arrive(self, now: Any = None) -> list[Any]:
        """Note that this worker's gradients are ready; returns ops that the first collective waits for.

        Args:
            now: seconds since 1970, where TensorFlow must not ask the clock (as in deterministic ops).
        """
        with tf.device("/CPU:0"):
            at = self.arrived_at.assign(tf.timestamp() if now is None else now)
        return [self.arrived.assign_add(1), at]

    def exchanged(self) -> Exchanged:
        """Return, at the end of a compiled step, what it has exchanged: cheaper than to read variables afterwards."""
        return Exchanged(self.seen.read_value(), self.arrived.read_value(), self.arrived_at.read_value())

    def weighted(self, grads: Sequence[Any]) -> list[Any]:
        """Return gradients times the present share, in their own types; `None` stays `None`."""

        def weigh(tensor: tf.Tensor) -> tf.Tensor:
            return tensor * tf.cast(self.share, tensor.dtype)

        return [
            g
            if g is None
            else tf.IndexedSlices(weigh(g.values), g.indices, g.dense_shape)
            if isinstance(g, tf.IndexedSlices)
            else weigh(g)
            for g in grads
        ]

    def _to_wire(self, tensor: tf.Tensor) -> tf.Tensor:
        if self.fp16 and tensor.dtype in (tf.float32, tf.float64):
            return tf.cast(tensor, tf.float16)
        return tf.cast(tensor, tf.float32) if tensor.dtype == tf.bfloat16 else tensor


def _on_cpu(value: float, name: str) -> tf.Variable:
    with tf.device("/CPU:0"):
        return tf.Variable(value, dtype=tf.float64, trainable=False, name=name)


def _by_dtype(collective: Callable[..., list[Any]], tensors: Sequence[tf.Tensor], name: str) -> list[Any]:
    """Run a grouped collective, which takes one dtype, on tensors of any: one group a dtype, in the order given.

    Workers may be in different functions at the time (see `step`), so name scopes do not count.
    """
    result: list[Any] = list(tensors)
    for dtype in dict.fromkeys(t.dtype for t in tensors):
        places = [i for i, t in enumerate(tensors) if t.dtype == dtype]
        done = collective([tensors[i] for i in places], name=f"{name}.{dtype.name}", ignore_name_scope=True)
        for i, tensor in zip(places, done, strict=True):
            result[i] = tensor
    return result


def _pinned(tensor: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """Return the tensor as a new op, so that the surrounding control dependencies hold for it."""
    return tf.identity(tf.cast(tensor, dtype))


def _tensors(grads: Sequence[Any]) -> list[tf.Tensor]:
    return [g.values if isinstance(g, tf.IndexedSlices) else g for g in grads if g is not None]


def distribute(
    optimizer: keras.optimizers.Optimizer, *, fp16: bool = False, reduction: Reduction | None = None
) -> keras.optimizers.Optimizer:
    """Make `optimizer` reduce gradients over all workers, in place, and return it.

    Clipping, accumulation, weight decay, EMA and loss scaling act on the reduced gradients, as
    they would in one process on the joint batch. Calling it twice changes nothing.

    Args:
        optimizer: any Keras 3 optimizer.
        fp16: send gradients as half precision.
        reduction: shares, signals and learning-rate scale; by default an equal share for each
            worker of the current world (Horovod must be initialised).

    Raises:
        TypeError: when `optimizer` is not a Keras 3 optimizer.
    """
    if not isinstance(optimizer, keras.optimizers.Optimizer):
        raise TypeError(f"found {type(optimizer).__name__}, expected a keras.optimizers.Optimizer")
    if "_elastic_reduction" in optimizer.__dict__:
        return optimizer
    if reduction is None:
        reduction = Reduction(fp16=fp16)
        reduction.share.assign(1.0 / hvd.size())
    object.__setattr__(optimizer, "_elastic_reduction", reduction)
    updating = optimizer
    if isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
        updating = optimizer.inner_optimizer
    _scale_while_applying(updating, reduction)
    _take_before_applying(optimizer, reduction)
    return optimizer


def _scale_while_applying(optimizer: Any, reduction: Reduction) -> None:
    """Scale the learning rate inside `apply` alone.

    Outside of it the rate reads as the user and their callbacks set it, so schedules and
    ReduceLROnPlateau work on it undisturbed and a resize cannot make it drift.
    """
    plain_apply, plain_rate = optimizer.apply, optimizer._get_current_learning_rate
    applying = False

    def apply(grads: Sequence[Any], trainable_variables: Any = None) -> Any:
        nonlocal applying
        applying = True
        try:
            return plain_apply(grads, trainable_variables)
        finally:
            applying = False

    def rate() -> Any:
        if not applying:
            return plain_rate()
        unscaled = tf.convert_to_tensor(plain_rate())
        return unscaled * tf.cast(reduction.scale, unscaled.dtype)

    object.__setattr__(optimizer, "apply", apply)
    object.__setattr__(optimizer, "_get_current_learning_rate", rate)


def _take_before_applying(optimizer: Any, reduction: Reduction) -> None:
    plain_apply = optimizer.apply

    def apply(grads: Sequence[Any], trainable_variables: Any = None) -> Any:
        if len(grads) == 0:
            return plain_apply(grads, trainable_variables)
        joint = reduction.take(grads, trainable_variables)
        if joint is None:
            return None
        with tf.control_dependencies([reduction.seen.read_value(), *_tensors(joint)]):
            return plain_apply(joint, trainable_variables)

    object.__setattr__(optimizer, "apply", apply)


def reduction_of(optimizer: Any) -> Reduction:
    """Return what `distribute` gave to the optimizer."""
    return optimizer.__dict__["_elastic_reduction"]  # type: ignore[no-any-return]
