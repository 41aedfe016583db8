"""What this worker knows of the world that is to follow, while it trains in the present one.

The other side of `agent.ahead`: the training loop asks through `ask`, the agent's answers come in
on the thread that listens to it.
"""

from collections.abc import Callable
from dataclasses import dataclass

from elastic.channel import AskAhead, GoOver, Message, NextWorldReady


class NextWorld:
    """One a process; forgets at each change of worlds.

    Args:
        tell: sends the agent a message; None without an agent.
    """

    def __init__(self, tell: Callable[[Message], None] | None = None) -> None:
        self._tell = tell
        self._asked: AskAhead | None = None
        self._heard: NextWorldReady | None = None

    @property
    def asked(self) -> bool:
        """Whether the next world is being made."""
        return self._asked is not None

    @property
    def ready(self) -> bool:
        """Whether all its members are there."""
        heard = self._answer()
        return heard is not None and not heard.late

    @property
    def late(self) -> bool:
        """Whether somebody that it waits for will not come."""
        heard = self._answer()
        return heard is not None and heard.late

    def ask(self, generation: int) -> bool:
        """Have the next world made while `generation` trains; False when there is no agent to do so."""
        if self._tell is None:
            return False
        again = self._asked.attempt if self._asked is not None else 0
        self._asked = AskAhead(generation, again + 1)
        self._tell(self._asked)
        return True

    def hear(self, message: Message) -> None:
        """Take what the agent says, on the thread that listens to it."""
        if isinstance(message, NextWorldReady):
            self._heard = message

    def go_over(self, generation: int) -> None:
        """Let the agent know that `generation` ends by agreement, not by a loss."""
        if self._tell is not None:
            self._tell(GoOver(generation))

    def forget(self) -> None:
        """The present world ends."""
        self._asked = None

    def _answer(self) -> NextWorldReady | None:
        """Return what was heard of the world that was asked for last; of any other it is no news."""
        asked, heard = self._asked, self._heard
        if asked is None or heard is None:
            return None
        return heard if (heard.generation, heard.attempt) == (asked.generation, asked.attempt) else None


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
