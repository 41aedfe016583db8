"""The launcher's rendezvous, as this slot's worker sees it: through its agent.

Why. Horovod's rendezvous counts who asks, not who is there, and Gloo gives its peers only the
time-out that also bounds a silent peer. A worker that dies while it waits for the others leaves a
ghost that is counted; one that comes late, because it must first import TensorFlow, lets those
who hold the state run into their time-out, which Horovod's core answers with an abort.

Theory of operation. The worker is told this proxy's address instead of the launcher's. Every
request passes through unchanged, but for three:

* `GET /rank_and_size/HOST:SLOT` ("I am ready; who am I?") is asked once a round by the agent and
  not by the process. If the worker dies before it has shown up in that round (before it PUTs its
  own address), the answer, or the pending question, is its successor's.
* `GET` of a peer's address waits here for as long as a peer may take to start, `hold_s`, instead
  of answering that there is none.
* `PUT /worker_addresses/HOST:SLOT` ("announce to me what changes") is not passed on when the agent hears
  for its workers (see `announcements`).

The driver ends no round without this slot, and only this agent speaks for the slot; so an answer
stays valid until the worker has shown up, with two exceptions.

A round may lack a member for good. Whoever knows that leaves a mark in the launcher's store, which
is emptied for each round: who finds it asks anew, and who waits for a peer's address is told that
there is none. The mark says whether the round is abandoned or the job's goal reached.

A round that was asked for ahead (see `ahead`) holds once it is open: a worker has left the other
mark, because all have agreed to go over, or because it lost its world before this round was made.
If a world is lost in between, some member may be gone with it and nobody know: then all ask anew.
"""

import contextlib
import socket
import threading
import time
from dataclasses import dataclass, field

from elastic.agent.upstream import Upstream, body_of, is_gone, read_request, request, status_is
from elastic.listener import serve_each

POLL_S = 0.01
ABANDONED, OVER = b"abandoned", b"over"
_MARK = "/elastic/mark"
_OPEN = "/elastic/open"
_ASK = "/rank_and_size/"
_REGISTER = "/worker_addresses/"
_PEERS = ("/global/", "/local_", "/cross_")
_LOOK_FOR_MARK = 20  # polls
_HEAR_S = 2.0
REGISTER_S = 60.0  # the launcher tries the address before it answers
_DONE = b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n"
_NOT_FOUND = b"HTTP/1.0 404 Not Found\r\nContent-Length: 0\r\n\r\n"


@dataclass
class _Question:
    """One round's question to the driver; `answer` is the raw response."""

    ahead: bool  # the slot's worker trains on meanwhile
    done: threading.Event = field(default_factory=threading.Event)
    answer: bytes = b""
    removed: bool = False

    def place(self) -> tuple[int, int] | None:
        """Wait for the answer; return rank and size, or None when there is none."""
        self.done.wait()
        words = body_of(self.answer).split(b",")
        try:
            return int(words[0]), int(words[1])
        except (ValueError, IndexError):
            return None


