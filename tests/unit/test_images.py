"""A folder of images, one sub-folder a class."""

import shutil
from itertools import islice
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

from elastic.errors import ConfigError, SampleError
from elastic.worker.data import as_source
from elastic.worker.feed import Feed
from elastic.worker.images import ImageFolder
from elastic.worker.order import cut


def picture(path: Path, value: int, size: tuple[int, int] = (6, 8)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = tf.fill([*size, 3], tf.constant(value, tf.uint8))
    encode = tf.io.encode_png if path.suffix == ".png" else tf.io.encode_jpeg
    path.write_bytes(encode(pixels).numpy())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with two classes of pictures of one colour each: 10, 20, 30 and 40, 50."""
    picture(tmp_path / "cats" / "a.png", 10)
    picture(tmp_path / "cats" / "b.jpg", 20, (12, 10))
    picture(tmp_path / "cats" / "more" / "c.JPEG", 30)
    picture(tmp_path / "dogs" / "a.png", 40)
    picture(tmp_path / "dogs" / "b.png", 50)
    (tmp_path / "cats" / "notes.txt").write_text("not an image")
    (tmp_path / ".hidden").mkdir()
    picture(tmp_path / "dogs" / ".thumbs" / "a.png", 60)
    (tmp_path / "readme.png").write_text("not in a class")
    return tmp_path


def test_images_come_in_sorted_order_with_the_number_of_their_class(folder: Path) -> None:
    source = as_source(ImageFolder(folder, (4, 5)))
    assert isinstance(source, ImageFolder)
    x, y = source[np.arange(5)]
    assert (x.shape, x.dtype, y.dtype) == ((5, 4, 5, 3), np.float32, np.int32)
    assert np.round(x.mean(axis=(1, 2, 3))).tolist() == [10, 20, 30, 40, 50]
    assert y.tolist() == [0, 0, 0, 1, 1]
    assert source.class_names == ["cats", "dogs"]


def test_images_are_what_keras_makes_of_them(folder: Path) -> None:
    shutil.rmtree(folder / "dogs" / ".thumbs")  # which Keras does not leave out
    theirs = keras.utils.image_dataset_from_directory(folder, image_size=(4, 5), batch_size=None, shuffle=False)
    x, y = ImageFolder(folder, (4, 5))[np.arange(5)]
    found = [(image.numpy(), int(label)) for image, label in theirs]
    np.testing.assert_array_equal(x, np.stack([image for image, _ in found]))
    assert y.tolist() == [label for _, label in found]


def test_images_are_fed_once_an_epoch(folder: Path) -> None:
    feed = Feed(ImageFolder(folder, (4, 5)))
    part = cut(5, 0, 2, 0, 1)
    found = []
    for (x, y), piece in islice(feed.training(part, 1, 0), 3):
        assert (x.shape[1:], y.shape) == ((4, 5, 3), x.shape[:1])
        found += piece.indices.numpy().tolist()
    assert sorted(found) == list(range(5))


@pytest.mark.parametrize("harm", [b"", b"not a picture", None], ids=["empty", "text", "half"])
def test_a_broken_image_is_named(folder: Path, harm: bytes | None) -> None:
    path = folder / "dogs" / "a.png"
    path.write_bytes(path.read_bytes()[:50] if harm is None else harm)
    feed = Feed(ImageFolder(folder, (4, 5)))
    with pytest.raises(SampleError, match=f"data: sample 3 cannot be read: .*{path}: cannot be decoded"), feed.named():
        next(feed.training(cut(5, 0, 5, 0, 1), 1, 0))


def test_a_folder_without_classes_or_images_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="found no folder"):
        ImageFolder(tmp_path / "nowhere", (4, 4))
    with pytest.raises(ConfigError, match="found no sub-folder"):
        ImageFolder(tmp_path, (4, 4))
    (tmp_path / "cats").mkdir()
    with pytest.raises(ConfigError, match=r"found no image below .*, expected files ending in \.bmp"):
        ImageFolder(tmp_path, (4, 4))
