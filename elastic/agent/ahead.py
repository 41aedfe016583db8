"""The next world is made while the present one trains.

Why. Under Horovod, workers that hear of a change of hosts stop, ask for their new ranks, and only
then does the launcher start the newcomers: everybody stands still while a process starts, loads
TensorFlow and builds the model.

Theory of operation. When the hosts have changed, all workers tell their agents after the same
step and train on. Each agent asks the launcher's rendezvous in its worker's place (see
`rendezvous`); the driver, which needs every slot's question, makes the next world and starts the
newcomers. An agent whose slot stays leaves a mark in the launcher's store, which the driver
empties for each round; a newcomer that is ready to meet the others leaves its address there. The
agent of rank 0 sees from these when nobody is missing and tells its worker, which tells all
others with its next step's gradients: they leave for the next world together, and the stand-still
is that of a world that forms.

When somebody will not come (its agent says so, or `hold_s` is over), rank 0's worker is told too:
all agents ask anew. A failure meanwhile needs nothing more: whoever lost its world enters the next
one at once, with the answer that its agent has.
"""

import os
import threading
import time
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Protocol

from elastic.channel import Answered, Message, NextWorldReady

POLL_S = 0.02
_STAYS = "/elastic/stays."
_SIZE = "/elastic/size"
_ADDRESS = "/global/rank_"  # what Gloo puts first


class Store(Protocol):
    """What is needed of the launcher's rendezvous (see `rendezvous.Rendezvous`)."""

    def ask(self) -> tuple[int, int] | None: ...

    def abandon(self) -> None: ...

    def abandoned(self) -> bool: ...

    def put(self, path: str, value: bytes) -> None: ...

    def get(self, path: str) -> bytes | None: ...


@dataclass(frozen=True, slots=True)
class _Order:
    generation: int
    leads: bool


class Ahead:
    """Asks for one slot, in a thread of its own.

    Args:
        store: the launcher's rendezvous.
        hold_s: how long newcomers may take to appear.
    """

    def __init__(self, store: Store, hold_s: float) -> None:
        self._store = store
        self._hold_s = hold_s
        self._orders: SimpleQueue[_Order] = SimpleQueue()
        self._news: SimpleQueue[Message] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self.fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)

    def ask(self, generation: int, *, leads: bool) -> None:
        """Ask for the next world; if that has been done, let it go and ask for the one after.

        Args:
            generation: of the world that trains.
            leads: this slot's worker is its rank 0.
        """
        self._orders.put(_Order(generation, leads))
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="ahead", daemon=True)
            self._thread.start()

    def awaited(self) -> bool:
        """Tell whether a world that trains has asked for the one that this slot was started for."""
        try:
            return self._store.get(_SIZE) is not None
        except OSError:
            return False

    def news(self) -> list[Message]:
        """Return what the worker must hear; to be called when `fd` is readable."""
        try:
            os.eventfd_read(self.fd)
        except BlockingIOError:
            return []
        found = []
        while True:
            try:
                found.append(self._news.get_nowait())
            except Empty:
                return found

    def _tell(self, message: Message) -> None:
        self._news.put(message)
        os.eventfd_write(self.fd, 1)

    def _work(self) -> None:
        while True:
            order = self._orders.get()
            try:
                self._carry_out(order)
            except OSError:
                continue  # the launcher is gone, and whoever looks after this slot will notice

    def _carry_out(self, order: _Order) -> None:
        self._store.abandon()
        place = self._store.ask()
        if place is None:
            return
        self._tell(Answered(order.generation))
        rank, size = place
        if rank >= 0:
            self._store.put(_SIZE, str(size).encode())
            self._store.put(f"{_STAYS}{rank}", b"1")
        if order.leads:
            complete = self._all_are_there()
            if complete is not None:
                self._tell(NextWorldReady(order.generation, late=not complete))

    def _all_are_there(self) -> bool | None:
        """Wait for the members of the next world; False if they will not all come, None if that matters no more."""
        deadline = time.monotonic() + self._hold_s
        missing: list[int] | None = None
        while self._orders.empty():
            if time.monotonic() > deadline or self._store.abandoned():
                return False
            if missing is None and (size := self._store.get(_SIZE)) is not None:
                missing = list(range(int(size)))
            if missing is not None:
                missing = [rank for rank in missing if not self._is_there(rank)]
                if not missing:
                    return True
            time.sleep(POLL_S)
        return None

    def _is_there(self, rank: int) -> bool:
        return any(self._store.get(f"{mark}{rank}") is not None for mark in (_STAYS, _ADDRESS))
