"""What may be asked of the other workers, and how a lost one shows.

Horovod recognises a failed collective by three op names in the error text and misses the grouped
ones, whose failure its wrapper then swallows. Here every failed Horovod op becomes
`HorovodInternalError`, the sign that `hvd.elastic` recovers from; anything else is the user's.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import cloudpickle
import horovod.tensorflow as hvd
import numpy as np
import tensorflow as tf
from horovod.common.exceptions import HorovodInternalError
from numpy.typing import NDArray

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
def collectives(on_lost: Callable[[str], None] | None = None) -> Iterator[None]:
    """Turn every failed Horovod op inside into `HorovodInternalError`; `on_lost` is told what it says."""
    try:
        yield
    except (tf.errors.OpError, HorovodInternalError) as error:
        if not is_lost_collective(error):
            raise
        if on_lost is not None:
            on_lost(_first_line(error))
        raise HorovodInternalError(_first_line(error)) from error


def _first_line(error: BaseException) -> str:
    said = [line for line in str(error).splitlines() if _CORE_SAYS.search(line)]
    text = said[0] if said else str(error)
    return text.rpartition("}} ")[2].rpartition("] ")[2].partition(". ")[0][:200]


def gather_rows(row: Sequence[int], name: str) -> list[tuple[int, ...]]:
    """Return each rank's row of integers, all of one length, in rank order; one collective."""
    table = hvd.allgather(tf.constant([list(row)], tf.int64), name=f"elastic.{name}").numpy()
    return [tuple(int(cell) for cell in line) for line in table]


def gather(rows: NDArray[Any], name: str) -> NDArray[Any]:
    """Return each rank's rows, of which they may have different numbers, in rank order; one collective."""
    return hvd.allgather(tf.constant(rows), name=name).numpy()  # type: ignore[no-any-return]


def broadcast_bytes(data: bytes, size: int, root: int, name: str) -> bytes:
    """Return the root's `data` on every rank; `size` is its length, known to all; one collective."""
    mine = np.frombuffer(data, np.uint8) if hvd.rank() == root else np.zeros(size, np.uint8)
    return bytes(hvd.broadcast(tf.constant(mine), root, name=f"elastic.{name}").numpy().data)


def sum_arrays(arrays: Sequence[NDArray[Any]], name: str) -> list[NDArray[Any]]:
    """Return the element-wise sums over all ranks, in one collective.

    All are summed as float64, which holds single precision and counts up to 2^53, and returned in
    their own types.
    """
    if not arrays:
        return []
    flat = np.concatenate([np.asarray(a, np.float64).ravel() for a in arrays])
    total = hvd.allreduce(tf.constant(flat), op=hvd.Sum, name=name).numpy()
    parts = np.split(total, np.cumsum([a.size for a in arrays])[:-1])
    return [part.reshape(a.shape).astype(a.dtype) for part, a in zip(parts, arrays, strict=True)]


def dumps(value: Any) -> bytes:
    """Serialise a Python value, functions and lambdas included."""
    return bytes(cloudpickle.dumps(value))


def loads(data: bytes) -> Any:
    """Undo `dumps`."""
    return cloudpickle.loads(data)
