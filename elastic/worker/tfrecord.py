"""A source over TFRecord files: any record at any time."""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from glob import glob
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray
from tensorflow.python.lib.io.tf_record import tf_record_random_reader

from elastic.errors import ConfigError
from elastic.worker.each import Each, reason
from elastic.worker.record_index import record_offsets

_OPEN = 64  # files kept open


class TFRecordFiles:
    """The records of TFRecord files, the files in the order of their names.

    Records are read where an index says they begin (see `record_index`); TensorFlow verifies the
    checksums of the length and the data of each.

    Args:
        files: a path, a pattern such as `data/train-*.tfrecord`, or a list of them.
        parse: `serialized -> (x, y, ...)` as TensorFlow ops, `serialized` a scalar string; such as
            `tf.io.parse_single_example(serialized, features)` and what makes a sample of that.

    Raises:
        ConfigError: when there is no such file, or one is cut off, compressed or something else.
    """

    def __init__(self, files: str | Path | Sequence[str | Path], parse: Callable[[Any], Any]) -> None:
        patterns = [str(files)] if isinstance(files, (str, Path)) else [str(pattern) for pattern in files]
        found = (path for pattern in patterns for path in glob(pattern, recursive=True))  # noqa: PTH207 - may be absolute
        self._paths = sorted({Path(path) for path in found})
        if not self._paths:
            raise ConfigError(f"data: found no file {files}, expected TFRecord files")
        self._offsets = [record_offsets(path) for path in self._paths]
        self._ends = np.cumsum([len(offsets) for offsets in self._offsets])
        self._readers: OrderedDict[int, Any] = OrderedDict()
        each = Each(parse, "data.parse")
        self._parse = tf.function(each, input_signature=[tf.TensorSpec([None], tf.string)], autograph=False)

    def __len__(self) -> int:
        return int(self._ends[-1])

    def __getitem__(self, indices: NDArray[np.int64]) -> Any:
        records = [self._record(*self._place(index)) for index in indices]
        try:
            with tf.device("/CPU:0"):
                samples = self._parse(tf.constant(records, tf.string))
        except tf.errors.OpError as error:
            if len(records) != 1:
                raise
            raise ValueError(f"{self._said(*self._place(indices[0]))} cannot be parsed: {reason(error)}") from error
        return keras.tree.map_structure(lambda part: part.numpy(), samples)

    def _place(self, index: np.int64) -> tuple[int, int]:
        """Return which file a record is in, and its number there."""
        file = int(np.searchsorted(self._ends, index, side="right"))
        return file, int(index - (self._ends[file] - len(self._offsets[file])))

    def _record(self, file: int, number: int) -> bytes:
        try:
            reader = self._readers.pop(file, None) or tf_record_random_reader(str(self._paths[file]))
            self._readers[file] = reader
            if len(self._readers) > _OPEN:
                self._readers.popitem(last=False)
            return reader.read(int(self._offsets[file][number]))[0]
        except (tf.errors.OpError, IndexError) as error:
            raise ConfigError(f"{self._said(file, number)} cannot be read: {error}") from error

    def _said(self, file: int, number: int) -> str:
        return f"{self._paths[file]}: record {number} at byte {self._offsets[file][number]}"
