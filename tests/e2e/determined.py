"""A job whose result shows any difference: Dropout, BatchNorm, Adam, metrics, validation, early stopping.

It is slow on purpose (`DETERMINED_PAUSE_S` after each step), so that there is time to break things.
"""

import os
import time
from typing import Any

import keras
import numpy as np

SAMPLES, HELD_OUT = 488, 77  # neither the batch nor the shards divide them


def model() -> keras.Model:
    network = keras.Sequential(
        [
            keras.Input((10, 10, 1)),
            keras.layers.Conv2D(8, 3, activation="relu"),
            keras.layers.BatchNormalization(),
            keras.layers.Flatten(),
            keras.layers.Dropout(0.3),
            keras.layers.Dense(16, activation="relu"),
            keras.layers.GaussianNoise(0.1),
            keras.layers.Dense(4, activation="softmax"),
        ]
    )
    network.compile(
        keras.optimizers.Adam(0.003, global_clipnorm=1.0),
        "sparse_categorical_crossentropy",
        metrics=["accuracy", keras.metrics.SparseTopKCategoricalAccuracy(2)],
    )
    return network


def data() -> Any:
    rng = np.random.default_rng(5)
    x = rng.normal(size=(SAMPLES + HELD_OUT, 10, 10, 1)).astype("float32")
    y = (x[:, :5].sum(axis=(1, 2, 3)) > 0) * 2 + (x[:, 5:].sum(axis=(1, 2, 3)) > 0)
    return (x[:SAMPLES], y[:SAMPLES]), (x[SAMPLES:], y[SAMPLES:])


class Slowly(keras.callbacks.Callback):
    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        time.sleep(float(os.environ.get("DETERMINED_PAUSE_S", "0")))


def callbacks() -> list[keras.callbacks.Callback]:
    return [
        Slowly(),
        keras.callbacks.EarlyStopping(patience=2, restore_best_weights=True),
        keras.callbacks.ReduceLROnPlateau(monitor="loss", patience=1),
    ]