class Rendezvous:
    """Passes the worker's requests on to the launcher's rendezvous.

    Args:
        address, port: where the launcher listens.
        hold_s: how long a request for a peer's address waits for the peer.
        slot: this slot's `HOST:LOCAL_RANK`, as the launcher knows it.
        launched: the slot is new to the launcher; otherwise another agent has had it before.
    """

    def __init__(self, address: str, port: int, hold_s: float, slot: str, *, launched: bool = True) -> None:
        self._upstream = Upstream(address, port)
        self._hold_s = hold_s
        self._asking = request("GET", f"{_ASK}{slot}")
        self._slot = slot
        self._hears = False  # the agent, for its workers
        self._lock = threading.RLock()
        self._question: _Question | None = None
        self._launched = launched  # the launcher's environment holds: no worker has used it up
        self._going = False  # a worker has been told to enter
        self._due = True  # a round counts on this slot, whose worker has not shown up in it
        self._there = False  # it has shown up, and is not yet in the world
        self._entering = threading.Event()  # the agent has heard all that its worker said before it left its world
        self._rounds = 0  # that the driver has told of
        self._removed = False
        self._retired = False
        self._server = socket.socket()

    def open(self) -> None:
        """Listen on this machine's loopback interface."""
        self._server.bind(("127.0.0.1", 0))
        self._server.listen(64)
        serve_each(self._server, self._serve, "rendezvous")

    @property
    def env(self) -> dict[str, str]:
        """What the worker needs in its environment to come through here."""
        address, port = self._server.getsockname()
        return {"HOROVOD_GLOO_RENDEZVOUS_ADDR": address, "HOROVOD_GLOO_RENDEZVOUS_PORT": str(port)}

    @property
    def launched_env_used(self) -> bool:
        """Whether the launcher's environment is stale: a worker has shown up with it, or its round is no more."""
        return not self._launched

    @property
    def removed(self) -> bool:
        """Whether the driver has said that this slot is no longer part of the job."""
        return self._removed

    @property
    def asking(self) -> bool:
        """Whether the driver has counted this slot for the next round and not made it yet."""
        question = self._question
        return question is not None and not question.done.is_set()

    @property
    def due(self) -> bool:
        """Whether a round counts on this slot, and its worker has not shown up in it."""
        return self._due

    def enter(self) -> str:
        """Return how the worker that is told to go now enters: "launched" or "rejoin"; "over" if it need not."""
        with self._lock:
            if self._launched:
                mark = self._mark_if_known()
                if mark == OVER:
                    return "over"
                self._launched = mark is None
            self._going = True
            return "launched" if self._launched else "rejoin"

    def open_round(self) -> None:
        """Let the workers enter the round that was asked for ahead."""
        with contextlib.suppress(OSError):
            self.put(_OPEN, b"1")

    def entering(self) -> None:
        """Hear that the worker is about to join a world."""
        self._entering.set()

    def entered(self) -> None:
        """Hear that the worker is in a world."""
        self._entering.clear()
        self._there = False

    def ended(self) -> None:
        """Hear that the worker has ended: a round in which it has shown up, and no more, lacks it for good."""
        with self._lock:
            self._going = False
            self._entering.clear()
            if self._there:
                self._leave_mark(ABANDONED)

    def is_over(self) -> bool:
        """Tell whether the others have reached the goal."""
        return self._mark_if_known() == OVER

    def ask(self) -> tuple[int, int] | None:
        """Ask the driver for this slot's place in the next world while its worker trains; wait for the answer.

        Returns:
            Rank and size, (-1, -1) when the slot is not part of it; None when there is no answer.
        """
        return self._pose(ahead=True).place()

    def ask_anew(self) -> tuple[int, int] | None:
        """Ask in place of a worker that comes up for a round that is no more; None if it has been told to go."""
        with self._lock:
            if self._going:
                return None
            self._launched = False
            self._forget()
            question = self._pose(ahead=False)
        return question.place()

    def abandon(self) -> None:
        """Let nobody wait for the round that this slot's worker was to show up in, if there is one."""
        with self._lock:
            if self._due:
                self._leave_mark(ABANDONED)

    def retire(self, *, goal: bool) -> bool:
        """Speak for this slot no more, and let nobody wait for it.

        Returns:
            False, and nothing is done, when the goal is reached and the driver has counted the slot for the
            next round: it would not count its success until that round is made.
        """
        with self._lock:
            if goal and self.asking:
                return False
            self._retired = True
            if self._due:
                self._leave_mark(OVER if goal else ABANDONED)
            return True

    def mark(self) -> bytes | None:
        """Return what has become of the present round: ABANDONED, OVER, or None while it holds."""
        return self.get(_MARK)

    def own_address(self) -> str:
        """This host's address on the way to the launcher."""
        return self._upstream.own_address()

    @property
    def hears(self) -> bool:
        """Whether the launcher announces changes to the agent, not to its workers."""
        return self._hears

    def register(self, value: bytes) -> bool:
        """Let the launcher announce changes to the agent; False when it could not reach it there.

        Args:
            value: what a worker would put, for this slot.
        """
        response = self._upstream.pass_on(request("PUT", f"{_REGISTER}{self._slot}", value), REGISTER_S)
        self._hears = status_is(response, 200)
        return self._hears

    def put(self, path: str, value: bytes) -> None:
        """Leave something in the launcher's store, until the next round."""
        self._upstream.put(path, value)

    def get(self, path: str) -> bytes | None:
        """Return what lies in the launcher's store, or None."""
        return self._upstream.get(path)

    def _mark_if_known(self) -> bytes | None:
        try:
            return self.mark()
        except OSError:
            return None

    def _leave_mark(self, mark: bytes) -> None:
        """Mark the round, before this slot asks for another one, in which the mark would be wrong."""
        with contextlib.suppress(OSError):
            if self.mark() != OVER:
                self.put(_MARK, mark)
        self._forget()

    def _forget(self) -> None:
        """Let go of the round that counted on this slot; a question that waits is for the next one, and stays."""
        self._due = self._there = False
        if not self.asking:
            self._question = None

    def _serve(self, client: socket.socket) -> None:
        with client, contextlib.suppress(OSError):
            received = read_request(client)
            method, _, rest = received.partition(b" ")
            path = rest.partition(b" ")[0].decode("latin-1")
            if path.startswith("http://"):
                path = "/" + path.split("/", 3)[3]
            if method == b"GET" and path.startswith(_ASK):
                client.sendall(self._ask(client))
            elif method == b"GET" and path.startswith(_PEERS):
                client.sendall(self._hold(client, received))
            elif method == b"PUT" and path.startswith(_REGISTER) and self._hears:
                client.sendall(_DONE)
            else:
                response = self._upstream.pass_on(received)
                if method == b"PUT" and path.startswith(_PEERS[0]) and status_is(response, 200):
                    with self._lock:
                        self._forget()
                        self._launched, self._there = False, True
                client.sendall(response)

    def _pose(self, *, ahead: bool) -> _Question:
        """Return the round's question, asked now if it has not been."""
        with self._lock:
            question = self._question
            if question is None:
                question = _Question(ahead)
                if self._retired:
                    question.done.set()
                    return question
                self._question = question
                threading.Thread(target=self._wait_for_driver, args=(question,), daemon=True).start()
        return question

    def _ask(self, client: socket.socket) -> bytes:
        while True:
            question = self._pose(ahead=False)
            lost_before = not question.done.is_set()
            while not question.done.wait(0.05):
                if is_gone(client):
                    return b""
            if not question.answer:
                return _NOT_FOUND.replace(b"404 Not Found", b"503 Service Unavailable")
            if self._holds(question, lost_before=lost_before):
                return question.answer
            self.abandon()

    def _holds(self, question: _Question, *, lost_before: bool) -> bool:
        """Tell whether a worker may enter the round that it was told of.

        Args:
            question: the round's, answered.
            lost_before: the worker has waited for the answer, so that no member was lost after it.
        """
        if question.removed or (lost_before and not question.ahead):
            return True
        if question.ahead and lost_before:
            self.open_round()
        elif question.ahead:
            self._entering.wait(_HEAR_S)
        try:
            return self.mark() is None and (not question.ahead or self.get(_OPEN) is not None)
        except OSError:
            return True

    def _wait_for_driver(self, question: _Question) -> None:
        answer = b""
        with contextlib.suppress(OSError):
            answer = self._upstream.pass_on(self._asking)
        with self._lock:
            if answer:
                self._removed = question.removed = body_of(answer).startswith(b"-1")
                self._due, self._there = not self._removed, False
                self._rounds += 1
            else:
                self._question = None
            question.answer = answer
            question.done.set()

    def _hold(self, client: socket.socket, asked: bytes) -> bytes:
        deadline, polls, rounds = time.monotonic() + self._hold_s, 0, self._rounds
        while True:
            response = self._upstream.pass_on(asked)
            if not status_is(response, 404) or time.monotonic() > deadline:
                return response
            if self._rounds != rounds:  # this slot was counted for another round, where its worker has not shown up
                return response
            polls += 1
            if polls % _LOOK_FOR_MARK == 0 and self.mark() is not None:
                return response
            if is_gone(client):
                return b""
            time.sleep(POLL_S)
