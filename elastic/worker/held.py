"""Gradients of a step's earlier pieces, kept until the last one."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import tensorflow as tf

from elastic.worker.scratch import scratch


@dataclass(eq=False)
class Held:
    """The sum of weighted gradients, in variables that are made when it is first known which.

    Numbers of half precision are summed in single. Sparse gradients stay sparse: their rows are
    put one after the other, as many as there are, since a dense sum would cost the whole table in
    each piece.

    Attributes:
        sums: one for each gradient: a variable, a pair (values, indices) of them, or None.
    """

    sums: list[Any] = field(default_factory=list)

    def clear(self) -> None:
        """Hold nothing."""
        for held in self.sums:
            if isinstance(held, tuple):
                for rows in held:
                    rows.assign(tf.zeros([0, *rows.shape[1:]], rows.dtype))
            elif held is not None:
                held.assign(tf.zeros_like(held))

    def add(self, weighted: Sequence[Any], variables: Any) -> None:
        """Add the gradients of another piece; `variables` are what they are of, as `apply` gets them."""
        self._make_room(weighted, variables)
        for held, gradient in zip(self.sums, weighted, strict=True):
            if isinstance(held, tuple):
                for rows, more in zip(held, (gradient.values, gradient.indices), strict=True):
                    rows.assign(tf.concat([rows, more], axis=0))
            elif held is not None:
                held.assign_add(tf.cast(gradient, held.dtype))

    def total(self, weighted: Sequence[Any], variables: Any) -> list[Any]:
        """Return the sums with the last piece's gradients, in the types of these."""
        self._make_room(weighted, variables)
        return [self._sum(held, gradient) for held, gradient in zip(self.sums, weighted, strict=True)]

    def _sum(self, held: Any, gradient: Any) -> Any:
        if held is None:
            return None
        if isinstance(held, tuple):
            values, indices = (
                tf.concat([rows, more], axis=0)
                for rows, more in zip(held, (gradient.values, gradient.indices), strict=True)
            )
            return tf.IndexedSlices(values, indices, gradient.dense_shape)
        return tf.cast(held + tf.cast(gradient, held.dtype), gradient.dtype)

    def _make_room(self, gradients: Sequence[Any], variables: Any) -> None:
        if not self.sums:
            self.sums = [_room(g, v) for g, v in zip(gradients, variables or gradients, strict=True)]


def _room(gradient: Any, like: Any) -> Any:
    """Return variables for sums of gradients like this one, holding none; `like` has the static shape."""
    if gradient is None:
        return None
    if isinstance(gradient, tf.IndexedSlices):
        return _rows(gradient.dtype, like.shape[1:]), _rows(gradient.indices.dtype, [])
    dtype = tf.float32 if gradient.dtype in (tf.float16, tf.bfloat16) else gradient.dtype
    with tf.init_scope():
        return scratch(tf.zeros(like.shape, dtype), "held")


def _rows(dtype: tf.DType, shape: Any) -> tf.Variable:
    """Return room for any number of rows."""
    with tf.init_scope():
        return scratch(tf.zeros([0, *shape], dtype), "held_rows", shape=[None, *shape])
