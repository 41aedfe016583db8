"""Requests to a launcher whose queue of connections is full: made again on another one, and only then."""

import socket
import threading
import time
from collections.abc import Iterator

import pytest

from elastic.agent import upstream as upstream_module
from elastic.agent.upstream import TRY_S, Upstream, read_request, request, unacked

ANSWER = b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok"
PUT = request("PUT", "/global/0", b"x")
DEADLINE_S = 20.0


class Launcher:
    """Takes connections; leaves the first `deaf` without an answer, and lets the others wait for `slow_s`."""

    def __init__(self) -> None:
        self.deaf = 0
        self.slow_s = 0.0
        self.requests: list[bytes] = []
        self.ignored: list[socket.socket] = []
        self._server = socket.create_server(("127.0.0.1", 0))
        self.address = ("127.0.0.1", self._server.getsockname()[1])
        self.upstream = Upstream(*self.address)
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        for each in self.ignored:
            each.close()

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            self.requests.append(read_request(client))
            if len(self.requests) <= self.deaf:
                self.ignored.append(client)
                continue
            time.sleep(self.slow_s)
            client.sendall(ANSWER)
            client.close()


@pytest.fixture
def launcher() -> Iterator[Launcher]:
    found = Launcher()
    yield found
    found.close()


def lose(monkeypatch: pytest.MonkeyPatch, connections: int) -> None:
    """Let the kernel say of the first connections that nothing of what was sent has been acknowledged."""
    left = [1] * connections
    monkeypatch.setattr(upstream_module, "unacked", lambda connection: left.pop() if left else unacked(connection))


def test_a_request_that_nobody_has_got_is_made_on_another_connection(
    launcher: Launcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    launcher.deaf = 2
    lose(monkeypatch, 2)
    assert launcher.upstream.pass_on(PUT) == ANSWER
    assert launcher.requests == [PUT] * 3


def test_what_was_given_up_is_reset_so_that_nobody_gets_it_later(
    launcher: Launcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    launcher.deaf = 1
    lose(monkeypatch, 1)
    launcher.upstream.pass_on(PUT)
    (ignored,) = launcher.ignored
    ignored.settimeout(DEADLINE_S)
    with pytest.raises(ConnectionResetError):
        ignored.recv(1)


def test_a_launcher_that_is_slow_is_asked_once(launcher: Launcher) -> None:
    launcher.slow_s = 3 * TRY_S
    assert launcher.upstream.pass_on(PUT) == ANSWER
    assert launcher.requests == [PUT]


def test_what_a_kernel_has_taken_is_acknowledged_before_anybody_reads_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        client.sendall(PUT)
        deadline = time.monotonic() + DEADLINE_S
        while unacked(client):
            assert time.monotonic() < deadline


def test_a_launcher_that_is_far_away_is_reached(launcher: Launcher, monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection takes the time of a packet there and back; the network of this test can be no slower than that."""
    tried: list[float] = []
    create = socket.create_connection

    def far(address: tuple[str, int], timeout: float) -> socket.socket:
        if address != launcher.address:  # of another thread, such as one that an earlier test has left
            return create(address, timeout=timeout)
        tried.append(timeout)
        if timeout < 0.5:
            raise TimeoutError
        return create(address, timeout=timeout)

    monkeypatch.setattr(upstream_module.socket, "create_connection", far)
    assert launcher.upstream.pass_on(PUT) == ANSWER
    assert tried == pytest.approx([TRY_S, TRY_S, TRY_S, 2 * TRY_S, 4 * TRY_S, 8 * TRY_S])
