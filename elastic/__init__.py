"""Elastic, fault-tolerant data-parallel training for Keras 3 on Horovod and Ray.

The public names are loaded on first use, so that importing this package (which the command
line and the agent do) loads neither TensorFlow nor Horovod nor Ray.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from elastic.errors import ConfigError, ElasticError, HostError, JobError, SampleError, WorkerError

if TYPE_CHECKING:
    from elastic.worker.callbacks import rank_zero
    from elastic.worker.fit import fit
    from elastic.worker.images import ImageFolder
    from elastic.worker.loop import run
    from elastic.worker.optimizer import distribute
    from elastic.worker.predict import predict
    from elastic.worker.state import KerasState
    from elastic.worker.tfrecord import TFRecordFiles

__version__ = "0.1.0"
__all__ = [
    "ConfigError",
    "ElasticError",
    "HostError",
    "ImageFolder",
    "JobError",
    "KerasState",
    "SampleError",
    "TFRecordFiles",
    "WorkerError",
    "distribute",
    "fit",
    "predict",
    "rank_zero",
    "run",
]

_LAZY = {
    "ImageFolder": "elastic.worker.images",
    "KerasState": "elastic.worker.state",
    "TFRecordFiles": "elastic.worker.tfrecord",
    "distribute": "elastic.worker.optimizer",
    "fit": "elastic.worker.fit",
    "predict": "elastic.worker.predict",
    "rank_zero": "elastic.worker.callbacks",
    "run": "elastic.worker.loop",
}


def __getattr__(name: str) -> Any:
    if name == "ray":
        return import_module("elastic.ray")
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'elastic' has no attribute {name!r}")
