"""A small job of steps of known length, for schedules of faults: `paced:model`, `paced:data`, `paced:callbacks`."""

import os
import time
from typing import Any

import keras
import numpy as np

SAMPLES = int(os.environ.get("PACED_SAMPLES", "997"))
STEP_S = float(os.environ.get("PACED_STEP_S", "0.02"))


def model() -> keras.Model:
    """Return a network with everything that a forward pass may change: BatchNorm, Dropout, metrics."""
    network = keras.Sequential(
        [
            keras.Input((16,)),
            keras.layers.Dense(32, activation="relu"),
            keras.layers.BatchNormalization(),
            keras.layers.Dropout(0.25),
            keras.layers.Dense(4, activation="softmax"),
        ]
    )
    network.compile(keras.optimizers.Adam(1e-3), loss="sparse_categorical_crossentropy", metrics=["accuracy"])
    return network


def data() -> tuple[Any, Any]:
    """Return training and validation data; as many samples as divide by nothing."""
    rng = np.random.default_rng(7)
    x = rng.normal(size=(SAMPLES + 101, 16)).astype(np.float32)
    y = (x[:, :4].argmax(axis=1)).astype(np.int64)
    return (x[:SAMPLES], y[:SAMPLES]), (x[SAMPLES:], y[SAMPLES:])


class Pace(keras.callbacks.Callback):
    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        time.sleep(STEP_S)


def callbacks() -> list[keras.callbacks.Callback]:
    return [Pace()]
