"""What the driver does for each slot, in a thread of Horovod's driver: from placing its actor to its end.

An actor that is lost while its node answers is replaced in its slot, and the driver hears nothing:
to it, failing means to ban the whole node. The new agent waits for the old one to leave and enters
as one that takes a dead one's place.
"""

import math
import queue
import select
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Protocol

from elastic.agent.policy import Budget
from elastic.channel import Channel, Drain, Message
from elastic.errors import ExitCode
from elastic.launch.ray.link import Begin, Ended, Facts, Hello, Links, Printed, Started
from elastic.launch.ray.policy import Lost, Replace, after_loss

POLL_S = 0.1
LEAVES_BY_ITSELF_S = 3.0  # the time for the worker of a node that is no host any more to go over without its slot
AFTER_DRAIN_S = 10.0  # beyond `drain_s`, before the actor is killed


class Event(Protocol):
    """What Horovod sets when the job, or a host's part of it, is over."""

    def is_set(self) -> bool: ...


class Assigned(Protocol):
    """A slot as Horovod's driver assigns it."""

    hostname: str
    rank: int
    local_rank: int
    local_size: int


class Placed(Protocol):
    """An actor that has been asked for."""

    def failure(self) -> str | None:
        """Return why it will not come, or that it has ended; None while neither is known."""

    def kill(self) -> None:
        """End it at once, or take the request back."""


class Cluster(Protocol):
    """What a slot needs of the cluster, the driver and the job."""

    def place(self, slot: Assigned, key: str, replaces: int) -> Placed:
        """Ask for an actor on the slot's node that will say hello as `key`."""

    def env(self, slot: Assigned, gpus: Sequence[str], *, again: bool) -> dict[str, str]:
        """Return the environment of the slot's agent, which has these GPUs; `again`: the slot had one before."""

    def node_answers(self, host: str) -> bool: ...

    def is_draining(self, host: str) -> bool:
        """Tell whether the node is about to go."""

    def is_counted(self, host: str, local_rank: int) -> bool:
        """Tell whether Horovod's driver holds the slot for ready in a round that is not complete."""

    def took(self, slot: Assigned) -> None: ...

    def settled(self, slot: Assigned) -> None: ...

    def left(self, slot: Assigned) -> None: ...

    def lost(self, host: str) -> None: ...

    def no_room(self, slot: Assigned) -> None:
        """Hear that another job was faster; the slot's failure is none of its host."""

    def mark_round(self) -> None:
        """Let nobody wait for a slot that ends without its agent having said so."""

    def printed(self, slot: Assigned, line: str, stream: str) -> None: ...

    def facts(self, lines: Sequence[str]) -> None: ...

    def result(self, slot: Assigned, result: str) -> None: ...


@dataclass(frozen=True, slots=True)
class Exited:
    """An agent has said its exit code."""

    code: int


@dataclass(frozen=True, slots=True)
class Gone:
    """An actor went, or never came, without a word."""

    why: str
    no_room: bool = False


@dataclass(frozen=True, slots=True)
class Times:
    """How long things may take, in seconds."""

    start_s: float
    drain_s: float


