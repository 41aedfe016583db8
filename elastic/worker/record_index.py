"""Where the records of a TFRecord file begin, found once and kept in an index.

A file is records one after the other, each (TensorFlow, core/lib/io/record_writer.h, little endian)

    uint64 length | uint32 checksum of these 8 bytes | the data | uint32 checksum of the data

so that finding them takes one small read a record, and none of the data. A checksum is a CRC-32C
(Castagnoli), rotated by 15 bits with a constant added.

The index lies beside the file, hidden, or in the user's cache where that folder is read-only. It
counts for the file's size and time of change alone. Any number of workers may make it at once:
each writes its own and renames it into place.
"""

import hashlib
import logging
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from elastic.errors import ConfigError

log = logging.getLogger("elastic")

_VERSION = 1
_HEADER, _FRAME = 12, 16  # bytes before the data, and in all around it
_AT_ONCE = 1 << 16  # records whose checksums are verified together
_COMPRESSED = {b"\x1f\x8b": "gzip", b"\x78\x01": "zlib", b"\x78\x9c": "zlib", b"\x78\xda": "zlib"}


def record_offsets(path: Path) -> NDArray[np.int64]:
    """Return the offset of each record of a file, from its index where there is a valid one.

    Raises:
        ConfigError: when the file is cut off, compressed or no TFRecord file.
    """
    try:
        stat = path.stat()
        key = np.array([_VERSION, stat.st_size, stat.st_mtime_ns], np.int64)
        places = [path.parent / f".{path.name}.index.npy", _cache() / f"{_digest(path)}.npy"]
        for place in places:
            index = _read(place)
            if index is not None and np.array_equal(index[: len(key)], key):
                return index[len(key) :]
        log.info("%s: making an index of its records", path)
        found = np.fromiter(_scan(path, stat.st_size), np.int64)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from None
    if not any(_write(place, np.concatenate([key, found])) for place in places):
        log.warning("%s: its index can be kept neither beside it nor in %s, so every worker makes it", path, _cache())
    return found


def _scan(path: Path, size: int) -> Iterator[int]:
    file = os.open(path, os.O_RDONLY)
    try:
        at, number = 0, 0
        while at < size:
            offsets: list[int] = []
            headers: list[bytes] = []
            while at < size and len(offsets) < _AT_ONCE:
                header = os.pread(file, _HEADER, at)
                offsets.append(at)
                headers.append(header)
                at += _FRAME + int.from_bytes(header[:8], "little")
            cut = at > size  # or the last length is not one
            whole = [header for header in headers if len(header) == _HEADER]
            wrong = np.flatnonzero(~_have_right_checksums(b"".join(whole)))
            if wrong.size:
                raise ConfigError(_not_records(path, headers[wrong[0]], number + int(wrong[0]), offsets[wrong[0]]))
            if cut:
                last = len(offsets) - 1
                needed = at - offsets[last] if len(whole) == len(headers) else _HEADER
                raise ConfigError(
                    f"{path}: cut off in record {number + last}, which begins at byte {offsets[last]}: "
                    f"found {size - offsets[last]} bytes of it, expected {needed}; write or copy the file again"
                )
            number += len(offsets)
            yield from offsets
    finally:
        os.close(file)


def _not_records(path: Path, header: bytes, number: int, offset: int) -> str:
    kind = _COMPRESSED.get(header[:2]) if number == 0 else None
    if kind:
        return (
            f"{path}: found a {kind}-compressed file, expected TFRecords without compression, "
            "since records are read in any order; decompress it"
        )
    return (
        f"{path}: record {number} at byte {offset}: the checksum of its length is wrong; expected a TFRecord file, "
        "as tf.io.TFRecordWriter writes it; if it is one, it is damaged: write or copy it again"
    )


def _table() -> NDArray[np.uint32]:
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, (table >> 1) ^ np.uint32(0x82F63B78), table >> 1)
    return table


_TABLE = _table()


def _have_right_checksums(headers: bytes) -> NDArray[np.bool_]:
    """Tell for each header of 12 bytes whether the last 4 are the checksum of the first 8."""
    rows = np.frombuffer(headers, np.uint8).reshape(-1, _HEADER)
    crc = np.full(len(rows), 0xFFFFFFFF, np.uint32)
    for column in range(8):
        crc = _TABLE[(crc ^ rows[:, column]) & 0xFF] ^ (crc >> 8)
    crc = ~crc
    masked = ((crc >> 15) | (crc << 17)) + np.uint32(0xA282EAD8)
    return masked == rows[:, 8:].copy().view("<u4")[:, 0]  # type: ignore[no-any-return]


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "elastic-keras"


def _digest(path: Path) -> str:
    return hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:32]


def _read(place: Path) -> NDArray[np.int64] | None:
    """Return an index, mapped from its file, or None when there is none that can be read."""
    try:
        index = np.load(place, mmap_mode="r")
    except (OSError, ValueError, EOFError):
        return None
    return index if index.dtype == np.int64 and index.ndim == 1 else None


def _write(place: Path, index: NDArray[np.int64]) -> bool:
    temporary = place.with_name(f"{place.name}.{os.getpid()}.{secrets.token_hex(4)}.tmp")
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as file:
            np.save(file, index)
        temporary.replace(place)
    except OSError:
        temporary.unlink(missing_ok=True)
        return False
    return True
