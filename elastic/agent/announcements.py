"""What the launcher announces of its hosts, heard by the agent, which is there when its worker is not.

Why. Horovod's driver tells the worker of rank 0, and nobody else, once, that hosts have changed. When
that worker is just being replaced in its slot, or has not come up yet, nobody hears it, and the
change takes effect with the next one at the earliest.

Theory of operation. The agent registers an address of its own for its slot, before any worker could;
the proxy keeps its workers' registrations back. What is announced while no worker is in a world is
kept for the next that enters one. It may know already, if its world was made afterwards; then the
world that it asks for is the one it is in, and is ready at once.

Protocol: `horovod.runner.common.util.network`. A message is an HMAC-SHA256 digest (32 bytes), a length (4 bytes,
native) and a pickle; each connection is one question and one answer. Horovod is not imported here: the
few objects that cross are read by a pickle reader that knows no others, and written by hand.
"""

import base64
import contextlib
import hashlib
import hmac
import io
import os
import pickle
import socket
import struct
import threading
import time
from collections.abc import Callable
from typing import Any

from elastic import listener
from elastic.agent.inbox import Inbox
from elastic.channel import HostsAnnounced

_DIGEST_BYTES = 32
_MOST_BYTES = 1 << 20
_PATIENCE_S = 5.0
_TRIES = 5
_RETRY_S = 1.0
_REMOVED = 1
_NAME = "worker notification service"
_MODULE = "horovod.runner.common.util.network"


class Announcements:
    """Hears for one slot what the launcher announces; `fd` is readable when there is something.

    Args:
        register: tells the launcher where this slot hears, in the form that it reads; may raise `OSError`.
        address: finds this host's, on the way to the launcher; may raise `OSError`.
    """

    def __init__(self, register: Callable[[bytes], bool], address: Callable[[], str]) -> None:
        self._register = register
        self._address = address
        self._key = os.urandom(32)
        self._server = socket.socket()
        self._listens_at: tuple[str, int] | None = None
        self._heard: Inbox[HostsAnnounced] = Inbox()
        self.fd = self._heard.fd

    def open(self) -> None:
        """Listen, and let the launcher know, as soon as it can be reached."""
        threading.Thread(target=self._make_known, name="register", daemon=True).start()

    def news(self) -> list[HostsAnnounced]:
        """Return what was announced; to be called when `fd` is readable."""
        return self._heard.take()

    def close(self) -> None:
        """Hear no more."""
        listener.close(self._server)

    def _make_known(self) -> None:
        for _ in range(_TRIES):
            with contextlib.suppress(OSError):
                if self._register(self._listen()):
                    return
            time.sleep(_RETRY_S)

    def _listen(self) -> bytes:
        """Listen, if this does not yet; return what the launcher needs to know."""
        if self._listens_at is None:
            self._server.bind((self._address(), 0))
            self._server.listen(16)
            self._listens_at = self._server.getsockname()
            listener.serve_each(self._server, self._serve, "announcements")
        return base64.b64encode(pickle.dumps(({"route": [self._listens_at]}, self._key)))

    def _serve(self, client: socket.socket) -> None:
        with client, contextlib.suppress(OSError, EOFError):
            client.settimeout(_PATIENCE_S)
            with client.makefile("rb") as file:
                digest, (length,) = file.read(_DIGEST_BYTES), struct.unpack("i", file.read(4).ljust(4, b"\0"))
                body = file.read(length) if 0 < length <= _MOST_BYTES else b""
            if not hmac.compare_digest(digest, self._digest(body)):
                return
            answer = self._answer(read_request(body), client.getpeername()[0])
            client.sendall(self._digest(answer) + struct.pack("i", len(answer)) + answer)

    def _answer(self, request: object, peer: str) -> bytes:
        if isinstance(request, Ping):
            return f"c{_MODULE}\nPingResponse\n(V{_NAME}\nV{peer}\ntR.".encode()
        removed = not isinstance(request, Update) or bool(int(request.res) & _REMOVED)
        self._heard.put(HostsAnnounced(removed))
        return f"c{_MODULE}\nAckResponse\n)R.".encode()

    def _digest(self, body: bytes) -> bytes:
        return hmac.new(self._key, body, hashlib.sha256).digest()


class Ping:
    """Whether somebody hears here."""


class Update:
    """Hosts have changed."""

    res: Any = 0


class _Reader(pickle.Unpickler):
    """Reads the launcher's questions, and makes no other objects."""

    known: dict[tuple[str, str], Any] = {  # noqa: RUF012 - a table
        (_MODULE, "PingRequest"): Ping,
        ("horovod.runner.elastic.worker", "HostsUpdatedRequest"): Update,
        ("horovod.runner.elastic.worker", "HostUpdateResult"): int,
    }

    def find_class(self, module: str, name: str) -> Any:
        try:
            return self.known[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"{module}.{name} is no question of a launcher's") from None


def read_request(body: bytes) -> object:
    """Return a launcher's question; None for one in an unknown form, whose sender has the key all the same."""
    try:
        return _Reader(io.BytesIO(body)).load()
    except (pickle.UnpicklingError, EOFError, AttributeError, TypeError, ValueError, IndexError):
        return None
