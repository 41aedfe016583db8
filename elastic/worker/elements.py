"""A `tf.data.Dataset` as a source: its elements are the samples, in its own order."""

import logging
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from elastic.errors import ConfigError

log = logging.getLogger("elastic")

_BATCHES = ("_BatchDataset", "_ParallelBatchDataset", "_PaddedBatchDataset")
_OPENS = ("_UnbatchDataset", "_FlatMapDataset", "_InterleaveDataset", "_ParallelInterleaveDataset")


class Elements:
    """The elements of a dataset: number i is what the dataset gives at place i, each time it is read.

    There is no random access: `ElementsFeed` has every worker read through all of it.

    Args:
        dataset: gives the same elements in the same order whenever and wherever it is read; finite. A
            batched one is unbatched, since the batch of a step is cut anew with each change of workers.

    Raises:
        ConfigError: when it is endless, or shuffled anew each time it is read.
    """

    def __init__(self, dataset: Any) -> None:
        if dataset.cardinality() == tf.data.INFINITE_CARDINALITY:
            raise ConfigError("data: found an endless tf.data.Dataset, expected one epoch: leave out .repeat()")
        if any(getattr(step, "_reshuffle_each_iteration", False) for step in _steps(dataset)):
            raise ConfigError(
                "data: found a tf.data.Dataset that is shuffled anew each time it is read, so that workers would see "
                "samples twice and others never: leave out .shuffle(), or give it reshuffle_each_iteration=False "
                "and a seed"
            )
        log.warning(
            "data: a tf.data.Dataset has no random access: every worker reads all of it for its own part, in each "
            "epoch in the dataset's order (no shuffle), and after a change of workers once more from the start; "
            "arrays, elastic.TFRecordFiles, elastic.ImageFolder or an object with __getitem__ have none of these costs"
        )
        if _is_batched(dataset):
            log.warning("data: the tf.data.Dataset is batched; it is unbatched here: leave out .batch()")
            dataset = dataset.unbatch()
        self.dataset = dataset
        self._length = int(dataset.cardinality())
        if self._length < 0:
            log.info("data: counting the elements of the tf.data.Dataset, which does not know them")
            self._length = int(dataset.reduce(np.int64(0), lambda count, *_: count + 1))
            log.info("data: the tf.data.Dataset has %d elements", self._length)

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, indices: NDArray[np.int64]) -> Any:
        found = [next(iter(self.dataset.skip(index).take(1))) for index in indices]
        return keras.tree.map_structure(lambda *parts: np.stack([part.numpy() for part in parts]), *found)


def _steps(dataset: Any) -> Iterator[Any]:
    """Yield a dataset and those that it is made of."""
    yield dataset
    for source in dataset._inputs():
        yield from _steps(source)


def _is_batched(dataset: Any) -> bool:
    """Tell whether the elements are batches: by how the dataset was made, or as all have an open first axis."""
    for step in _steps(dataset):
        if type(step).__name__ in _BATCHES:
            return True
        if type(step).__name__ in _OPENS:
            break
    shapes = [spec.shape for spec in tf.nest.flatten(dataset.element_spec)]
    return all(shape.rank and shape[0] is None for shape in shapes)
