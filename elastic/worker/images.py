"""A source over a folder of images, one sub-folder a class."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from elastic.errors import ConfigError
from elastic.worker.each import Each, reason

_ENDINGS = (".bmp", ".gif", ".jpeg", ".jpg", ".png")


class ImageFolder:
    """The images below a folder as `(x, y)`: what `keras.utils.image_dataset_from_directory` gives, in sorted order.

    x is float32 [height, width, 3] in [0, 255], resized bilinearly; y is int32, the number of the
    class, which is that of its sub-folder in the order of names. Files of a class may lie in folders
    of their own; those with other endings than an image's, and hidden ones, are left out.

    Args:
        folder: has one sub-folder a class.
        image_size: (height, width) of all samples.

    Raises:
        ConfigError: when there is no such folder, no class or no image.
    """

    def __init__(self, folder: str | Path, image_size: tuple[int, int]) -> None:
        folder = Path(folder)
        if not folder.is_dir():
            raise ConfigError(f"data: found no folder {folder}, expected one with a sub-folder of images a class")
        self.class_names = sorted(p.name for p in folder.iterdir() if p.is_dir() and not p.name.startswith("."))
        if not self.class_names:
            raise ConfigError(f"data: found no sub-folder in {folder}, expected one a class, with its images")
        files = [sorted(_images(folder / name)) for name in self.class_names]
        self._paths = [path for paths in files for path in paths]
        self._labels = np.repeat(np.arange(len(files), dtype=np.int32), [len(paths) for paths in files])
        if not self._paths:
            raise ConfigError(f"data: found no image below {folder}, expected files ending in {', '.join(_ENDINGS)}")

        def decode(path: tf.Tensor) -> tf.Tensor:
            image = tf.io.decode_image(tf.io.read_file(path), channels=3, expand_animations=False)
            image = tf.image.resize(image, image_size)
            return tf.ensure_shape(image, (*image_size, 3))

        each = Each(decode, "data.source")
        self._decode = tf.function(each, input_signature=[tf.TensorSpec([None], tf.string)], autograph=False)

    def __len__(self) -> int:
        return len(self._paths)

    def __getitem__(self, indices: NDArray[np.int64]) -> Any:
        paths = [self._paths[index] for index in indices]
        try:
            with tf.device("/CPU:0"):
                images = self._decode(tf.constant(paths, tf.string))
        except tf.errors.OpError as error:
            if len(paths) != 1:
                raise
            raise ValueError(f"{paths[0]}: cannot be decoded as an image: {reason(error)}") from error
        return images.numpy(), self._labels[indices]


def _images(folder: Path) -> Iterator[str]:
    for where, folders, names in os.walk(folder, followlinks=True):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in names:
            if name.lower().endswith(_ENDINGS) and not name.startswith("."):
                yield str(Path(where) / name)
