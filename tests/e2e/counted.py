"""A job that counts what its forward passes did: `counted:model`, `counted:data`, `counted:callbacks`.

Each worker writes what it has at the end to `COUNTED_OUT/<pid>.json`. Its validation set is empty.
"""

import json
import os
import time
from pathlib import Path
from typing import Any

import keras
import numpy as np

SAMPLES, PATIENCE = 640, 5
FULL = os.environ.get("COUNTED_MODEL", "everything") == "everything"


class Passes(keras.layers.Layer):
    """Counts its forward passes in training, as a state of its own that is not trained."""

    def build(self, input_shape: Any) -> None:
        self.passes = self.add_weight(name="passes", dtype="int32", initializer="zeros", trainable=False)
        super().build(input_shape)

    def call(self, inputs: Any, training: bool = False) -> Any:
        if training:
            self.passes.assign_add(1)
        return inputs


def steady(y: Any, predicted: Any) -> Any:
    """Return a metric that never gets better."""
    return keras.ops.ones_like(y)


def model() -> keras.Model:
    """Return a network that changes more than its weights, or (COUNTED_MODEL=plain) nothing beside them."""
    more: list[Any] = [Passes(), keras.layers.BatchNormalization(), keras.layers.Dropout(0.25)] if FULL else []
    network = keras.Sequential(
        [
            keras.Input((16,)),
            keras.layers.Dense(32, activation="relu", kernel_initializer=keras.initializers.GlorotUniform(3)),
            *more,
            keras.layers.Dense(4, activation="softmax", kernel_initializer=keras.initializers.GlorotUniform(4)),
        ]
    )
    network.compile(keras.optimizers.Adam(1e-3), loss="sparse_categorical_crossentropy", metrics=["accuracy", steady])
    return network


def data() -> tuple[Any, Any]:
    """Return training data and an empty validation set."""
    rng = np.random.default_rng(7)
    x = rng.normal(size=(SAMPLES, 16)).astype(np.float32)
    y = x[:, :4].argmax(axis=1).astype(np.int64)
    return (x, y), (x[:0], y[:0])


class Pace(keras.callbacks.Callback):
    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        time.sleep(float(os.environ.get("COUNTED_STEP_S", "0")))


class Account(keras.callbacks.Callback):
    def on_train_end(self, logs: Any = None) -> None:
        model = self.model
        variables = {v.path.partition("/")[2] or v.path: v.numpy().tolist() for v in model.variables}
        found = {"steps": int(model.optimizer.iterations.numpy()), "variables": variables}
        Path(os.environ["COUNTED_OUT"], f"{os.getpid()}.json").write_text(json.dumps(found))


def callbacks() -> list[keras.callbacks.Callback]:
    """Return what stops the job after PATIENCE epochs and one, and what writes the account."""
    return [Pace(), keras.callbacks.EarlyStopping("steady", patience=PATIENCE, mode="min"), Account()]
