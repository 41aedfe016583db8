"""What a traced function does beside returning something."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import keras
import tensorflow as tf
from tensorflow.python.framework.auto_control_deps_utils import get_read_only_resource_input_indices_graph

from elastic.errors import ConfigError

# Ops that keep the state of their random numbers to themselves.
_DRAWS = frozenset(
    {
        "Multinomial",
        "ParameterizedTruncatedNormal",
        "RandomGamma",
        "RandomPoisson",
        "RandomPoissonV2",
        "RandomShuffle",
        "RandomStandardNormal",
        "RandomUniform",
        "RandomUniformInt",
        "TruncatedNormal",
    }
)


def written(function: Any) -> list[tf.Tensor]:
    """Return the handles of the variables (and other resources) that a concrete function may change.

    It is what TensorFlow itself orders the ops of a function by: a resource counts as read only if
    every op that takes it is registered as a reader, through conditionals, loops and calls of other
    functions. Whatever is not known to read counts as written, so the answer may hold too many and
    never too few.
    """
    graph = function.graph
    read_only = {id(graph.inputs[i]) for i in get_read_only_resource_input_indices_graph(graph)}
    return [outer for outer, inner in graph.captures if inner.dtype == tf.resource and id(inner) not in read_only]


def refuse_hidden_state(function: Any, known: Iterable[tf.Variable], names: Mapping[int, str]) -> None:
    """Make sure that whatever a concrete function changes or draws from can be set by others.

    Args:
        function: traced.
        known: the variables that it may change.
        names: of variables of the model and its optimizer, by the id of their handle.

    Raises:
        ConfigError: when it changes another variable, or draws from a state that no variable holds.
    """
    draws = sorted(kind for kind in set(_op_types(function.graph.as_graph_def())) if kind in _DRAWS)
    if draws:
        raise ConfigError(
            f"deterministic: found the random op {draws[0]}, which hides its state; "
            "expected keras.random with a keras.random.SeedGenerator, or one of tf.random.stateless_*"
        )
    may = {id(v.handle) for v in known}
    with tf.init_scope():
        others = [h for h in written(function) if id(h) not in may and bool(tf.raw_ops.VarIsInitializedOp(resource=h))]
    if others:
        found = ", ".join(names.get(id(h), "a variable that is not the model's") for h in others)
        raise ConfigError(
            f"deterministic: found that the model's step changes {found}; expected that only layers' own "
            "non-trainable weights, metrics and seed generators change, and trained weights through the optimizer"
        )


def names_of(model: keras.Model) -> dict[int, str]:
    """Return the names of a model's variables, its optimizer's included, by the id of their handle."""
    return {id(v.value.handle): v.path for v in [*model.variables, *model.optimizer.variables]}


def _op_types(definition: Any) -> Iterator[str]:
    yield from (node.op for node in definition.node)
    for function in definition.library.function:
        yield from (node.op for node in function.node_def)
