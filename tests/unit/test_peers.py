"""A peer that hangs up is noticed on whichever connection it is, and all others are hung up in turn."""

import socket
import time
from collections.abc import Iterator

import pytest

from elastic.worker import peers
from elastic.worker.peers import Peers, connections

Pair = tuple[socket.socket, socket.socket]
PATIENCE_S = 5.0


def connect() -> Pair:
    with socket.create_server(("127.0.0.1", 0)) as server:
        ours = socket.create_connection(server.getsockname())
        theirs, _ = server.accept()
    theirs.settimeout(PATIENCE_S)
    return ours, theirs


@pytest.fixture
def pairs() -> Iterator[list[Pair]]:
    made = [connect() for _ in range(3)]
    yield made
    for pair in made:
        for end in pair:
            end.close()


def watch(pairs: list[Pair]) -> Peers:
    return Peers(ours.fileno() for ours, _ in pairs)


def test_when_one_peer_is_gone_the_others_are_hung_up(pairs: list[Pair]) -> None:
    watching = watch(pairs)
    began = time.monotonic()
    pairs[1][1].close()
    assert pairs[0][1].recv(1) == b""
    assert pairs[2][1].recv(1) == b""
    assert peers.GRACE_S <= time.monotonic() - began < PATIENCE_S
    watching.close()


def test_a_world_that_is_left_within_the_grace_hangs_nobody_up(pairs: list[Pair]) -> None:
    watching = watch(pairs)
    pairs[1][1].close()
    watching.close()
    pairs[0][0].sendall(b"x")
    assert pairs[0][1].recv(1) == b"x"


def test_traffic_is_no_hang_up(pairs: list[Pair]) -> None:
    watching = watch(pairs)
    for _, theirs in pairs:
        theirs.sendall(b"y")
    time.sleep(2 * peers.GRACE_S)
    pairs[2][0].sendall(b"x")
    assert pairs[2][1].recv(1) == b"x"
    assert pairs[0][0].recv(1) == b"y"
    watching.close()


def test_connections_end_when_their_owner_closes_them_after_the_watch(pairs: list[Pair]) -> None:
    watching = watch(pairs)
    watching.close()
    pairs[0][0].close()
    assert pairs[0][1].recv(1) == b""


def test_only_connections_are_found(pairs: list[Pair]) -> None:
    listening = socket.create_server(("127.0.0.1", 0))
    local, other = socket.socketpair()
    datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    found = connections()
    assert {end.fileno() for pair in pairs for end in pair} <= found
    assert not {s.fileno() for s in (listening, local, other, datagrams)} & found
    for s in (listening, local, other, datagrams):
        s.close()


def test_a_world_of_one_has_nobody_to_watch() -> None:
    Peers([]).close()
