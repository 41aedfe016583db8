"""Variables for a step's own use, made when its trace shows that they are needed."""

from typing import Any

import tensorflow as tf
from tensorflow.python.ops.resource_variable_ops import ResourceVariable


def scratch(value: Any, name: str, shape: Any = None) -> tf.Variable:
    """Return a new variable, also while functions are being traced.

    `tf.Variable` would do; but `tf.function` notices variables that are made while it traces, and
    traces again. These are none of its business: they outlive the trace and belong to no function.

    Args:
        value: at first; of a variable, its present value.
        name: for those who look at graphs.
        shape: of all values to come, if they may differ in shape.
    """
    with tf.init_scope():
        return ResourceVariable(tf.convert_to_tensor(value), trainable=False, name=name, shape=shape)
