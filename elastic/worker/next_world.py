"""What this worker knows of the world that is to follow, while it trains in the present one.

The other side of `agent.ahead`: the training loop asks through `ask`, the agent's answers come in
on the thread that listens to it.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass

from elastic.channel import Answered, AskAhead, Message, NextWorldReady

ANSWER_S = 5.0


class NextWorld:
    """One a process; forgets at each change of worlds.

    Args:
        tell: sends the agent a message; None without an agent.
    """

    def __init__(self, tell: Callable[[Message], None] | None = None) -> None:
        self._tell = tell
        self._generation = 0
        self._answered = threading.Event()
        self.asked = False
        self.ready = False
        self.late = False

    def ask(self, generation: int) -> bool:
        """Have the next world made while `generation` trains; False when there is no agent to do so."""
        if self._tell is None:
            return False
        self.forget()
        self.asked, self._generation = True, generation
        self._tell(AskAhead(generation))
        return True

    def hear(self, message: Message) -> None:
        """Take what the agent says; what concerns another generation is dropped."""
        match message:
            case Answered(generation) if generation == self._generation:
                self._answered.set()
            case NextWorldReady(generation, late) if generation == self._generation:
                self.ready, self.late = not late, late

    def settle(self) -> None:
        """Wait until the launcher has answered what was asked: a slot that ends must not have a question open."""
        if self.asked:
            self._answered.wait(ANSWER_S)

    def forget(self) -> None:
        """The present world ends."""
        self._generation = 0
        self.asked = self.ready = self.late = False
        self._answered.clear()


@dataclass(slots=True)
class HostNews:
    """The launcher's news of changed hosts: counted where they come in, settled by the training loop.

    Attributes:
        told: how often there was news.
        settled: how much of it the world in training, or the one being made, takes into account.
    """

    told: int = 0
    settled: int = 0
    _newest_removal: int = 0

    def hear(self, removed: bool) -> None:
        """Note news (on another thread than `settle`); `removed`: hosts were taken away."""
        number = self.told + 1
        if removed:
            self._newest_removal = number
        self.told = number

    @property
    def open(self) -> bool:
        """Whether there is unsettled news."""
        return self.told > self.settled

    @property
    def removed(self) -> bool:
        """Whether unsettled news took hosts away."""
        return self._newest_removal > self.settled

    def settle(self, told: int) -> None:
        """Note that the first `told` pieces of news are taken into account."""
        self.settled = max(self.settled, told)
