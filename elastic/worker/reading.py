"""Reads a source's samples from within a pipeline, and says which sample could not be read.

TensorFlow turns what Python raises in a pipeline into an error of an op, which has neither the
index nor the exception. So the exception is kept, and comes out in place of that error.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from elastic.errors import SampleError
from elastic.worker.data import Source


class Reading:
    """The samples of one source as TensorFlow ops that call it.

    Args:
        source: what it gives for its first sample says what it gives for all: the same structure,
            dtypes, and shapes but for the number of samples.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self._failure: SampleError | None = None
        self._structure = source[np.zeros(1, np.int64)]
        self._first = [np.asarray(part) for part in keras.tree.flatten(self._structure)]
        self._types = [tf.as_dtype(part.dtype) for part in self._first]

    def fetch(self, indices: tf.Tensor) -> Any:
        """Return the samples at these indices."""
        parts = tf.numpy_function(self._read, [indices], self._types)
        for part, first in zip(parts, self._first, strict=True):
            part.set_shape((None, *first.shape[1:]))
        return keras.tree.pack_sequence_as(self._structure, parts)

    @contextmanager
    def named(self) -> Iterator[None]:
        """Raise what the source raised where a step fails for it.

        Raises:
            SampleError: naming the sample, with the source's own exception as its cause.
        """
        try:
            yield
        except tf.errors.OpError as error:
            # It may be of a sample whose turn has not come: then the step failed for another reason.
            failure = self._failure
            if failure is None or str(failure) not in str(error):
                raise
            raise failure from failure.__cause__

    def _read(self, indices: NDArray[np.int64]) -> Sequence[NDArray[Any]]:
        if not len(indices):
            return [np.empty((0, *first.shape[1:]), first.dtype) for first in self._first]
        try:
            return self._checked(indices)
        except Exception as error:  # noqa: BLE001 - whatever a user's code raises is told with its sample
            self._failure = _culprit(self._checked, indices, error)
            raise self._failure from self._failure.__cause__

    def _checked(self, indices: NDArray[np.int64]) -> list[NDArray[Any]]:
        parts = [np.asarray(part) for part in keras.tree.flatten(self._source[indices])]
        found = [(tf.as_dtype(part.dtype).name, part.shape) for part in parts]
        expected = [
            (type_.name, (len(indices), *first.shape[1:]))
            for type_, first in zip(self._types, self._first, strict=True)
        ]
        if found != expected:
            raise ValueError(
                f"found {_shown(found)}, expected {_shown(expected)}: {len(indices)} samples like the first one"
            )
        return parts


def _culprit(read: Callable[[NDArray[np.int64]], Any], indices: NDArray[np.int64], error: Exception) -> SampleError:
    """Return the error that names which of these samples cannot be read."""
    for index in indices:
        try:
            read(np.array([index]))
        except Exception as own:  # noqa: BLE001 - as above
            return _because(f"sample {index} cannot be read", own)
    shown = ", ".join(map(str, indices[:8].tolist())) + (", ..." if len(indices) > 8 else "")
    return _because(f"samples {shown} cannot be read together, though each by itself can", error)


def _because(what: str, error: Exception) -> SampleError:
    failure = SampleError(f"data: {what}: {type(error).__name__}: {error}")
    failure.__cause__ = error
    return failure


def _shown(parts: Sequence[tuple[str, tuple[int, ...]]]) -> str:
    return ", ".join(f"{name}{list(shape)}" for name, shape in parts)
