"""Applies a user's function to each sample of a piece, with a seed that is the sample's own."""

import logging
from collections.abc import Callable, Iterator
from typing import Any

import keras
import tensorflow as tf

from elastic.errors import ConfigError

log = logging.getLogger("elastic")

# Ops that draw from a state of the process, or change one: what comes out depends on who was asked before.
_WITH_STATE = ("Assign", "Multinomial", "ParameterizedTruncatedNormal", "Random", "Rng", "SampleDistorted", "Stateful")
_WITHOUT = ("RandomIndexShuffle",)


class PerSample:
    """A function `(seed, x, y, ...) -> (x, y, ...)` of one sample, for all samples of a piece.

    The seed, int32 [2], is the same whenever the same sample is read in the same epoch, by whomever:
    for `tf.random.stateless_uniform` and the like, or `tf.image.stateless_random_flip_left_right`.
    Other random ops, and Keras's random layers, draw from a state that each worker has for itself;
    with them samples come out otherwise after a resize, and a warning says so.

    The samples are computed one by one (`tf.map_fn`, several at a time), since a vectorised form
    exists for some ops only; all of a piece must come out with the same shapes.

    Args:
        function: TensorFlow ops; Python's `if` and `for` on tensors are understood (autograph).
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._name = getattr(function, "__name__", type(function).__name__)
        self._function = tf.function(function, reduce_retracing=True)

    def __call__(self, seeds: tf.Tensor, samples: Any, parallel: int) -> Any:
        """Return the samples as the function makes them.

        Args:
            seeds: int32 [k, 2], one a sample.
            samples: a tuple (x, y, ...) or one structure x; each tensor has k rows.
            parallel: how many samples to work at.

        Raises:
            ConfigError: when the function does not return tensors.
        """
        parts = samples if isinstance(samples, tuple) else (samples,)
        one = keras.tree.map_structure(lambda part: tf.TensorSpec(part.shape[1:], part.dtype), parts)
        traced = self._function.get_concrete_function(tf.TensorSpec([2], tf.int32), *one)
        outputs = traced.structured_outputs
        if not all(isinstance(part, tf.Tensor) for part in keras.tree.flatten(outputs)) or not keras.tree.flatten(
            outputs
        ):
            raise ConfigError(
                f"data.map: {self._name} returned {outputs!r}, expected tensors (x, y, ...) of one sample"
            )
        self._look_for_state(traced)
        signature = keras.tree.map_structure(lambda part: tf.TensorSpec(part.shape, part.dtype), outputs)

        def apply() -> Any:
            return tf.map_fn(
                lambda row: self._function(row[0], *row[1]),
                (seeds, parts),
                fn_output_signature=signature,
                parallel_iterations=parallel,
            )

        found = tf.cond(tf.shape(seeds)[0] > 0, apply, lambda: keras.tree.map_structure(_none_of, signature))
        for part, spec in zip(keras.tree.flatten(found), keras.tree.flatten(signature), strict=True):
            part.set_shape(tf.TensorShape([None]).concatenate(spec.shape))
        return found

    def _look_for_state(self, traced: Any) -> None:
        found = sorted({op for op in _op_types(traced) if op.startswith(_WITH_STATE) and op not in _WITHOUT})
        if found:
            log.warning(
                "data.map: %s is not the same on every worker, since it has ops with a state (%s): "
                "use tf.random.stateless_* or tf.image.stateless_* with the seed that it is given",
                self._name,
                ", ".join(found),
            )


def _none_of(spec: tf.TensorSpec) -> tf.Tensor:
    return tf.zeros([0, *(size or 0 for size in spec.shape)], spec.dtype)


def _op_types(traced: Any) -> Iterator[str]:
    graph = traced.graph.as_graph_def()
    yield from (node.op for node in graph.node)
    for function in graph.library.function:
        yield from (node.op for node in function.node_def)
