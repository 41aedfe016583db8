"""Applies a user's function to each sample of a piece, with a seed that is the sample's own."""

import logging
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from elastic.worker.each import Each

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

    All samples of a piece must come out with the same shapes.

    Args:
        function: TensorFlow ops.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._each = Each(function, "data.map")

    def __call__(self, seeds: tf.Tensor, samples: Any) -> Any:
        """Return the samples as the function makes them.

        Args:
            seeds: int32 [k, 2], one a sample.
            samples: a tuple (x, y, ...) or one structure x; each tensor has k rows.
        """
        rows = (seeds, *(samples if isinstance(samples, tuple) else (samples,)))
        self._look_for_state(self._each.traced(rows))
        return self._each(*rows)

    def _look_for_state(self, traced: Any) -> None:
        found = sorted({op for op in _op_types(traced) if op.startswith(_WITH_STATE) and op not in _WITHOUT})
        if found:
            log.warning(
                "data.map: %s is not the same on every worker, since it has ops with a state (%s): "
                "use tf.random.stateless_* or tf.image.stateless_* with the seed that it is given",
                self._each.name,
                ", ".join(found),
            )


def _op_types(traced: Any) -> Iterator[str]:
    graph = traced.graph.as_graph_def()
    yield from (node.op for node in graph.node)
    for function in graph.library.function:
        yield from (node.op for node in function.node_def)
