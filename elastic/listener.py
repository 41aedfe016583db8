"""A server that answers each of its clients in a thread of its own."""

import contextlib
import socket
import threading
from collections.abc import Callable


def serve_each(server: socket.socket, serve: Callable[[socket.socket], None], name: str) -> None:
    """Accept clients from now on, until the server is closed.

    Args:
        server: listens.
        serve: is given each client, and closes it.
        name: of the threads.
    """

    def accept() -> None:
        while True:
            try:
                client, _ = server.accept()
            except OSError:
                return
            threading.Thread(target=serve, args=(client,), name=name, daemon=True).start()

    threading.Thread(target=accept, name=name, daemon=True).start()


def close(server: socket.socket) -> None:
    """Accept nobody any more, not even the client that is being waited for."""
    with contextlib.suppress(OSError):
        server.shutdown(socket.SHUT_RDWR)
    server.close()
