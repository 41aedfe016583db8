"""Handwritten digits: a small convolutional network on 28 x 28 images."""

from typing import Any

import keras
import numpy as np
from numpy.typing import NDArray


def model(learning_rate: float = 1e-3) -> keras.Model:
    """Return the compiled network; inputs (28, 28, 1) in [0, 1], outputs 10 probabilities."""
    network = keras.Sequential(
        [
            keras.Input((28, 28, 1)),
            keras.layers.Conv2D(32, 3, activation="relu"),
            keras.layers.MaxPooling2D(),
            keras.layers.Flatten(),
            keras.layers.Dense(64, activation="relu"),
            keras.layers.Dense(10, activation="softmax"),
        ]
    )
    network.compile(
        optimizer=keras.optimizers.Adam(learning_rate),
        loss="sparse_categorical_crossentropy",
        metrics=["accuracy"],
    )
    return network


def prepare(x: NDArray[Any], y: NDArray[Any]) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return pixels in [0, 1] with a channel axis, and labels as integers."""
    return (x.astype(np.float32) / 255.0)[..., np.newaxis], y.astype(np.int64)
