"""TFRecord files: where their records begin, and reading any of them."""

import gzip
import os
import subprocess
import sys
import zlib
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from elastic.errors import ConfigError, SampleError
from elastic.worker import record_index
from elastic.worker.data import as_source
from elastic.worker.feed import Feed
from elastic.worker.order import cut
from elastic.worker.record_index import record_offsets
from elastic.worker.tfrecord import TFRecordFiles


def write(path: Path, records: list[bytes]) -> Path:
    with tf.io.TFRecordWriter(str(path)) as writer:
        for record in records:
            writer.write(record)
    return path


def example(number: int) -> bytes:
    feature = {
        "x": tf.train.Feature(float_list=tf.train.FloatList(value=[number, number + 0.5])),
        "y": tf.train.Feature(int64_list=tf.train.Int64List(value=[number])),
    }
    return bytes(tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString())


def parse(serialized: Any) -> Any:
    features = {"x": tf.io.FixedLenFeature([2], tf.float32), "y": tf.io.FixedLenFeature([], tf.int64)}
    found = tf.io.parse_single_example(serialized, features)
    return found["x"], found["y"]


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """Return a folder with 3 files of 5, 0 and 4 records, which hold the numbers 0 to 8."""
    for name, numbers in (("a", range(5)), ("b", range(0)), ("c", range(5, 9))):
        write(tmp_path / f"{name}.tfrecord", [example(i) for i in numbers])
    return tmp_path


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.binary(max_size=60), max_size=12))
def test_records_of_any_length_are_found(tmp_path: Path, records: list[bytes]) -> None:
    path = write(tmp_path / "some", records)
    os.utime(path, ns=(0, hash(tuple(records))))
    lengths = [len(record) + 16 for record in records]
    assert record_offsets(path).tolist() == [sum(lengths[:i]) for i in range(len(lengths))]


def test_many_records_are_found_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_index, "_AT_ONCE", 7)
    path = write(tmp_path / "some", [b"abc"] * 50)
    assert record_offsets(path).tolist() == [19 * i for i in range(50)]


