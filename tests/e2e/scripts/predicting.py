"""Predicts the bundled digits with a fresh network, checks the result against Keras, says so."""

import keras
import numpy as np

import elastic
from elastic.examples.mnist import model, prepare
from elastic.worker.job import BUNDLED

keras.utils.set_random_seed(3)
network = model()
with np.load(BUNDLED) as file:
    x, y = prepare(file["x_train"][:4999], file["y_train"][:4999])
found = elastic.predict(network, (x, y), batch_size=24)
expected = network.predict(x, verbose=0)
assert found.shape == expected.shape
np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)
again = elastic.predict(network, x[:10])
np.testing.assert_allclose(again, expected[:10], rtol=1e-4, atol=1e-6)
print("predictions are Keras's", flush=True)
