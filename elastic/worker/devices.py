"""Give each worker its part of the machine: a GPU by local rank, or its share of the cores."""

import os

import tensorflow as tf


def configure() -> None:
    """Set what must be set before TensorFlow first runs an op.

    The agent tells through ELASTIC_LOCAL_WORKERS how many workers share this host.
    """
    local_workers = max(1, int(os.environ.get("ELASTIC_LOCAL_WORKERS", "1")))
    cores = len(os.sched_getaffinity(0))
    tf.config.threading.set_intra_op_parallelism_threads(max(1, cores // local_workers))


def take_gpu(local_rank: int) -> None:
    """Make only the GPU of this local rank visible, growing its memory as needed."""
    gpus = tf.config.list_physical_devices("GPU")
    if not gpus:
        return
    mine = gpus[local_rank % len(gpus)]
    tf.config.set_visible_devices(mine, "GPU")
    tf.config.experimental.set_memory_growth(mine, True)