class Slots:
    """Looks after slots; one call of `look_after` a slot, each in a thread of its own."""

    def __init__(
        self,
        cluster: Cluster,
        links: Links,
        times: Times,
        budget: Budget,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._cluster = cluster
        self._links = links
        self._times = times
        self._budget = budget
        self._now = now
        self._agents: dict[tuple[str, int], int] = {}
        self._numbers = count()  # of actors: a slot that was taken away may be given again before its agent has left

    def look_after(self, slot: Assigned, events: Sequence[Event]) -> tuple[int, float]:
        """Run a slot to its end; return its exit code and when it ended, as Horovod's driver wants it."""
        self._cluster.took(slot)
        try:
            return self._run(slot, events), time.time()
        finally:
            self._cluster.left(slot)

    def _run(self, slot: Assigned, events: Sequence[Event]) -> int:
        budget, replaces, where = self._budget, 0, f"{slot.hostname}[{slot.local_rank}]"
        for attempt in count():
            end = self._one_actor(slot, events, replaces, again=attempt > 0)
            if isinstance(end, Exited) and end.code >= 0:
                return end.code
            if isinstance(end, Exited):
                end = Gone(f"its agent was killed by signal {-end.code}")
            if end.no_room:
                _say(f"actor of {where}: {end.why}")
                self._cluster.no_room(slot)
                self._cluster.mark_round()
                return ExitCode.SLOT_LOST
            budget = budget.after(self._now())
            leaving = any(event.is_set() for event in events)
            lost = Lost(
                end.why,
                node_answers=self._cluster.node_answers(slot.hostname),
                leaving=leaving,
                counted=not leaving and self._cluster.is_counted(slot.hostname, slot.local_rank),
            )
            decision = after_loss(lost, budget)
            _say(f"actor of {where}: {decision.reason}")
            if not isinstance(decision, Replace):
                if decision.gone:
                    self._cluster.lost(slot.hostname)
                self._cluster.mark_round()
                return ExitCode.SLOT_LOST
            replaces = self._agents.get((slot.hostname, slot.local_rank), 0)
        raise AssertionError

    def _one_actor(self, slot: Assigned, events: Sequence[Event], replaces: int, *, again: bool) -> Exited | Gone:
        key = f"{slot.hostname}[{slot.local_rank}] #{next(self._numbers)}"
        arrival = self._links.expect(key)
        actor = self._cluster.place(slot, key, replaces)
        channel = None
        try:
            found = self._wait_for(arrival, actor, events)
            if isinstance(found, Gone):
                return found
            channel, hello = found
            channel.send(Begin(self._cluster.env(slot, hello.gpus, again=again)))
            self._cluster.settled(slot)
            return self._listen(slot, channel, events)
        finally:
            self._links.forget(key)
            actor.kill()
            if channel is not None:
                channel.close()

    def _wait_for(
        self, arrival: "queue.SimpleQueue[tuple[Channel, Hello]]", actor: Placed, events: Sequence[Event]
    ) -> tuple[Channel, Hello] | Gone:
        """Wait for an actor to say hello: starting one may take long, and is no failure."""
        deadline = self._now() + self._times.start_s
        while True:
            try:
                return arrival.get(timeout=POLL_S)
            except queue.Empty:
                pass
            if any(event.is_set() for event in events):
                return Gone("not needed any more")
            if (failure := actor.failure()) is not None:
                return Gone(failure)
            if self._now() > deadline:
                return Gone(f"not placed within {self._times.start_s:.0f} s", no_room=True)

    def _listen(self, slot: Assigned, channel: Channel, events: Sequence[Event]) -> Exited | Gone:
        """Hear an actor to its end."""
        kill_at: float | None = None
        draining = math.inf
        while True:
            if self._cluster.is_draining(slot.hostname):
                draining = min(draining, self._now())
            over = any(event.is_set() for event in events) or self._now() - draining > LEAVES_BY_ITSELF_S
            if kill_at is None and over:
                channel.send(Drain("the job or the node is about to go"))
                kill_at = self._now() + self._times.drain_s + AFTER_DRAIN_S
            if kill_at is not None and self._now() > kill_at:
                return Gone(f"did not leave within {self._times.drain_s + AFTER_DRAIN_S:.0f} s")
            if not select.select([channel.sock], [], [], POLL_S)[0]:
                continue
            messages = channel.receive()
            if messages is None:
                return Gone("lost")
            for message in messages:
                if isinstance(message, Ended):
                    if message.result:
                        self._cluster.result(slot, message.result)
                    return Exited(message.code)
                self._take(slot, message)

    def _take(self, slot: Assigned, message: Message) -> None:
        if isinstance(message, Printed):
            self._cluster.printed(slot, message.line, message.stream)
        elif isinstance(message, Facts):
            self._cluster.facts(message.lines)
        elif isinstance(message, Started):
            self._agents[slot.hostname, slot.local_rank] = message.agent_pid


def _say(text: str) -> None:
    print(f"elastic: {text}", file=sys.stderr, flush=True)
