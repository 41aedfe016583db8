"""Two workers, different data, five `fit` steps: do the replicas stay equal? `python replicas.py KIND OUT`.

KIND `ours` distributes the optimizer as this project does, `horovod` as Horovod's own binding does.
Rank 0 writes how far the ranks are apart and how far they are from one process on the joint batches.
"""

import json
import sys
from pathlib import Path

import horovod.tensorflow as hvd
import horovod.tensorflow.keras as hvd_keras
import keras
import numpy as np

from elastic.worker.optimizer import distribute

STEPS, BATCH = 5, 8


def network() -> keras.Model:
    keras.utils.set_random_seed(3)
    layers = [keras.Input((8,)), keras.layers.Dense(16, activation="relu"), keras.layers.Dense(3, activation="softmax")]
    return keras.Sequential(layers)


def trained(optimizer: keras.optimizers.Optimizer, x: np.ndarray, y: np.ndarray, batch: int) -> np.ndarray:
    model = network()
    model.compile(optimizer, "sparse_categorical_crossentropy", jit_compile=False)
    model.fit(x, y, batch_size=batch, epochs=1, shuffle=False, verbose=0)
    return np.concatenate([v.numpy().ravel() for v in model.variables])


def main() -> None:
    hvd.init()
    rng = np.random.default_rng(0)
    x = rng.normal(size=(STEPS * BATCH, 8)).astype("float32")
    y = rng.integers(0, 3, STEPS * BATCH)
    half = BATCH // hvd.size()
    mine = np.arange(STEPS * BATCH).reshape(STEPS, hvd.size(), half)[:, hvd.rank()].ravel()
    adam = keras.optimizers.Adam(1e-2)
    optimizer = distribute(adam) if sys.argv[1] == "ours" else hvd_keras.DistributedOptimizer(adam)
    weights = trained(optimizer, x[mine], y[mine], half)
    alone = trained(keras.optimizers.Adam(1e-2), x, y, BATCH)
    everyones = hvd.allgather_object(weights, name="weights")
    if hvd.rank() == 0:
        apart = max(float(np.abs(w - everyones[0]).max()) for w in everyones)
        Path(sys.argv[2]).write_text(json.dumps({"apart": apart, "from_one": float(np.abs(weights - alone).max())}))


if __name__ == "__main__":
    main()
