"""Stock Horovod Elastic on Keras 3, with the fewest lines that make it run at all (private to the benchmarks).

`python stock_worker.py STEPS_FILE MODEL [elastic]`: one of `benchmarks.models` on the digits, batch 32 a
worker; every step is a line `time rank size step` in STEPS_FILE. What is mended: gradients are reduced in
`apply` (Horovod's optimizer reduces nothing on Keras 3), the state reads Keras 3's variables.
"""

import os
import sys
import time
from pathlib import Path

import horovod.tensorflow as hvd
import keras
import tensorflow as tf
from horovod.common.elastic import ObjectState
from horovod.tensorflow import elastic
from horovod.tensorflow.elastic import TensorFlowKerasState

from benchmarks import models
from benchmarks.digits import data
from elastic.examples.mnist import prepare

BATCH = 32


class Reducing(keras.optimizers.Adam):
    def apply(self, grads, trainable_variables=None):
        return super().apply(hvd.grouped_allreduce(list(grads), op=hvd.Average), trainable_variables)


class State(TensorFlowKerasState):
    def __init__(self, model, **kwargs):
        self.model, self.optimizer, self.backend = model, model.optimizer, None
        self._save_model()
        ObjectState.__init__(self, bcast_object=hvd.broadcast_object, get_rank=hvd.rank, **kwargs)

    def _vars(self):
        own = [v.value for v in self.model.variables]
        return own + [v.value for v in self.optimizer.variables]

    def _save_model(self):
        self._saved = [tf.identity(v) for v in self._vars()]

    def _load_model(self):
        for variable, saved in zip(self._vars(), self._saved, strict=True):
            variable.assign(saved)

    def sync(self):
        hvd.broadcast_variables(self._vars(), root_rank=0)
        self._save_model()
        ObjectState.sync(self)


def main() -> None:
    path = Path(sys.argv[1])
    workers = max(1, int(os.environ.get("HOROVOD_LOCAL_SIZE", "1")))
    tf.config.threading.set_intra_op_parallelism_threads(max(1, (os.cpu_count() or 1) // workers))
    hvd.init()
    keras.utils.set_random_seed(1)
    network = getattr(models, sys.argv[2])()
    rate = float(network.optimizer.learning_rate)
    network.compile(Reducing(rate), network.loss, metrics=["accuracy"], jit_compile=False)
    network.optimizer.build(network.trainable_variables)
    x, y = prepare(*data(times=1))
    log = path.open("a", buffering=1)

    class Log(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            state.step += 1
            log.write(f"{time.time()} {hvd.rank()} {hvd.size()} {state.step}\n")
            if "elastic" in sys.argv[3:] and state.step % 10 == 0:
                state.commit()

    state = State(network, step=0)

    def train(_):
        samples = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(5000, seed=hvd.rank()).repeat()
        batches = samples.batch(BATCH, drop_remainder=True).prefetch(2)
        network.fit(batches, steps_per_epoch=937, epochs=10**6, verbose=0, callbacks=[Log()])

    if "elastic" in sys.argv[3:]:
        elastic.run(train)(state)
    else:
        hvd.broadcast_variables(state._vars(), root_rank=0)
        train(state)


if __name__ == "__main__":
    main()
