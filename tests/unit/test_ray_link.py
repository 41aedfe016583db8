"""The connection between the driver and an actor."""

import queue
import socket
from collections.abc import Callable, Iterator, Sequence

import pytest

from elastic.channel import Channel, Drain
from elastic.launch.ray.link import Begin, Ended, Hello, Links, answers, join

Join = Callable[..., Channel]


@pytest.fixture
def links() -> Iterator[Links]:
    found = Links("127.0.0.1")
    found.open()
    yield found
    found.close()


@pytest.fixture
def actor_joins(links: Links) -> Iterator[Join]:
    """Connects an actor that is given `key`."""
    joined: list[Channel] = []

    def join_as(key: str = "alpha:0:0", gpus: Sequence[str] = ()) -> Channel:
        channel = join(links.at, Hello(links.token, key, 42, list(gpus)))
        channel.sock.settimeout(5)
        joined.append(channel)
        return channel

    yield join_as
    for channel in joined:
        channel.close()


def test_an_actor_reaches_who_expects_it(links: Links, actor_joins: Join) -> None:
    arrival = links.expect("alpha:0:0")
    actor = actor_joins(gpus=["3"])
    channel, hello = arrival.get(timeout=5)
    assert (hello.pid, hello.gpus) == (42, ["3"])
    channel.send(Begin({"A": "1"}))
    assert actor.expect(Begin) == Begin({"A": "1"})
    actor.send(Ended(0, "result"))
    assert channel.receive() == [Ended(0, "result")]
    channel.send(Drain("bye"))
    assert actor.receive() == [Drain("bye")]
    channel.close()


@pytest.mark.parametrize("side", ["actor", "driver"])
def test_each_side_sees_the_others_end(links: Links, actor_joins: Join, side: str) -> None:
    arrival = links.expect("alpha:0:0")
    actor = actor_joins()
    channel, _ = arrival.get(timeout=5)
    gone, left = (actor, channel) if side == "actor" else (channel, actor)
    gone.close()
    left.sock.settimeout(5)
    assert left.receive() is None
    left.close()


@pytest.mark.parametrize("key", ["alpha:1:0", "alpha:0:1"])
def test_who_is_not_expected_is_turned_away(links: Links, actor_joins: Join, key: str) -> None:
    arrival = links.expect("alpha:0:0")
    assert actor_joins(key).receive() is None
    with pytest.raises(queue.Empty):
        arrival.get_nowait()


@pytest.mark.parametrize(
    "says",
    [
        b'{"tag":"Hello","token":"guess","key":"alpha:0:0","pid":1}\n',
        b"GET / HTTP/1.0\r\n\r\n",
        b'{"tag":"Unknown"}\n',
        b"[]\n",
        b'{"tag":"Drain","reason":"?"}\n',
    ],
)
def test_a_stranger_is_turned_away(links: Links, actor_joins: Join, says: bytes) -> None:
    arrival = links.expect("alpha:0:0")
    with socket.create_connection(links.at, timeout=5) as stranger:
        stranger.sendall(says)
        assert stranger.recv(1) == b""
    actor_joins()
    channel, hello = arrival.get(timeout=5)
    channel.close()
    assert hello.pid == 42


def test_a_port_answers_while_somebody_listens(links: Links) -> None:
    assert answers(*links.at)
    at = links.at
    links.close()
    assert not answers(*at)


def test_what_comes_in_pieces_is_put_together() -> None:
    left, right = socket.socketpair()
    channel = Channel(left)
    right.sendall(b'{"tag":"Ended",')
    assert channel.receive() == []
    right.sendall(b'"code":3}\n')
    assert channel.receive() == [Ended(3)]
    channel.close()
    right.close()
