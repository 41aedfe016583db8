"""A launcher's rendezvous: Horovod's own server, and a scripted one that keeps to the same contract."""

import contextlib
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from horovod.runner.common.util.hosts import INVALID_SLOT_INFO, SlotInfo
from horovod.runner.elastic.rendezvous import create_rendezvous_handler
from horovod.runner.http.http_server import RendezvousServer

from elastic.agent.rendezvous import Rendezvous

DEADLINE_S = 20.0
LONG_S = 60.0
ASK = "/rank_and_size/alpha:0"


class Driver:
    """Who decides ranks: answers no question of a round before the test forms its world."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._worlds: list[SlotInfo] = []
        self._questions = 0
        self._seen: list[str] = []

    def form(self, rank: int, size: int = 2) -> None:
        """Let the next question be answered."""
        slot = SlotInfo("alpha", rank, 0, 0, size, 1, size) if rank >= 0 else INVALID_SLOT_INFO
        with self._changed:
            self._worlds.append(slot)
            self._changed.notify_all()

    @property
    def questions(self) -> int:
        return self._questions

    def wait_questions(self, number: int) -> None:
        """Return once so many questions have been asked."""
        self._wait(lambda: self._questions >= number)

    def wait_seen(self, request: str, times: int) -> None:
        """Return once the server has got a request so many times."""
        self._wait(lambda: self._seen.count(request) >= times)

    def seen(self, request: str) -> int:
        return self._seen.count(request)

    def see(self, request: str) -> None:
        with self._changed:
            self._seen.append(request)
            self._changed.notify_all()

    def record_ready(self, host: str, slot: int) -> None:
        """What Horovod's handler calls first for a question."""

    def get_slot_info(self, host: str, slot: int) -> SlotInfo:
        """What Horovod's handler calls next: returns when the round is complete."""
        with self._changed:
            mine = self._questions
            self._questions += 1
            self._changed.notify_all()
            assert self._changed.wait_for(lambda: len(self._worlds) > mine, DEADLINE_S)
            return self._worlds[mine]

    def _wait(self, condition: Callable[[], bool]) -> None:
        with self._changed:
            assert self._changed.wait_for(condition, DEADLINE_S)


class LauncherServer(Protocol):
    """A rendezvous that asks a driver."""

    def start(self) -> int:
        """Listen; return the port."""

    def empty(self) -> None:
        """Empty the store, as the driver does when it makes a round."""

    def stop(self) -> None:
        """Listen no more."""


class HorovodServer:
    """Horovod's own, as its elastic driver runs it."""

    def __init__(self, driver: Driver) -> None:
        class Handler(create_rendezvous_handler(driver)):  # type: ignore[misc]
            def handle_one_request(self) -> None:
                super().handle_one_request()
                if getattr(self, "requestline", ""):
                    driver.see(" ".join(self.requestline.split()[:2]))

        self._handler = Handler
        self._server = RendezvousServer()

    def start(self) -> int:
        port: int = self._server.start(self._handler)
        self._server.init([])
        self._port = port
        return port

    def empty(self) -> None:
        self._server.init([])

    def stop(self) -> None:
        stopping = threading.Thread(target=self._server.stop)
        stopping.start()
        while stopping.is_alive():  # it looks up twice a second, or when somebody comes
            with contextlib.suppress(OSError):  # a few connections that nobody takes any more fill its queue
                socket.create_connection(("127.0.0.1", self._port), timeout=0.05).close()
            stopping.join(0.05)
        self._server._httpd.server_close()


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    target: str
    body: bytes


class ScriptedServer:
    """A key-value store that answers in pieces, and hangs up when told to."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._store: dict[str, bytes] = {}
        self._server = socket.create_server(("127.0.0.1", 0))
        self.hang_ups = 0
        self.puts = threading.Event()  # are answered while it is set
        self.puts.set()

    def start(self) -> int:
        threading.Thread(target=self._accept, daemon=True).start()
        port: int = self._server.getsockname()[1]
        return port

    def empty(self) -> None:
        self._store.clear()

    def stop(self) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._server.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, contextlib.suppress(OSError), client.makefile("rb") as file:
            method, target, _ = file.readline().decode().split()
            length = 0
            while (line := file.readline().strip()) != b"":
                name, _, value = line.partition(b":")
                length = int(value) if name.lower() == b"content-length" else length
            request = Request(method, "/" + target.split("://")[-1].split("/", 1)[1], file.read(length))
            if self.hang_ups:
                self.hang_ups -= 1
                return
            found = self._answer(request)
            status = b"404 Not Found" if found is None else b"200 OK"
            response = b"HTTP/1.0 %s\r\nContent-Length: %d\r\n\r\n%s" % (status, len(found or b""), found or b"")
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            client.sendall(response[:7])
            client.sendall(response[7:])
        self._driver.see(f"{request.method} {request.target}")

    def _answer(self, request: Request) -> bytes | None:
        match request.method:
            case "GET" if request.target.startswith("/rank_and_size/"):
                host, _, slot = request.target.removeprefix("/rank_and_size/").partition(":")
                words: str = self._driver.get_slot_info(host, int(slot)).to_response_string()
                return words.encode()
            case "GET":
                return self._store.get(request.target)
            case "PUT":
                assert self.puts.wait(DEADLINE_S)
                self._store[request.target] = request.body
                return b""
            case _:
                self._store.pop(request.target, None)
                return b""


@dataclass(frozen=True, slots=True)
class Response:
    """An answer; status 0 when the connection was closed without one."""

    status: int
    body: bytes


RANK_0 = Response(200, b"0,2,0,1,0,2")
RANK_1 = Response(200, b"1,2,0,1,0,2")


class Client:
    """One request of a worker's, over a connection of its own."""

    def __init__(self, address: Any, method: str, target: str, body: bytes = b"") -> None:
        self.sock = socket.create_connection(address, timeout=DEADLINE_S)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.request = f"{method} {target} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body

    def send(self) -> "Client":
        self.sock.sendall(self.request)
        return self

    def die(self) -> None:
        self.sock.close()

    def response(self) -> Response:
        """Wait for the whole answer."""
        data = b""
        with self.sock:
            while more := self.sock.recv(1 << 16):
                data += more
        head, _, body = data.partition(b"\r\n\r\n")
        return Response(int(head.split()[1]) if head else 0, body)


class Slot:
    """A slot's proxy, and requests through it and past it."""

    def __init__(self, port: int, hold_s: float) -> None:
        self.upstream = ("127.0.0.1", port)
        self.proxy = Rendezvous(*self.upstream, hold_s=hold_s, slot="alpha:0")
        self.proxy.open()
        env = self.proxy.env
        self.address = (env["HOROVOD_GLOO_RENDEZVOUS_ADDR"], int(env["HOROVOD_GLOO_RENDEZVOUS_PORT"]))

    def send(self, method: str, target: str, body: bytes = b"") -> Client:
        return Client(self.address, method, target, body).send()

    def call(self, method: str, target: str, body: bytes = b"") -> Response:
        return self.send(method, target, body).response()

    def past(self, method: str, target: str, body: bytes = b"") -> Response:
        """Call the launcher without the proxy, as the peers do through theirs."""
        return Client(self.upstream, method, target, body).send().response()

    def show_up(self) -> None:
        assert self.call("PUT", "/global/0", b"address of 0").status == 200

    def close(self) -> None:
        self.proxy._server.shutdown(socket.SHUT_RDWR)
        self.proxy._server.close()
