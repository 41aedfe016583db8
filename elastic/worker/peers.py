"""Notice at once that a peer is gone, in a world of any size.

Gloo notices a dead peer where it waits for that very peer. In a world of more than two, some workers
wait for others that wait in turn, and notice only when the time-out is over, seconds later.

So every worker watches all connections that Horovod opened while it joined the world, and there is
one to each peer. When one is hung up and this worker is still in the same world `GRACE_S` later, it
hangs up all of its own: whatever it waits for fails at once. The grace is for peers that leave in
order after the step that this worker is just completing too. (Should it not have completed by then,
its step fails and it takes the state of a peer that has: nothing is lost.)
"""

import contextlib
import os
import select
import socket
import threading
from collections.abc import Iterable
from pathlib import Path

GRACE_S = 0.2
_GONE = select.POLLRDHUP | select.POLLHUP | select.POLLERR


class Peers:
    """Watches the connections of one world, in a thread of its own, until `close`.

    Args:
        fds: of sockets; duplicated, since their owner may close them at any time.
    """

    def __init__(self, fds: Iterable[int]) -> None:
        self._sockets = [socket.socket(fileno=os.dup(fd)) for fd in fds]
        self._closing = threading.Event()
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._thread = threading.Thread(target=self._watch, name="peers", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Watch no more; to be called before the world is left, whose connections end with their last duplicate."""
        self._closing.set()
        os.eventfd_write(self._wake, 1)
        self._thread.join()
        os.close(self._wake)
        for each in self._sockets:
            each.close()

    def _watch(self) -> None:
        poll = select.poll()
        poll.register(self._wake, select.POLLIN)
        for each in self._sockets:
            poll.register(each, select.POLLRDHUP)
        while not self._closing.is_set():
            if any(event & _GONE for _, event in poll.poll()):
                break
        if not self._closing.wait(GRACE_S):
            self._hang_up()

    def _hang_up(self) -> None:
        for each in self._sockets:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)


def connections() -> set[int]:
    """Return the file descriptors of this process's TCP connections."""
    found = set()
    for path in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            if str(path.readlink()).startswith("socket:") and _is_connection(int(path.name)):
                found.add(int(path.name))
    return found


def _is_connection(fd: int) -> bool:
    with socket.socket(fileno=os.dup(fd)) as each:
        if each.type != socket.SOCK_STREAM or each.family not in (socket.AF_INET, socket.AF_INET6):
            return False
        with contextlib.suppress(OSError):
            return bool(each.getpeername())
    return False
