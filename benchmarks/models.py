"""The models of the benchmarks, by name, for ours and for stock Horovod alike."""

import keras

from elastic.examples.mnist import model as cnn

__all__ = ["cnn", "dense"]


def dense() -> keras.Model:
    """Return a dense network of 25 million parameters on the digits, with Adam: 300 MB of state."""
    network = keras.Sequential(
        [
            keras.Input((28, 28, 1)),
            keras.layers.Flatten(),
            keras.layers.Dense(4096, activation="relu"),
            keras.layers.Dense(4096, activation="relu"),
            keras.layers.Dense(1200, activation="relu"),
            keras.layers.Dense(10, activation="softmax"),
        ]
    )
    network.compile(keras.optimizers.Adam(1e-4), loss="sparse_categorical_crossentropy", metrics=["accuracy"])
    return network
