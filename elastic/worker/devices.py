"""Give each worker its part of the machine: a GPU by local rank, or its share of the cores."""

import os

import tensorflow as tf

from elastic.worker.context import Context


def configure(context: Context) -> None:
    """Set what must be set before TensorFlow first runs an op.

    The agent tells through ELASTIC_LOCAL_WORKERS how many workers share this host. Which GPU is
    this worker's follows from its slot: where there are GPUs, or a standby is to have imported
    TensorFlow and no more, this waits for the slot. A launcher may have given each slot GPUs of its
    own; TensorFlow looks for them once, so a standby looks no sooner.
    """
    local_workers = max(1, int(os.environ.get("ELASTIC_LOCAL_WORKERS", "1")))
    cores = len(os.sched_getaffinity(0))
    threads = max(1, cores // local_workers)
    if context.config.deterministic:
        threads = 1  # how kernels divide their work, and so the order in which they add, follows from this number
        tf.config.experimental.enable_op_determinism()
    tf.config.threading.set_intra_op_parallelism_threads(threads)
    if context.standby and (context.level == "import" or _gpus_are_given()):
        go = context.wait_for_slot()
        os.environ.update({k: v for k, v in (go.env if go else {}).items() if k == "CUDA_VISIBLE_DEVICES"})
    gpus = tf.config.list_physical_devices("GPU")
    if gpus:
        go = context.wait_for_slot()
        take_gpu(gpus, int(go.env.get("HOROVOD_LOCAL_RANK", "0")) if go else 0)


def take_gpu(gpus: list[tf.config.PhysicalDevice], local_rank: int) -> None:
    """Make only the GPU of this local rank visible, growing its memory as needed."""
    if not gpus:
        return
    mine = gpus[local_rank % len(gpus)]
    tf.config.set_visible_devices(mine, "GPU")
    tf.config.experimental.set_memory_growth(mine, True)


def _gpus_are_given() -> bool:
    return os.environ.get("CUDA_VISIBLE_DEVICES", "") not in ("", "-1")
