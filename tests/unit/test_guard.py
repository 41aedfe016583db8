import keras
import numpy as np
import pytest
import tensorflow as tf

from elastic.worker.guard import StepGuard

X, Y = np.linspace(-3.0, 5.0, 12, dtype=np.float32).reshape(6, 2), np.ones((6, 1), np.float32)


@pytest.fixture
def model() -> keras.Model:
    """Return a model with everything that a forward pass changes: statistics, seeds, metrics."""
    model = keras.Sequential(
        [
            keras.Input((2,)),
            keras.layers.BatchNormalization(),
            keras.layers.Dropout(0.5, seed=3),
            keras.layers.Dense(1),
        ]
    )
    model.compile(keras.optimizers.SGD(0.1), "mse", metrics=["mae"], jit_compile=False)
    model._symbolic_build(data_batch=(tf.constant(X), tf.constant(Y)))
    model.optimizer.build(model.trainable_variables)
    return model


def values(variables: list[keras.Variable]) -> dict[str, list[float]]:
    return {f"{i} {v.path}": np.ravel(v.numpy()).tolist() for i, v in enumerate(variables)}


def forward(model: keras.Model) -> None:
    """Do what a step does before its collective, and change every variable that it may."""
    predicted = model(X, training=True)
    model.compute_metrics(X, Y, predicted)
    model._loss_tracker.update_state(model.compute_loss(X, Y, predicted))


def changed(before: dict[str, list[float]], after: dict[str, list[float]]) -> set[str]:
    return {name for name in before if before[name] != after[name]}


def test_what_a_forward_pass_changed_is_put_back(model: keras.Model) -> None:
    watched = [*model.non_trainable_variables, *model.metrics_variables]
    guard, before = StepGuard(model), values(watched)
    guard.keep()
    forward(model)
    moved = changed(before, values(watched))
    assert all(any(part in name for name in moved) for part in ("moving_mean", "moving_variance", "seed", "total"))
    guard.put_back()
    assert values(watched) == before


def test_a_step_done_again_is_the_step_it_would_have_been(model: keras.Model) -> None:
    guard = StepGuard(model)
    guard.keep()
    first = model(X, training=True).numpy()
    guard.put_back()
    np.testing.assert_array_equal(model(X, training=True).numpy(), first)


def test_the_last_kept_values_count(model: keras.Model) -> None:
    guard = StepGuard(model)
    guard.keep()
    forward(model)
    kept = values(model.non_trainable_variables)
    guard.keep()
    forward(model)
    guard.put_back()
    assert values(model.non_trainable_variables) == kept


def test_trained_weights_are_not_its_business(model: keras.Model) -> None:
    guard = StepGuard(model)
    guard.keep()
    model.layers[-1].kernel.assign([[7.0], [8.0]])
    guard.put_back()
    assert model.layers[-1].kernel.numpy().tolist() == [[7.0], [8.0]]


def test_frozen_weights_are_watched(model: keras.Model) -> None:
    model.layers[-1].trainable = False
    guard, before = StepGuard(model), model.layers[-1].kernel.numpy().tolist()
    guard.keep()
    model.layers[-1].kernel.assign([[7.0], [8.0]])
    guard.put_back()
    assert model.layers[-1].kernel.numpy().tolist() == before


def test_in_a_traced_step_the_values_from_before_it_are_kept(model: keras.Model) -> None:
    guard, statistics = StepGuard(model), model.layers[0].moving_mean

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
