"""How Horovod's core and Gloo meet, request by request, without either (private to `benchmarks.scale`).

Theory of operation. A world of Horovod 0.28.1 meets six times: globally, on each host, across hosts, and
once more each for the process set of all (`gloo_context.cc`). A meeting is `connectFullMesh`: each member PUTs
the name of its host, GETs those of lower ranks, PUTs the addresses at which each peer reaches it (136 bytes a
peer), and for each peer waits for its addresses (GETs 10 ms apart) and GETs them again; then all pairs have
one TCP connection, of which the higher rank is the client, a barrier follows, and each DELETEs a key.
The sequence was compared with what two real workers send.
"""

import socket
import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass

ADDRESS_BYTES = 136  # of gloo::transport::tcp::Address
POLL_S = 0.01
TRIES, RETRY_S = 3, 0.5
SET = "_process_set_hash_0"
HELLO = struct.Struct("ii")  # the meeting's number, the client's rank
WORD = struct.Struct("q")


@dataclass(frozen=True, slots=True)
class Place:
    """Where a worker is in its world, in the order in which the rendezvous tells it."""

    rank: int
    size: int
    local_rank: int
    local_size: int
    cross_rank: int
    cross_size: int


class Store:
    """Horovod's `HTTPStore`: one connection a request, three tries; counts its requests."""

    def __init__(self, address: str, port: int) -> None:
        self._at = (address, port)
        self.requests = 0

    def call(self, method: str, path: str, body: bytes = b"") -> bytes | None:
        """Return the body of the answer, None for 404.

        Raises:
            ConnectionError: after the last try.
        """
        for _ in range(TRIES):
            self.requests += 1
            try:
                status, found = self._send(method, path, body)
            except OSError:
                status, found = 0, b""
            if status == 200:
                return found
            if status == 404:
                return None
            time.sleep(RETRY_S)
        raise ConnectionError(f"{method} {path}: no answer after {TRIES} tries")

    def wait(self, path: str) -> None:
        """Return when something lies there."""
        while self.call("GET", path) is None:
            time.sleep(POLL_S)

    def _send(self, method: str, path: str, body: bytes) -> tuple[int, bytes]:
        head = f"{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
        parts = []
        with socket.create_connection(self._at) as connection:
            connection.sendall(head.encode() + body)
            while data := connection.recv(1 << 16):
                parts.append(data)
        head_, _, found = b"".join(parts).partition(b"\r\n\r\n")
        return (int(head_.split(None, 2)[1]) if head_ else 0), found


class World:
    """The connections of one world; `longest_wait_s`: for a peer, in a barrier."""

    def __init__(self, store: Store, host: str, place: Place) -> None:
        self._store = store
        self._host = host
        self._place = place
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=4096)
        self._early: dict[tuple[int, int], socket.socket] = {}
        self._all: list[socket.socket] = []
        self.peers: dict[int, socket.socket] = {}
        self.longest_wait_s = 0.0

    def meet(self) -> None:
        """Connect to everybody.

        Raises:
            OSError: when somebody is gone.
        """
        p = self._place
        for more in ("", SET):
            meetings = (("global", p.rank, p.size), (f"local_{self._host}", p.local_rank, p.local_size))
            meetings += ((f"cross_{p.local_rank}", p.cross_rank, p.cross_size),)
            for number, (scope, rank, size) in enumerate(meetings):
                peers = self._mesh(number + (3 if more else 0), scope + more, rank, size)
                self._barrier(peers, rank, size)
                self._store.call("DELETE", f"/{scope}{more}/{rank}")
                if number == 0 and not more:
                    self.peers = peers

    def agree(self, mine: int) -> int:
        """Return the greatest of what all members have, by way of rank 0."""
        if self._place.rank == 0:
            greatest = max([mine, *(WORD.unpack(_read(peer, WORD.size))[0] for peer in self.peers.values())])
            for peer in self.peers.values():
                peer.sendall(WORD.pack(greatest))
            return greatest
        self.peers[0].sendall(WORD.pack(mine))
        return int(WORD.unpack(_read(self.peers[0], WORD.size))[0])

    def step(self) -> None:
        """Wait for all, as a collective does."""
        self._barrier(self.peers, self._place.rank, self._place.size)

    def leave(self) -> None:
        """Close everything, which the peers notice."""
        for each in [*self._all, *self._early.values(), self._listener]:
            each.close()

    def _mesh(self, number: int, scope: str, rank: int, size: int) -> dict[int, socket.socket]:
        call = self._store.call
        call("PUT", f"/{scope}/rank_{rank}", self._host.encode())
        for lower in range(rank):
            call("GET", f"/{scope}/rank_{lower}")
        mine = str(self._listener.getsockname()[1]).encode().ljust(ADDRESS_BYTES)
        call("PUT", f"/{scope}/{rank}", mine * (size - 1))
        peers: dict[int, socket.socket] = {}
        for peer in [r for r in range(size) if r != rank]:
            self._store.wait(f"/{scope}/{peer}")
            addresses = call("GET", f"/{scope}/{peer}") or b""
            if peer < rank:
                port = int(addresses[:ADDRESS_BYTES])
                connection = socket.create_connection(("127.0.0.1", port))
                self._all.append(connection)
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                connection.sendall(HELLO.pack(number, rank))
                peers[peer] = connection
        for peer in range(rank + 1, size):
            peers[peer] = self._accept(number, peer)
        return peers

    def _accept(self, number: int, rank: int) -> socket.socket:
        """Return the connection of a peer; others that come meanwhile are kept for later."""
        while (number, rank) not in self._early:
            connection, _ = self._listener.accept()
            self._all.append(connection)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._early[HELLO.unpack(_read(connection, HELLO.size))] = connection
        return self._early.pop((number, rank))

    def _barrier(self, peers: dict[int, socket.socket], rank: int, size: int) -> None:
        """Gloo's dissemination barrier."""
        distance = 1
        while distance < size:
            peers[(rank + distance) % size].sendall(b".")
            since = time.monotonic()
            _read(peers[(rank - distance) % size], 1)
            self.longest_wait_s = max(self.longest_wait_s, time.monotonic() - since)
            distance *= 2


def place_of(words: Sequence[bytes | str]) -> Place:
    """Return the place that six words name."""
    return Place(*(int(word) for word in words))


def _read(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = connection.recv(size - len(data))
        if not more:
            raise ConnectionError("a peer has hung up")
        data += more
    return data
