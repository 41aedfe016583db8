"""Standard output on a disk that may be full: what cannot be written is dropped, and nobody fails for it.

Horovod forwards each worker's output in a thread that ends with the first failed write; the pipe that it
read then fills up, and with it whoever writes to it stands still for ever.
"""

import io
import os
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


class _Raw(io.RawIOBase):
    def __init__(self, fd: int) -> None:
        self._fd = fd

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._fd

    def write(self, data: "ReadableBuffer", /) -> int:
        try:
            return os.write(self._fd, data)
        except OSError:
            return memoryview(data).nbytes


def tolerant(fd: int) -> TextIO:
    """Return a text stream to a file descriptor that never fails to write."""
    return io.TextIOWrapper(io.BufferedWriter(_Raw(fd)), encoding="utf-8", errors="replace", line_buffering=True)
