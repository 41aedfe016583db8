"""What may be asked of the other workers, and how a lost one shows.

Horovod recognises a failed collective by three op names in the error text and misses the grouped
ones, whose failure its wrapper then swallows. Here every failed Horovod op becomes
`HorovodInternalError`, the sign that `hvd.elastic` recovers from; anything else is the user's.
"""

import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import cloudpickle
import horovod.tensorflow as hvd
import numpy as np
import tensorflow as tf
from horovod.common.exceptions import HorovodInternalError

# What Horovod's core says, the type of one of its ops, the name of one of ours, or the transport's words.
_CORE_SAYS = re.compile(
    r"Horovod has been shut down|Horovod[A-Z][a-z]+|\{\{node [^}]*\belastic\.|/gloo/\S+\] |\bNCCL\b|\bncclCommAbort\b"
)


def is_lost_collective(error: BaseException) -> bool:
    """Tell whether an exception says that a Horovod op failed because a peer is gone.

    The text of a TensorFlow error also holds the file names of the Python stack, horovod's own
    among them; only what the core itself says counts. Wrong shapes or types come with another
    status and are nobody's loss.
    """
    if isinstance(error, HorovodInternalError):
        return True
    return isinstance(error, tf.errors.UnknownError) and _CORE_SAYS.search(str(error)) is not None


@contextmanager
def collectives(on_lost: Callable[[str, float], None] | None = None) -> Iterator[None]:
    """Turn every failed Horovod op inside into `HorovodInternalError`.

    `on_lost` is told the error's first line and how many seconds the block had run.
    """
    began = time.monotonic()
    try:
        yield
    except (tf.errors.OpError, HorovodInternalError) as error:
        if not is_lost_collective(error):
            raise
        if on_lost is not None:
            on_lost(_first_line(error), time.monotonic() - began)
        raise HorovodInternalError(_first_line(error)) from error


def _first_line(error: BaseException) -> str:
    said = [line for line in str(error).splitlines() if _CORE_SAYS.search(line)]
    text = said[0] if said else str(error)
    return text.rpartition("}} ")[2].rpartition("] ")[2].partition(". ")[0][:200]


def gather(value: Any, name: str) -> list[Any]:
    """Return the values of all ranks, in rank order."""
    return list(hvd.allgather_object(value, name=name))


def broadcast_object(value: Any, root: int, name: str) -> Any:
    """Return the root's value on every rank."""
    return hvd.broadcast_object(value, root_rank=root, name=name)


def broadcast_variables(variables: Sequence[Any], root: int) -> None:
    """Overwrite `variables` (tf.Variable) with the root's, all of one dtype in one collective.

    Raises:
        ValueError: on every rank, when the ranks do not hold the same variables.
    """
    mine = [(tuple(v.shape), v.dtype.name) for v in variables]
    for rank, theirs in enumerate(gather(mine, "elastic.shapes")):
        if theirs != mine:
            raise ValueError(_mismatch(rank, mine, theirs))
    for dtype in sorted({v.dtype for v in variables}, key=lambda d: d.name):
        group = [v for v in variables if v.dtype == dtype]
        _broadcast_packed(group, dtype, root)


def _broadcast_packed(group: Sequence[Any], dtype: tf.DType, root: int) -> None:
    if dtype == tf.string:
        for i, variable in enumerate(group):
            variable.assign(broadcast_object(variable.numpy(), root, f"elastic.string.{i}"))
        return
    flat = tf.concat([tf.reshape(v, [-1]) for v in group], axis=0)
    wire = tf.uint8 if dtype == tf.bool else dtype
    flat = tf.cast(hvd.broadcast(tf.cast(flat, wire), root, name=f"elastic.sync.{dtype.name}"), dtype)
    if hvd.rank() == root:
        return
    sizes = [int(np.prod(v.shape)) for v in group]
    for variable, part in zip(group, tf.split(flat, sizes), strict=True):
        variable.assign(tf.reshape(part, variable.shape))


def _mismatch(rank: int, mine: Sequence[Any], theirs: Sequence[Any]) -> str:
    if len(mine) != len(theirs):
        return f"this worker has {len(mine)} variables, rank {rank} has {len(theirs)}: not the same model"
    i = next(i for i, (a, b) in enumerate(zip(mine, theirs, strict=True)) if a != b)
    return f"variable {i} is {mine[i]} here and {theirs[i]} on rank {rank}: not the same model"


def sum_arrays(arrays: Sequence[Any], name: str) -> list[np.ndarray[Any, Any]]:
    """Return the element-wise sums over all ranks, as numpy arrays, in one collective."""
    tensors = [tf.convert_to_tensor(a) for a in arrays]
    if not tensors:
        return []
    return [t.numpy() for t in hvd.grouped_allreduce(tensors, op=hvd.Sum, name=name)]


def dumps(value: Any) -> bytes:
    """Serialise a Python value, functions and lambdas included."""
    return bytes(cloudpickle.dumps(value))


def loads(data: bytes) -> Any:
    """Undo `dumps`."""
    return cloudpickle.loads(data)