def test_the_index_is_kept_beside_the_file_and_used(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = files / "a.tfrecord"
    found = record_offsets(path).tolist()
    assert [p.name for p in files.iterdir() if p.name.startswith(".")] == [".a.tfrecord.index.npy"]
    monkeypatch.setattr(record_index, "_scan", None)
    assert record_offsets(path).tolist() == found


def test_a_file_that_was_written_again_is_indexed_again(files: Path) -> None:
    path = files / "a.tfrecord"
    record_offsets(path)
    write(path, [b"1", b"2"])
    assert record_offsets(path).tolist() == [0, 17]
    write(path, [b"", b"22"])  # of the same size
    os.utime(path, ns=(1, 1))
    assert record_offsets(path).tolist() == [0, 16]


@pytest.mark.parametrize("broken", [b"", b"nonsense", b"\x93NUMPY\x01\x00v"])
def test_an_index_that_cannot_be_read_is_made_again(files: Path, broken: bytes) -> None:
    (files / ".a.tfrecord.index.npy").write_bytes(broken)
    assert len(record_offsets(files / "a.tfrecord")) == 5
    assert (files / ".a.tfrecord.index.npy").read_bytes() != broken


def test_where_the_folder_cannot_be_written_the_index_is_in_the_users_cache(
    files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    wrote = record_index._write
    monkeypatch.setattr(record_index, "_write", lambda at, index: at.parent != files and wrote(at, index))
    assert len(record_offsets(files / "a.tfrecord")) == 5
    assert len(list((tmp_path / "cache" / "elastic-keras").iterdir())) == 1
    monkeypatch.setattr(record_index, "_scan", None)
    assert len(record_offsets(files / "a.tfrecord")) == 5


def test_where_no_index_can_be_kept_training_goes_on(
    files: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(Path, "replace", _refuse)
    assert len(record_offsets(files / "a.tfrecord")) == 5
    assert "every worker makes it" in caplog.text
    assert sorted(p.name for p in files.iterdir()) == ["a.tfrecord", "b.tfrecord", "c.tfrecord"]


def _refuse(*_: Any) -> None:
    raise OSError("read-only file system")


OFTEN = """
import sys
from pathlib import Path
from elastic.worker.record_index import record_offsets

path = Path(sys.argv[1])
for _ in range(100):
    assert len(record_offsets(path)) == 5
    path.with_name(f".{path.name}.index.npy").unlink(missing_ok=True)
"""


def test_workers_that_make_an_index_at_once_do_not_harm_each_other(files: Path) -> None:
    line = [sys.executable, "-c", OFTEN, str(files / "a.tfrecord")]
    workers = [subprocess.Popen(line, cwd=Path(__file__).parents[2]) for _ in range(3)]
    assert [worker.wait() for worker in workers] == [0, 0, 0]
    assert not list(files.glob(".*.tmp"))


def cut_off(data: bytes) -> bytes:
    return data[:-5]


def cut_in_a_header(data: bytes) -> bytes:
    return data[:47]


def damaged(data: bytes) -> bytes:
    return data[:41] + b"\xff" + data[42:]


def text(data: bytes) -> bytes:
    return b"x,y\n1,2\n3,4\n5,6\n"


@pytest.mark.parametrize(
    ("harm", "expected"),
    [
        (cut_off, "cut off in record 4, which begins at byte 80: found 15 bytes of it, expected 20"),
        (cut_in_a_header, "cut off in record 2, which begins at byte 40: found 7 bytes of it, expected 12"),
        (damaged, "record 2 at byte 40: the checksum of its length is wrong"),
        (text, "record 0 at byte 0: the checksum of its length is wrong; expected a TFRecord file"),
        (gzip.compress, "found a gzip-compressed file, expected TFRecords without compression"),
        (zlib.compress, "found a zlib-compressed file, expected TFRecords without compression"),
    ],
)
def test_a_file_that_is_not_whole_is_told_with_the_place(
    tmp_path: Path, harm: Callable[[bytes], bytes], expected: str
) -> None:
    path = write(tmp_path / "x.tfrecord", [b"1234"] * 5)
    path.write_bytes(harm(path.read_bytes()))
    with pytest.raises(ConfigError, match=f"{path}: {expected}"):
        record_offsets(path)


def test_any_record_is_read_from_its_file(files: Path) -> None:
    source = as_source(TFRecordFiles(files / "*.tfrecord", parse))
    assert len(source) == 9
    x, y = source[np.array([8, 0, 5, 4])]
    assert y.tolist() == [8, 0, 5, 4]
    assert x.tolist() == [[i, i + 0.5] for i in (8, 0, 5, 4)]


def test_more_files_than_may_be_open_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("elastic.worker.tfrecord._OPEN", 2)
    for i in range(5):
        write(tmp_path / f"{i}.tfrecord", [example(i)])
    source = TFRecordFiles([str(tmp_path / "[0-2].tfrecord"), tmp_path / "[34].tfrecord"], parse)
    assert source[np.array([4, 0, 3, 1, 2, 4])][1].tolist() == [4, 0, 3, 1, 2, 4]
    assert len(source._readers) == 2


def test_records_are_fed_once_an_epoch(files: Path) -> None:
    feed = Feed(TFRecordFiles(files / "*.tfrecord", parse))
    found = []
    for rank in range(2):
        part = cut(9, 0, 4, rank, 2)
        for (x, y), piece in islice(feed.training(part, 1, 0), part.steps):
            assert (x.shape[1:], y.dtype) == ((2,), tf.int64)
            assert piece.indices.numpy().tolist() == y.numpy()[: len(piece.indices)].tolist()
            found += piece.indices.numpy().tolist()
    assert sorted(found) == list(range(9))


def test_a_damaged_record_is_named_when_it_is_read(files: Path) -> None:
    path = files / "c.tfrecord"
    data = bytearray(path.read_bytes())
    at = int(record_offsets(path)[2])
    data[at + 20] ^= 1
    path.write_bytes(data)
    feed = Feed(TFRecordFiles(files / "*.tfrecord", parse))
    expected = rf"data: sample 7 cannot be read: .*c\.tfrecord: record 2 at byte {at} cannot be read: .*corrupted"
    with pytest.raises(SampleError, match=expected), feed.named():
        next(feed.training(cut(9, 0, 9, 0, 1), 1, 0))


def test_a_record_that_cannot_be_parsed_is_named(files: Path) -> None:
    write(files / "d.tfrecord", [example(9), b"not an example"])
    feed = Feed(TFRecordFiles(files / "*.tfrecord", parse))
    expected = r"sample 10 cannot be read: .*d\.tfrecord: record 1 at byte \d+ cannot be parsed: Could not parse"
    with pytest.raises(SampleError, match=expected), feed.named():
        next(feed.training(cut(11, 0, 11, 0, 1), 1, 0))


def test_files_that_are_not_there_are_named() -> None:
    with pytest.raises(ConfigError, match=r"data: found no file nowhere/\*, expected TFRecord files"):
        TFRecordFiles("nowhere/*", parse)


def test_what_a_record_is_parsed_into_must_be_tensors(files: Path) -> None:
    source = TFRecordFiles(files / "a.tfrecord", lambda serialized: None)
    with pytest.raises(ConfigError, match=r"data\.parse: .* returned None, expected tensors"):
        source[np.array([0])]
