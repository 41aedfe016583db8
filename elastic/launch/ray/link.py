"""Between the driver and a slot's actor: one TCP connection, on which each sees the other's end at once.

Theory of operation. The driver listens; each actor connects and says `Hello` with the job's token
and its slot. The driver answers with `Begin`; from there on the actor sends what the agent prints
(`Printed`), the facts of a host that does not share the run directory (`Facts`), and `Ended` with
the agent's exit code. `Drain` asks the agent to leave. Messages are those of `elastic.channel`,
JSON, one a line. A process that dies closes the connection; a machine that is cut off fails the
kernel's keep-alive within `CUT_OFF_S`, which also answers for a process that is only busy or frozen.
"""

import contextlib
import hmac
import queue
import secrets
import socket
import threading
from dataclasses import dataclass, field

from elastic import listener
from elastic.channel import Channel, Message
from elastic.errors import WorkerError

CUT_OFF_S = 6
HELLO_S = 5.0


@dataclass(frozen=True, slots=True)
class Hello(Message):
    """Actor: here I am. `gpus`: the ids that Ray gave it; `shared`: it sees the driver's run directory."""

    token: str
    key: str
    pid: int
    gpus: list[str] = field(default_factory=list)
    shared: bool = True


@dataclass(frozen=True, slots=True)
class Begin(Message):
    """Driver: start the agent with these environment variables."""

    env: dict[str, str]


@dataclass(frozen=True, slots=True)
class Started(Message):
    """Actor: the agent runs, as this process."""

    agent_pid: int


@dataclass(frozen=True, slots=True)
class Printed(Message):
    """Actor: a whole line that the agent or its worker has printed, to "stdout" or "stderr"."""

    line: str
    stream: str = "stdout"


@dataclass(frozen=True, slots=True)
class Facts(Message):
    """Actor: lines of the host's events file."""

    lines: list[str]


@dataclass(frozen=True, slots=True)
class Ended(Message):
    """Actor: the agent has ended. `result`: what a function gave back, pickled, in base64."""

    code: int
    result: str = ""


class Links:
    """The driver's end: listens, and hands each connection to who expects it.

    Args:
        address: of the interface to listen on.
    """

    def __init__(self, address: str) -> None:
        self.token = secrets.token_hex(16)
        self._expected: dict[str, queue.SimpleQueue[tuple[Channel, Hello]]] = {}
        self._lock = threading.Lock()
        self._server = socket.create_server((address, 0), backlog=128)

    def open(self) -> None:
        """Accept connections from now on."""
        listener.serve_each(self._server, self._greet, "link")

    @property
    def at(self) -> tuple[str, int]:
        """Address and port."""
        host, port = self._server.getsockname()[:2]
        return host, port

    def expect(self, key: str) -> "queue.SimpleQueue[tuple[Channel, Hello]]":
        """Return where the connection of the actor that has been given `key` will arrive."""
        with self._lock:
            return self._expected.setdefault(key, queue.SimpleQueue())

    def forget(self, key: str) -> None:
        """Expect nobody of that name any more; who has come and was not received is turned away."""
        with self._lock:
            arrival = self._expected.pop(key, None)
        with contextlib.suppress(queue.Empty):
            while arrival is not None:
                arrival.get_nowait()[0].close()

    def close(self) -> None:
        """Listen no more."""
        listener.close(self._server)

    def _greet(self, sock: socket.socket) -> None:
        sock.settimeout(HELLO_S)
        channel = Channel(sock)
        try:
            hello = channel.expect(Hello)
        except (WorkerError, ValueError, KeyError, TypeError, AttributeError):  # a stranger
            hello = None
        if hello is None or not hmac.compare_digest(hello.token, self.token):
            sock.close()
            return
        sock.settimeout(None)
        keep_alive(sock)
        with self._lock:
            waiting = self._expected.get(hello.key)
            if waiting is None:
                sock.close()
            else:
                waiting.put((channel, hello))


def join(address: tuple[str, int], hello: Hello) -> Channel:
    """Connect an actor to its driver.

    Raises:
        OSError: when it cannot be reached.
    """
    sock = socket.create_connection(address, timeout=HELLO_S)
    sock.settimeout(None)
    keep_alive(sock)
    channel = Channel(sock)
    channel.send(hello)
    return channel


def keep_alive(sock: socket.socket) -> None:
    """Have the kernel notice that the other machine is gone."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, CUT_OFF_S - 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, CUT_OFF_S * 1000)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def answers(address: str, port: int, within_s: float = 1.0) -> bool:
    """Tell whether somebody listens there."""
    try:
        socket.create_connection((address, port), timeout=within_s).close()
    except OSError:
        return False
    return True
