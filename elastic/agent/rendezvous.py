"""The launcher's rendezvous, as this slot's worker sees it: through its agent.

Why. Horovod's rendezvous counts who asks, not who is there, and Gloo gives its peers only the
time-out that also bounds a silent peer. A worker that dies while it waits for the others leaves a
ghost that is counted; one that comes late, because it must first import TensorFlow, lets those
who hold the state run into their time-out, which Horovod's core answers with an abort.

Theory of operation. The worker is told this proxy's address instead of the launcher's. Every
request passes through unchanged, but for two:

* `GET /rank_and_size/HOST:SLOT` ("I am ready; who am I?") is asked once a round by the agent and
  not by the process. If the worker dies before it has shown up in that round (before it PUTs its
  own address), the answer, or the pending question, is its successor's.
* `GET` of a peer's address waits here for as long as a peer may take to start, `hold_s`, instead
  of answering that there is none.

The driver ends no round without this slot, and only this agent speaks for the slot; so an answer
stays valid until the worker has shown up. There is one exception: a round that lacks a member for
good. Whoever knows that (an agent whose slot ends, or that asks anew) leaves a mark in the
launcher's store, which is emptied for each round; who finds it asks anew too, and whoever waits
for peers' addresses is told that there are none.
"""

import contextlib
import socket
import threading
import time
from dataclasses import dataclass, field

from elastic.agent.upstream import Upstream, body_of, is_gone, read_request, request, status_is

POLL_S = 0.01
_ASK = "/rank_and_size/"
_PEERS = ("/global/", "/local_", "/cross_")
_ABANDONED = "/elastic/abandoned"
_LOOK_FOR_MARK = 20  # polls
_NOT_FOUND = b"HTTP/1.0 404 Not Found\r\nContent-Length: 0\r\n\r\n"


@dataclass
class _Question:
    """One round's question to the driver; `answer` is the raw response."""

    done: threading.Event = field(default_factory=threading.Event)
    answer: bytes = b""


class Rendezvous:
    """Passes the worker's requests on to the launcher's rendezvous.

    Args:
        address, port: where the launcher listens.
        hold_s: how long a request for a peer's address waits for the peer.
        slot: this slot's `HOST:LOCAL_RANK`, as the launcher knows it.
    """

    def __init__(self, address: str, port: int, hold_s: float, slot: str = "") -> None:
        self._upstream = Upstream(address, port)
        self._slot = slot
        self._hold_s = hold_s
        self._lock = threading.Lock()
        self._question: _Question | None = None
        self._shown_up = False
        self._removed = False
        self._server = socket.socket()

    def open(self) -> None:
        """Listen on this machine's loopback interface."""
        self._server.bind(("127.0.0.1", 0))
        self._server.listen(64)
        threading.Thread(target=self._accept, name="rendezvous", daemon=True).start()

    @property
    def env(self) -> dict[str, str]:
        """What the worker needs in its environment to come through here."""
        address, port = self._server.getsockname()
        return {"HOROVOD_GLOO_RENDEZVOUS_ADDR": address, "HOROVOD_GLOO_RENDEZVOUS_PORT": str(port)}

    @property
    def launched_env_used(self) -> bool:
        """Whether a worker of this slot has shown up once, so that the launcher's environment is stale."""
        return self._shown_up

    @property
    def removed(self) -> bool:
        """Whether the driver has said that this slot is no longer part of the job."""
        return self._removed

    def ask(self) -> tuple[int, int] | None:
        """Ask the driver for this slot's place in the next world, ahead of the worker; wait for the answer.

        Returns:
            Rank and size, (-1, -1) when the slot is not part of it; None when there is no answer.
        """
        question = self._pose(request("GET", f"{_ASK}{self._slot}"))
        question.done.wait()
        words = body_of(question.answer).split(b",")
        try:
            return int(words[0]), int(words[1])
        except (ValueError, IndexError):
            return None

    def abandon(self) -> None:
        """Let nobody wait for the round that this slot's worker was to enter, if it has not shown up in it."""
        with self._lock:
            question, launched = self._question, not self._shown_up
            if self._removed or not (launched or (question is not None and question.done.is_set())):
                return
            self._question = None
        with contextlib.suppress(OSError):
            self.put(_ABANDONED, b"1")

    def abandoned(self) -> bool:
        """Tell whether the present round lacks somebody for good."""
        return self.get(_ABANDONED) is not None

    def put(self, path: str, value: bytes) -> None:
        """Leave something in the launcher's store, until the next round."""
        self._upstream.put(path, value)

    def get(self, path: str) -> bytes | None:
        """Return what lies in the launcher's store, or None."""
        return self._upstream.get(path)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, contextlib.suppress(OSError):
            received = read_request(client)
            method, _, rest = received.partition(b" ")
            path = rest.partition(b" ")[0].decode("latin-1")
            if path.startswith("http://"):
                path = "/" + path.split("/", 3)[3]
            if method == b"GET" and path.startswith(_ASK):
                client.sendall(self._ask(client, received))
            elif method == b"GET" and path.startswith(_PEERS):
                client.sendall(self._hold(client, received))
            else:
                response = self._upstream.pass_on(received)
                if method == b"PUT" and path.startswith(_PEERS[0]) and status_is(response, 200):
                    with self._lock:
                        self._shown_up, self._question = True, None
                client.sendall(response)

    def _pose(self, asked: bytes) -> _Question:
        """Return the round's question, asked now if it has not been."""
        known = self._question
        lost = known is not None and known.done.is_set() and self._is_abandoned()
        with self._lock:
            if lost and self._question is known:
                self._question = None
            question = self._question
            if question is None:
                question = self._question = _Question()
                threading.Thread(target=self._wait_for_driver, args=(question, asked), daemon=True).start()
        return question

    def _is_abandoned(self) -> bool:
        try:
            return self.abandoned()
        except OSError:
            return False

    def _ask(self, client: socket.socket, asked: bytes) -> bytes:
        question = self._pose(asked)
        while not question.done.wait(0.05):
            if is_gone(client):
                return b""
        if not question.answer:
            with self._lock:
                if self._question is question:
                    self._question = None
            return _NOT_FOUND.replace(b"404 Not Found", b"503 Service Unavailable")
        return question.answer

    def _wait_for_driver(self, question: _Question, asked: bytes) -> None:
        with contextlib.suppress(OSError):
            question.answer = self._upstream.pass_on(asked)
        self._removed = body_of(question.answer).startswith(b"-1")
        question.done.set()

    def _hold(self, client: socket.socket, asked: bytes) -> bytes:
        deadline, polls = time.monotonic() + self._hold_s, 0
        while True:
            response = self._upstream.pass_on(asked)
            if not status_is(response, 404) or time.monotonic() > deadline:
                return response
            polls += 1
            if polls % _LOOK_FOR_MARK == 0 and self.abandoned():
                return response
            if is_gone(client):
                return b""
            time.sleep(POLL_S)
