"""From a user's data to batches of this worker's share.

A *source* maps indices to samples: `len(source)` and `source[indices] -> (x, y, ...)` with a
leading batch axis. Arrays are gathered by TensorFlow itself; Python is not on the path of a step.
"""

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from elastic.errors import ConfigError
from elastic.worker.order import Cut, permute


@runtime_checkable
class Source(Protocol):
    """Samples by index."""

    def __len__(self) -> int: ...

    def __getitem__(self, indices: NDArray[np.int64]) -> Any: ...


class Arrays:
    """A source over arrays (nested in tuples, lists or dicts) that share their first axis."""

    def __init__(self, tree: Any) -> None:
        self.tree = keras.tree.map_structure(_as_array, tree)
        lengths = {len(a) for a in keras.tree.flatten(self.tree)}
        if len(lengths) != 1:
            raise ConfigError(
                f"data: arrays of different lengths: {sorted(lengths)}; expected one sample a row in each"
            )
        self._length = lengths.pop()
        self._tensors: Any = None

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, indices: NDArray[np.int64]) -> Any:
        return keras.tree.map_structure(lambda a: a[indices], self.tree)

    def tensors(self) -> Any:
        """Return the arrays as tensors in host memory, made once."""
        if self._tensors is None:
            with tf.device("/CPU:0"):
                self._tensors = keras.tree.map_structure(tf.convert_to_tensor, self.tree)
        return self._tensors


def _as_array(value: Any) -> NDArray[Any]:
    array = np.asarray(value)
    if array.dtype == object or array.ndim == 0:
        raise ConfigError(
            f"data: found {type(value).__name__} ({array.dtype}), expected an array with one sample a row"
        )
    return array.astype(np.float32) if array.dtype == np.float64 else array


def as_source(data: Any, y: Any = None, sample_weight: Any = None) -> Source:
    """Return a source for what a user passes as training or validation data.

    Args:
        data: a source, an array x, or a tuple (x, y) or (x, y, sample_weight).
        y, sample_weight: as in `model.fit`, when `data` is x alone.

    Raises:
        ConfigError: when it is something else, with what to do.
    """
    if isinstance(data, tf.data.Dataset):
        raise ConfigError(
            "data: a tf.data.Dataset has no random access; pass arrays or an object with __len__ and __getitem__"
        )
    if callable(getattr(data, "__next__", None)):
        raise ConfigError(
            "data: a generator has no random access; pass arrays or an object with __len__ and __getitem__"
        )
    if y is not None or sample_weight is not None:
        return Arrays(tuple(part for part in (data, y, sample_weight) if part is not None))
    if isinstance(data, (tuple, list, dict, np.ndarray, tf.Tensor)):
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


def training_batches(source: Source, part: Cut, seed: int, epoch: int, consumed: int) -> tf.data.Dataset:
    """Return this rank's batches for the rest of an epoch.

    Elements are `(samples, share)`: `share` is the rank's part of the step's samples. A rank
    without samples in a step gets one sample with share 0, so that its step has the same ops.
    """
    n = len(source)
    order = permute(np.arange(consumed, n, dtype=np.int64), n, seed, epoch)
    low, high = part.low - consumed, part.high - consumed
    share = ((high - low) / part.total).astype(np.float32)
    empty = low == high
    low, high = (
        np.where(empty, np.minimum(low, n - consumed - 1), low),
        np.where(empty, np.minimum(low, n - consumed - 1) + 1, high),
    )
    return _pipeline(source, order, low, high, share)


def validation_batches(source: Source, low: int, high: int, batch: int) -> tf.data.Dataset:
    """Return the samples [low, high) in order, `(samples, 1.0)` a batch."""
    starts = np.arange(low, high, batch, dtype=np.int64) - low
    ends = np.minimum(starts + batch, high - low)
    return _pipeline(source, np.arange(low, high, dtype=np.int64), starts, ends, np.ones(len(starts), np.float32))


def _pipeline(
    source: Source,
    order: NDArray[np.int64],
    low: NDArray[np.int64],
    high: NDArray[np.int64],
    share: NDArray[np.float32],
) -> tf.data.Dataset:
    with tf.device("/CPU:0"):
        order_t, low_t, high_t, share_t = (tf.convert_to_tensor(a) for a in (order, low, high, share))
    fetch = _gather(source.tensors()) if isinstance(source, Arrays) else _ask(source)

    def element(step: tf.Tensor) -> Any:
        return fetch(order_t[low_t[step] : high_t[step]]), share_t[step]

    options = tf.data.Options()
    options.autotune.enabled = False  # two threads of ours suffice; the tuner costs more than it gains
    options.deterministic = True
    options.threading.private_threadpool_size = 2
    options.experimental_slack = False
    return tf.data.Dataset.range(len(low)).map(element).prefetch(2).with_options(options)


def _gather(tensors: Any) -> Any:
    return lambda indices: keras.tree.map_structure(lambda t: tf.gather(t, indices), tensors)


def _ask(source: Source) -> Any:
    example = keras.tree.map_structure(np.asarray, source[np.zeros(1, np.int64)])
    flat = keras.tree.flatten(example)
    types = [tf.as_dtype(a.dtype) for a in flat]

    def read(indices: NDArray[np.int64]) -> Sequence[NDArray[Any]]:
        return [np.asarray(a) for a in keras.tree.flatten(source[indices])]

    def fetch(indices: tf.Tensor) -> Any:
        parts = tf.numpy_function(read, [indices], types)
        for part, array in zip(parts, flat, strict=True):
            part.set_shape((None, *array.shape[1:]))
        return keras.tree.pack_sequence_as(example, parts)

    return fetch
