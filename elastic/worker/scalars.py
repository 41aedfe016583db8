"""TensorBoard scalars without TensorBoard installed."""

from typing import Any

import keras
import tensorflow as tf

# What `tf.summary.scalar` writes; that one needs TensorBoard installed, this does not.
_SCALARS = tf.compat.v1.SummaryMetadata(
    plugin_data=tf.compat.v1.SummaryMetadata.PluginData(plugin_name="scalars"),
    data_class=1,  # DATA_CLASS_SCALAR
)


class Scalars(keras.callbacks.Callback):
    """Writes the metrics of each epoch for TensorBoard, against the epoch's number from 1."""

    def __init__(self, folder: str) -> None:
        super().__init__()
        self._folder = folder
        self._writer: Any = None

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        if self._writer is None:
            self._writer = tf.summary.create_file_writer(self._folder)
        with self._writer.as_default():
            for name, value in (logs or {}).items():
                if isinstance(value, float):
                    tf.summary.write(name, value, step=epoch + 1, metadata=_SCALARS)
        self._writer.flush()

    def on_train_end(self, logs: Any = None) -> None:
        if self._writer is not None:
            self._writer.close()
        self._writer = None
