"""Where other threads leave what the agent's own is to act on."""

import contextlib
import os
from queue import Empty, SimpleQueue
from typing import Generic, TypeVar

T = TypeVar("T")


class Inbox(Generic[T]):
    """Values from any thread, in the order they came; `fd` is readable when there are some."""

    def __init__(self) -> None:
        self._values: SimpleQueue[T] = SimpleQueue()
        self.fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)

    def put(self, value: T) -> None:
        """Leave a value, from any thread."""
        self._values.put(value)
        os.eventfd_write(self.fd, 1)

    def take(self) -> list[T]:
        """Return what has come since; to be called when `fd` is readable."""
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self.fd)
        found = []
        with contextlib.suppress(Empty):
            while True:
                found.append(self._values.get_nowait())
        return found
