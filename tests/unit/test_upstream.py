"""Requests to a launcher whose queue is full: made again on another connection, but for those that must not be."""

import socket
import threading
from collections.abc import Iterator

import pytest

from elastic.agent import upstream as upstream_module
from elastic.agent.rendezvous import Rendezvous
from elastic.agent.upstream import Upstream, read_request, request

ANSWER = b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok"
DEADLINE_S = 20.0


class Launcher:
    """Takes connections, and answers those after the first `deaf`."""

    def __init__(self) -> None:
        self.deaf = 1
        self.requests: list[bytes] = []
        self.ignored: list[socket.socket] = []
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = self._server.getsockname()[1]
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
            else:
                client.sendall(ANSWER)
                client.close()


@pytest.fixture
def launcher(monkeypatch: pytest.MonkeyPatch) -> Iterator[Launcher]:
    monkeypatch.setattr(upstream_module, "SOON_S", 0.05)
    found = Launcher()
    yield found
    found.close()


def test_a_request_that_is_not_answered_soon_is_made_on_another_connection(launcher: Launcher) -> None:
    launcher.deaf = 2
    assert Upstream("127.0.0.1", launcher.port).insist(request("PUT", "/global/0", b"x")) == ANSWER
    assert len(set(launcher.requests)) == 1
    assert len(launcher.requests) == 3


def test_what_was_given_up_is_reset_so_that_nobody_carries_it_out_later(launcher: Launcher) -> None:
    Upstream("127.0.0.1", launcher.port).insist(request("PUT", "/global/0", b"x"))
    (ignored,) = launcher.ignored
    ignored.settimeout(DEADLINE_S)
    with pytest.raises(ConnectionResetError):
        ignored.recv(1)


@pytest.mark.parametrize(
    ("method", "path", "times"),
    [
        ("GET", "/global_process_set_hash_7/1", 2),
        ("PUT", "/local_alpha/rank_0", 2),
        ("DELETE", "/global/0", 1),  # the launcher counts these
        ("PUT", "/elsewhere/0", 1),
    ],
)
def test_only_what_may_be_done_twice_is_asked_for_again(launcher: Launcher, method: str, path: str, times: int) -> None:
    proxy = Rendezvous("127.0.0.1", launcher.port, 60.0, "alpha:0")
    proxy.open()
    try:
        address = (proxy.env["HOROVOD_GLOO_RENDEZVOUS_ADDR"], int(proxy.env["HOROVOD_GLOO_RENDEZVOUS_PORT"]))
        with socket.create_connection(address, timeout=DEADLINE_S if times > 1 else 0.5) as worker:
            worker.sendall(request(method, path))
            if times > 1:
                assert worker.recv(1 << 16) == ANSWER
            else:
                with pytest.raises(TimeoutError):
                    worker.recv(1)
        assert len(launcher.requests) == times
    finally:
        proxy._server.shutdown(socket.SHUT_RDWR)
        proxy._server.close()
