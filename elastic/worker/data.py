"""From a user's data to batches of this worker's share.

A *source* maps indices to samples: `len(source)` and `source[indices] -> (x, y, ...)` with a
leading batch axis. Arrays in memory are gathered by TensorFlow itself; Python is not on the path
of a step.
"""

from mmap import mmap
from typing import Any, Protocol, runtime_checkable

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from elastic.errors import ConfigError
from elastic.worker.elements import Elements


@runtime_checkable
class Source(Protocol):
    """Samples by index."""

    def __len__(self) -> int: ...

    def __getitem__(self, indices: NDArray[np.int64]) -> Any: ...


class Arrays:
    """A source over arrays (nested in tuples, lists or dicts) that share their first axis.

    An array that is mapped from a file (`np.memmap`, `np.load(..., mmap_mode="r")`, or a slice of
    one) stays there, since it may be larger than memory: the rows of each batch are read when it is
    their turn, by Python. All others are in memory already and are handed to TensorFlow.
    """

    def __init__(self, tree: Any) -> None:
        self.tree = keras.tree.map_structure(_as_array, tree)
        lengths = {len(a) for a in keras.tree.flatten(self.tree)}
        if len(lengths) != 1:
            raise ConfigError(
                f"data: arrays of different lengths: {sorted(lengths)}; expected one sample a row in each"
            )
        self._length = lengths.pop()
        self._copies: list[tf.Variable | None] | None = None

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, indices: NDArray[np.int64]) -> Any:
        return keras.tree.map_structure(lambda a: _narrow(a[indices]), self.tree)

    def fetch(self, indices: tf.Tensor) -> Any:
        """Return the samples at these indices, as TensorFlow ops."""
        arrays = keras.tree.flatten(self.tree)
        if self._copies is None:
            # Variables, not constants, and made outside of the function that may be traced right now: what a
            # graph holds is copied with each of its protobufs, which take 2 GB at most.
            with tf.init_scope(), tf.device("/CPU:0"):
                self._copies = [None if _is_mapped(a) else tf.Variable(a, trainable=False) for a in arrays]
        mapped = [a for a in arrays if _is_mapped(a)]
        types = [_narrow(a[:0]).dtype for a in mapped]
        read = iter(tf.numpy_function(lambda i: [_narrow(a[i]) for a in mapped], [indices], types) if mapped else ())
        parts = []
        for array, copy in zip(arrays, self._copies, strict=True):
            part = next(read) if copy is None else tf.gather(copy, indices)
            part.set_shape((None, *array.shape[1:]))
            parts.append(part)
        return keras.tree.pack_sequence_as(self.tree, parts)


def _as_array(value: Any) -> NDArray[Any]:
    array = np.asarray(value)
    if array.dtype == object or array.ndim == 0:
        raise ConfigError(
            f"data: found {type(value).__name__} ({array.dtype}), expected an array with one sample a row"
        )
    return array if _is_mapped(array) else _narrow(array)


def _narrow(array: NDArray[Any]) -> NDArray[Any]:
    """Return floats as models compute in them."""
    return array.astype(np.float32) if array.dtype == np.float64 else array


def _is_mapped(array: Any) -> bool:
    while isinstance(array, np.ndarray):
        if isinstance(array, np.memmap):
            return True
        array = array.base
    return isinstance(array, mmap)


def as_source(data: Any, y: Any = None, sample_weight: Any = None) -> Source:
    """Return a source for what a user passes as training or validation data.

    Args:
        data: a source, a `tf.data.Dataset`, an array x (or a data frame of numbers), or a tuple (x, y) or
            (x, y, sample_weight).
        y, sample_weight: as in `model.fit`, when `data` is x alone.

    Raises:
        ConfigError: when it is something else, with what to do.
    """
    if isinstance(data, tf.data.Dataset):
        if y is not None or sample_weight is not None:
            raise ConfigError("data: a tf.data.Dataset brings its targets and weights: leave out y and sample_weight")
        return Elements(data)
    if callable(getattr(data, "__next__", None)):
        raise ConfigError(
            "data: a generator has no random access; pass arrays or an object with __len__ and __getitem__"
        )
    if isinstance(data, keras.utils.PyDataset):
        raise ConfigError(
            "data: a PyDataset is indexed by batch, which a resize cuts anew; pass arrays or an object whose "
            "__len__ counts samples and whose __getitem__ takes an array of sample indices"
        )
    if y is not None or sample_weight is not None:
        return Arrays(tuple(part for part in (data, y, sample_weight) if part is not None))
    if isinstance(data, (tuple, list, dict, np.ndarray, tf.Tensor)) or hasattr(data, "to_numpy"):
        return Arrays(tuple(data) if isinstance(data, list) else data)
    if isinstance(data, Source):
        return data
    raise ConfigError(f"data: found {type(data).__name__}, expected arrays or an object with __len__ and __getitem__")


def split(source: Source, fraction: float) -> tuple[Source, Source]:
    """Return the first part of an array source and its last `fraction`, as `validation_split` does."""
    if not isinstance(source, Arrays):
        raise ConfigError("validation_split: works on arrays alone; pass validation_data")
    at = int(len(source) * (1.0 - fraction))
    if not 0 < at < len(source):
        raise ConfigError(f"validation_split: found {fraction}, which leaves one part of {len(source)} samples empty")
    parts = (lambda a: a[:at], lambda a: a[at:])
    first, last = (Arrays(keras.tree.map_structure(part, source.tree)) for part in parts)
    return first, last
