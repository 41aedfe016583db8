"""By how much pieces move what is not trained: statistics of layers, sums of metrics, counters."""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from elastic.errors import ConfigError
from elastic.worker.guard import StepGuard

_EXACT = 2.0**53  # float64 holds every integer up to here


class Moves:
    """The changes of variables since the guard kept them.

    Floats of the model count with the piece's share of the samples, metrics (floats or counts) as
    they are. Other integers must move alike in all pieces, as there is no way to join them otherwise.

    Args:
        model: whose variables these are.
        guard: keeps every variable that a piece changes.
        set_by_place: variables that are set in another way, and not this one's business.
    """

    def __init__(self, model: keras.Model, guard: StepGuard, set_by_place: list[tf.Variable]) -> None:
        metrics = {id(v.value) for v in model.metrics_variables}
        elsewhere = {id(v) for v in set_by_place}
        ours = [pair for pair in guard.pairs if id(pair[0]) not in elsewhere]
        self._of_metrics = [pair for pair in ours if id(pair[0]) in metrics]
        rest = [pair for pair in ours if id(pair[0]) not in metrics]
        self._of_layers = [pair for pair in rest if pair[0].dtype.is_floating]
        self._alike = [pair for pair in rest if not pair[0].dtype.is_floating]
        self.alike_size = sum(live.shape.num_elements() for live, _ in self._alike)
        self.count = len(self._of_metrics) + len(self._of_layers)

    def summed(self, share: tf.Tensor) -> list[tf.Tensor]:
        """Return the moves that are to be summed, `count` tensors, weighted with a piece's share."""
        layers = [move * tf.cast(share, move.dtype) for move in _moves(self._of_layers)]
        return [*_moves(self._of_metrics), *layers]

    def alike(self) -> tf.Tensor:
        """Return the moves that must be alike in all pieces, float64 [numbers]."""
        flat = [tf.reshape(tf.cast(move, tf.float64), [-1]) for move in _moves(self._alike)]
        return tf.concat([*flat, tf.zeros([0], tf.float64)], axis=0)

    def carry_out(self, sums: Sequence[tf.Tensor], most: tf.Tensor, least: tf.Tensor) -> tf.Tensor:
        """Give every variable its kept value and the joint move.

        Args:
            sums: of what `summed` returned, over all pieces of all workers.
            most, least: the largest and the smallest of what `alike` returned.

        Returns:
            For each integer variable, whether pieces did not move it alike: bool [variables].
        """
        for (live, kept), move in zip([*self._of_metrics, *self._of_layers], sums, strict=True):
            live.assign(_moved(kept, move))
        sizes = [live.shape.num_elements() for live, _ in self._alike]
        if not sizes:
            return tf.zeros([0], tf.bool)
        for (live, kept), move in zip(self._alike, tf.split(most, sizes), strict=True):
            live.assign(_moved(kept, tf.cast(tf.reshape(move, live.shape), tf.int64)))
        differ = tf.split((most != least) | (tf.abs(most) > _EXACT), sizes)
        return tf.stack([tf.reduce_any(part) for part in differ])

    def refuse(self, differing: NDArray[np.bool_]) -> None:
        """Raise ConfigError if pieces did not move an integer variable alike, given what `carry_out` returned."""
        names = [
            live.name.partition(":")[0]
            for (live, _), differs in zip(self._alike, differing.tolist(), strict=True)
            if differs
        ]
        if names:
            raise ConfigError(
                f"deterministic: found that {', '.join(names)} changed otherwise for some samples than for others; "
                "integers that are not a metric's cannot be joined: make them floats (then they are averaged), "
                "or count in a metric (then they are summed)"
            )


def _moves(pairs: Sequence[tuple[tf.Variable, tf.Variable]]) -> list[tf.Tensor]:
    return [tf.cast(live, _type_of_move(live)) - tf.cast(kept, _type_of_move(live)) for live, kept in pairs]


def _type_of_move(variable: tf.Variable) -> Any:
    return variable.dtype if variable.dtype.is_floating else tf.int64


def _moved(kept: tf.Variable, move: tf.Tensor) -> tf.Tensor:
    return tf.cast(tf.cast(kept, move.dtype) + move, kept.dtype)
