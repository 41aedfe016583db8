"""The next world is made while the present one trains.

Why. Under Horovod, workers that hear of a change of hosts stop, ask for their new ranks, and only
then does the launcher start the newcomers: everybody stands still while a process starts, loads
TensorFlow and builds the model.

Theory of operation. When the hosts have changed, all workers tell their agents after the same
step and train on. Each agent asks the launcher's rendezvous in its worker's place (see
`rendezvous`); the driver, which needs every slot's question, makes the next world and starts the
newcomers. An agent whose slot stays leaves a mark in the launcher's store, which the driver
empties for each round; a newcomer that is ready to meet the others leaves its address there. The
agent of the next rank 0, which is never a newcomer, sees from these when nobody is missing and
tells its worker, which tells all others with its next step's gradients: they leave for the next
world together, and the stand-still is that of a world that forms.

When somebody will not come (there is a mark that says so, or `hold_s` is over), or when hosts were
taken away again, all workers ask anew, again after the same step. So a world's n-th order is for
the n-th round after it, and all agents agree on which that is, whatever they have heard by then.

A newcomer's agent watches the marks until its worker goes: it asks anew with the others, so that
nobody has to wait for its worker's start, and ends when they have reached the goal without it.
"""

import contextlib
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue
from typing import Protocol

from elastic.agent.inbox import Inbox
from elastic.agent.rendezvous import OVER
from elastic.channel import NextWorldReady

POLL_S = 0.1
WATCH_S = 0.5
RETRY_S = 1.0
_STAYS = "/elastic/stays."
_ADDRESS = "/global/rank_"  # what Gloo puts first


class Store(Protocol):
    """What is needed of the launcher's rendezvous (see `rendezvous.Rendezvous`)."""

    @property
    def asking(self) -> bool: ...

    @property
    def due(self) -> bool: ...

    def ask(self) -> tuple[int, int] | None: ...

    def ask_anew(self) -> tuple[int, int] | None: ...

    def abandon(self) -> None: ...

    def mark(self) -> bytes | None: ...

    def put(self, path: str, value: bytes) -> None: ...

    def get(self, path: str) -> bytes | None: ...


@dataclass(frozen=True, slots=True)
class GoalReached:
    """The others have reached the goal; this slot's worker has not come in time."""


class Ahead:
    """Asks for one slot, in a thread of its own.

    Args:
        store: the launcher's rendezvous.
        hold_s: how long newcomers may take to appear.
    """

    def __init__(self, store: Store, hold_s: float) -> None:
        self._store = store
        self._hold_s = hold_s
        self._orders: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._news: Inbox[NextWorldReady | GoalReached] = Inbox()
        self._thread: threading.Thread | None = None
        self._ordered = 0
        self._answered = 0
        self.fd = self._news.fd

    def ask(self, generation: int, attempt: int) -> None:
        """Ask for the next world, or, from the second attempt on, for the one after that.

        Args:
            generation: of the world that trains.
            attempt: how often that world has asked.
        """
        self._ordered += 1
        self._order(partial(self._ask, self._ordered, generation, attempt))

    @property
    def asks(self) -> bool:
        """Whether an order to ask has not been answered yet."""
        return self._answered < self._ordered

    def watch(self) -> None:
        """Look after the round that this slot's worker comes up for, until the next order."""
        self._order(self._watch)

    def rest(self) -> None:
        """Watch no more."""
        self._order(lambda: None)

    def leave(self) -> None:
        """Let nobody wait for this slot, whose worker is to leave."""
        self._order(self._store.abandon)

    def is_awaited(self) -> bool:
        """Tell whether a world that trains has asked for the one that this slot was started for."""
        try:
            return self._store.get(f"{_STAYS}0") is not None
        except OSError:
            return False

    def news(self) -> list[NextWorldReady | GoalReached]:
        """Return what the agent must hear; to be called when `fd` is readable."""
        return self._news.take()

    def _order(self, order: Callable[[], None]) -> None:
        self._orders.put(order)
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="ahead", daemon=True)
            self._thread.start()

    def _work(self) -> None:
        while True:
            order = self._orders.get()
            while not self._carry_out(order) and self._orders.empty():
                time.sleep(RETRY_S)

    def _carry_out(self, order: Callable[[], None]) -> bool:
        """Do it; False if the launcher could not be reached."""
        try:
            order()
        except OSError:
            return False
        return True

    def _ask(self, number: int, generation: int, attempt: int) -> None:
        while attempt > 1 and self._store.asking:
            time.sleep(POLL_S)
        self._store.abandon()
        place = self._store.ask()
        if place is None:
            raise ConnectionError("no answer from the launcher")
        self._answered = number
        rank, size = place
        if rank >= 0:
            self._store.put(f"{_STAYS}{rank}", b"1")
        if rank == 0:
            self._lead(generation, attempt, list(range(size)))

    def _lead(self, generation: int, attempt: int, missing: list[int]) -> None:
        """Tell the worker when all are there, and when somebody will not come, as long as that matters."""
        deadline, ready = time.monotonic() + self._hold_s, False
        while self._orders.empty() and self._store.due:
            with contextlib.suppress(OSError):
                if self._store.mark() is not None or (not ready and time.monotonic() > deadline):
                    self._news.put(NextWorldReady(generation, attempt, late=True))
                    return
                while missing and self._is_there(missing[-1]):
                    missing.pop()
                if not missing and not ready:
                    self._news.put(NextWorldReady(generation, attempt))
                    ready = True
            time.sleep(POLL_S)

    def _is_there(self, rank: int) -> bool:
        return any(self._store.get(f"{mark}{rank}") is not None for mark in (_STAYS, _ADDRESS))

    def _watch(self) -> None:
        while self._orders.empty():
            mark = self._store.mark()
            if mark == OVER:
                self._news.put(GoalReached())
                return
            if mark is not None:
                place = self._store.ask_anew()
                if place is None or place[0] < 0:
                    return
            time.sleep(WATCH_S)
