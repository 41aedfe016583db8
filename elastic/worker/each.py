"""Applies TensorFlow ops to samples one by one, several at a time."""

import os
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from elastic.errors import ConfigError

CORES = max(2, len(os.sched_getaffinity(0)))


class Each:
    """A function of one sample, for all samples of a batch.

    By `tf.map_fn` and not in a vectorised form, which exists for some ops only; so all results must
    have the same shapes.

    Args:
        function: TensorFlow ops; Python's `if` and `for` on tensors are understood (autograph).
        key: of the configuration that names it, for messages.
    """

    def __init__(self, function: Callable[..., Any], key: str) -> None:
        self.name = getattr(function, "__name__", type(function).__name__)
        self._key = key
        self._function = tf.function(function, reduce_retracing=True)

    def traced(self, rows: tuple[Any, ...]) -> Any:
        """Return the concrete function for one row of these tensors.

        Raises:
            ConfigError: when the function does not return tensors.
        """
        one = keras.tree.map_structure(lambda part: tf.TensorSpec(part.shape[1:], part.dtype), rows)
        traced = self._function.get_concrete_function(*one)
        found = keras.tree.flatten(traced.structured_outputs)
        if not found or not all(isinstance(part, tf.Tensor) for part in found):
            raise ConfigError(
                f"{self._key}: {self.name} returned {traced.structured_outputs!r}, expected tensors of one sample"
            )
        return traced

    def __call__(self, *rows: Any) -> Any:
        """Return what the function makes of each row, stacked; without rows, nothing of the same shape.

        Args:
            rows: the function's arguments, tensors or structures of them with k rows each.
        """
        outputs = self.traced(rows).structured_outputs
        signature = keras.tree.map_structure(lambda part: tf.TensorSpec(part.shape, part.dtype), outputs)
        found = tf.cond(
            tf.shape(keras.tree.flatten(rows)[0])[0] > 0,
            lambda: tf.map_fn(
                lambda row: self._function(*row), rows, fn_output_signature=signature, parallel_iterations=CORES
            ),
            lambda: keras.tree.map_structure(_none_of, signature),
        )
        for part, spec in zip(keras.tree.flatten(found), keras.tree.flatten(signature), strict=True):
            part.set_shape(tf.TensorShape([None]).concatenate(spec.shape))
        return found


def reason(error: tf.errors.OpError) -> str:
    """Return what an op says about its failure, without where it stands in the graph."""
    lines = [line for line in error.message.splitlines() if line and not line[0].isspace()]
    said = [line for line in lines if not line.startswith(("Graph execution error", "Detected at node"))]
    return " ".join(said) or error.message


def _none_of(spec: tf.TensorSpec) -> tf.Tensor:
    shape = [0, *(size or 0 for size in spec.shape)]
    return tf.fill(shape, "") if spec.dtype == tf.string else tf.zeros(shape, spec.dtype)
