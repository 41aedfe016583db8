"""Requests to the launcher's rendezvous: a store that is emptied for each round, and a question that waits."""

import select
import socket
import struct
import time

POLL_S = 0.01
TRY_S = 0.1  # at first; a launcher that is far away is given longer
CONNECT_S = 3.0
ANSWER_S = 3.0
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER: what closing does
_PATIENCE = 3  # times what a connection took
_CROWDED = 3  # tries
_UNACKED = struct.Struct("24xI")  # of TCP_INFO


class Upstream:
    """Where the launcher listens.

    Its server closes the connection after each answer; all methods raise `OSError` when it cannot
    be reached.
    """

    def __init__(self, address: str, port: int) -> None:
        self._at = (address, port)
        self._try_s = TRY_S

    def pass_on(self, request: bytes, within_s: float | None = None) -> bytes:
        """Return the raw response to a raw request, which may take for ever, or `within_s` between two packets."""
        with self._deliver(request) as upstream:
            upstream.settimeout(within_s)
            parts = []
            while data := upstream.recv(1 << 16):
                parts.append(data)
        return b"".join(parts)

    def own_address(self) -> str:
        """Return this host's address on the way to the launcher."""
        with self._connect() as upstream:
            return str(upstream.getsockname()[0])

    def put(self, path: str, value: bytes) -> None:
        """Leave something in the launcher's store, until the next round."""
        self.pass_on(request("PUT", path, value), ANSWER_S)

    def get(self, path: str) -> bytes | None:
        """Return what lies in the launcher's store, or None."""
        response = self.pass_on(request("GET", path), ANSWER_S)
        return body_of(response) if status_is(response, 200) else None

    def _deliver(self, request: bytes) -> socket.socket:
        """Return a connection over which the launcher's host has got a request.

        A connection looks open from here also when the launcher's queue had no room for it in the end. Its host then
        keeps silent about what is sent, and the kernel tries again seconds later.
        """
        deadline = time.monotonic() + CONNECT_S
        while True:
            upstream = self._connect()
            try:
                upstream.settimeout(ANSWER_S)
                upstream.sendall(request)
                heard = select.select([upstream], [], [], self._try_s)[0]
                if heard or not unacked(upstream) or time.monotonic() > deadline:
                    return upstream
                upstream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)  # so that nobody gets it later
            except OSError:
                upstream.close()
                raise
            upstream.close()

    def _connect(self) -> socket.socket:
        """Reach the launcher. Its server queues five connections; the kernel would try a sixth again after 1 s."""
        deadline = time.monotonic() + CONNECT_S
        try_s, tries = self._try_s, 0
        while True:
            tries += 1
            began_at = time.monotonic()
            try:
                upstream = socket.create_connection(self._at, timeout=try_s)
            except OSError as error:
                if time.monotonic() > deadline:
                    raise
                if isinstance(error, TimeoutError) and tries >= _CROWDED:
                    try_s *= 2  # it is no crowd, it is far away
                time.sleep(POLL_S)
            else:
                self._try_s = max(TRY_S, _PATIENCE * (time.monotonic() - began_at))
                return upstream


def unacked(connection: socket.socket) -> int:
    """Return how many packets the other side's kernel has not acknowledged."""
    found = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _UNACKED.size)
    return int(_UNACKED.unpack(found)[0])


def request(method: str, path: str, body: bytes = b"") -> bytes:
    """Return a raw request."""
    return f"{method} {path} HTTP/1.0\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


def status_is(response: bytes, status: int) -> bool:
    """Tell whether a raw response has this status."""
    return f" {status} ".encode() in response.partition(b"\r\n")[0]


def body_of(response: bytes) -> bytes:
    """Return what a raw response holds."""
    return response.partition(b"\r\n\r\n")[2]


def read_request(client: socket.socket) -> bytes:
    """Return a whole request, body included, asking for no further one on the connection.

    Raises:
        ConnectionError: when it breaks off.
    """
    data = b""
    while b"\r\n\r\n" not in data:
        more = client.recv(1 << 16)
        if not more:
            raise ConnectionError("a request broke off")
        data += more
    head, _, body = data.partition(b"\r\n\r\n")
    length = 0
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"content-length":
            length = int(value)
    while len(body) < length:
        more = client.recv(1 << 16)
        if not more:
            raise ConnectionError("a request broke off")
        body += more
    return head + b"\r\n\r\n" + body


def is_gone(client: socket.socket) -> bool:
    """Tell whether the other side has closed the connection."""
    try:
        return client.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True
