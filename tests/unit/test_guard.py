from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from elastic.worker.guard import StepGuard

X, Y = np.linspace(-3.0, 5.0, 12, dtype=np.float32).reshape(6, 2), np.ones((6, 1), np.float32)


def layers() -> list[Any]:
    """Return layers with everything that a forward pass changes: statistics, seeds (metrics are the model's)."""
    return [
        keras.layers.BatchNormalization(),
        keras.layers.Dropout(0.5, seed=3),
        keras.layers.Dense(1),
    ]


def ready(model: keras.Model) -> keras.Model:
    model.compile(keras.optimizers.SGD(0.1), "mse", metrics=["mae"], jit_compile=False)
    model._symbolic_build(data_batch=(tf.constant(X), tf.constant(Y)))
    model.optimizer.build(model.trainable_variables)
    return model


@pytest.fixture
def model() -> keras.Model:
    return ready(keras.Sequential([keras.Input((2,)), *layers()]))


@pytest.fixture
def guard(model: keras.Model) -> StepGuard:
    """Return one that keeps all that it may."""
    guard = StepGuard(model)
    guard.watch()
    return guard


def values(variables: list[keras.Variable]) -> dict[str, list[float]]:
    return {f"{i} {v.path}": np.ravel(v.numpy()).tolist() for i, v in enumerate(variables)}


def forward(model: keras.Model) -> None:
    """Do what a step does before its collective, and change every variable that it may."""
    predicted = model(X, training=True)
    model.compute_metrics(X, Y, predicted)
    model._loss_tracker.update_state(model.compute_loss(X, Y, predicted))


def changed(before: dict[str, list[float]], after: dict[str, list[float]]) -> set[str]:
    return {name for name in before if before[name] != after[name]}


def test_what_a_forward_pass_changed_is_put_back(model: keras.Model, guard: StepGuard) -> None:
    watched = [*model.non_trainable_variables, *model.metrics_variables]
    before = values(watched)
    guard.keep()
    forward(model)
    moved = changed(before, values(watched))
    assert all(any(part in name for name in moved) for part in ("moving_mean", "moving_variance", "seed", "total"))
    guard.put_back()
    assert values(watched) == before


def test_a_step_done_again_is_the_step_it_would_have_been(model: keras.Model, guard: StepGuard) -> None:
    guard.keep()
    first = model(X, training=True).numpy()
    guard.put_back()
    np.testing.assert_array_equal(model(X, training=True).numpy(), first)


def test_the_last_kept_values_count(model: keras.Model, guard: StepGuard) -> None:
    guard.keep()
    forward(model)
    kept = values(model.non_trainable_variables)
    guard.keep()
    forward(model)
    guard.put_back()
    assert values(model.non_trainable_variables) == kept


def test_trained_weights_are_not_its_business(model: keras.Model, guard: StepGuard) -> None:
    guard.keep()
    model.layers[-1].kernel.assign([[7.0], [8.0]])
    guard.put_back()
    assert model.layers[-1].kernel.numpy().tolist() == [[7.0], [8.0]]


def test_frozen_weights_are_watched_where_nothing_is_known_of_the_step(model: keras.Model) -> None:
    model.layers[-1].trainable = False
    guard, before = StepGuard(model), model.layers[-1].kernel.numpy().tolist()
    guard.watch()
    guard.keep()
    model.layers[-1].kernel.assign([[7.0], [8.0]])
    guard.put_back()
    assert model.layers[-1].kernel.numpy().tolist() == before


def traced(model: keras.Model, step: Any) -> Any:
    """Return a concrete function that does `step`, on whatever batch."""
    return tf.function(step, autograph=False).get_concrete_function()


def test_a_frozen_backbone_is_not_copied_but_its_seeds_and_the_rest_are() -> None:
    backbone = keras.Sequential([keras.Input((2,)), keras.layers.Dense(64), *layers()[:2], keras.layers.Dense(2)])
    backbone.trainable = False
    model = ready(keras.Sequential([keras.Input((2,)), backbone, *layers()]))
    guard = StepGuard(model)
    assert guard.watch(traced(model, lambda: forward(model)))
    # two of the head's BatchNorm, two seeds, two of each of loss and mae; the frozen BatchNorm only infers
    assert len(guard._live) == 2 + 2 + 4
    before = values([*model.variables, *model.metrics_variables])
    guard.keep()
    forward(model)
    assert len(changed(before, values([*model.variables, *model.metrics_variables]))) == 8
    guard.put_back()
    assert values([*model.variables, *model.metrics_variables]) == before


class Counts(keras.layers.Layer):
    """Changes variables in ways that hide from a glance at the graph."""

    def build(self, shape: Any) -> None:
        names = ("plain", "in_cond", "in_loop", "in_call", "read", "read_in_cond")
        for name in names:
            setattr(self, name, self.add_weight(name=name, shape=(), initializer="zeros", trainable=False))

    def call(self, x: Any) -> Any:
        tf.cond(tf.size(x) > 0, lambda: self.in_cond.assign_add(1.0), lambda: self.read_in_cond.value + 0.0)
        tf.while_loop(lambda i: i < 1, lambda i: (self.in_loop.assign_add(1.0), i + 1)[1:], [0])
        tf.function(lambda: self.in_call.assign_add(1.0), autograph=False)()
        self.plain.assign_add(1.0)
        return x + self.read


def test_writes_are_found_in_conditionals_loops_and_calls() -> None:
    counts = Counts()
    model = ready(keras.Sequential([keras.Input((2,)), counts, keras.layers.Dense(1)]))
    guard = StepGuard(model)
    guard.watch(traced(model, lambda: counts(tf.constant(X))))
    found = {id(v) for v in guard._live}
    assert {v.name for v in counts.variables if id(v.value) in found} == {"plain", "in_cond", "in_loop", "in_call"}


def test_a_function_that_changes_more_lets_more_be_kept(model: keras.Model) -> None:
    guard, mean = StepGuard(model), model.layers[0].moving_mean
    assert guard.watch(traced(model, lambda: mean.assign_add([1.0, 1.0])))
    assert not guard.watch(traced(model, lambda: mean.assign_add([2.0, 2.0])))
    guard.keep()
    assert guard.watch(traced(model, lambda: forward(model)))
    before = values(model.non_trainable_variables)
    forward(model)
    guard.put_back()
    assert values(model.non_trainable_variables) == before


def test_in_a_traced_step_the_values_from_before_it_are_kept(model: keras.Model, guard: StepGuard) -> None:
    statistics = model.layers[0].moving_mean

    @tf.function(autograph=False)
    def step() -> None:
        with tf.control_dependencies(guard.keep()):
            forward(model)

    seen = [statistics.numpy().tolist()]
    for _ in range(3):
        step()
        seen.append(statistics.numpy().tolist())
        guard.put_back()
        assert statistics.numpy().tolist() == seen[-2]
        step()
        assert statistics.numpy().tolist() == seen[-1]
