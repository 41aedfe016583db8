"""A slot's thread of the Ray launcher, over scripted actors that really connect."""

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from queue import SimpleQueue

import pytest

from elastic.agent.policy import Budget
from elastic.channel import Channel, Drain
from elastic.errors import ExitCode
from elastic.launch.ray.link import Begin, Ended, Facts, Hello, Links, Printed, Started, join
from elastic.launch.ray.slots import Slots, Times

PATIENCE_S = 20.0


@dataclass(frozen=True, slots=True)
class AssignedSlot:
    hostname: str = "alpha"
    rank: int = 1
    local_rank: int = 0
    local_size: int = 1


@dataclass
class ScriptedActor:
    """An actor that Ray was asked for; the test lets it come, or not."""

    links: Links
    key: str
    replaces: int
    why: str | None = None
    killed: threading.Event = field(default_factory=threading.Event)
    channel: Channel | None = None

    def failure(self) -> str | None:
        return self.why

    def kill(self) -> None:
        if self.channel is not None:
            self.channel.close()
        self.killed.set()

    def come(self, agent: int = 77) -> Channel:
        """Say hello, and start the agent when told to."""
        channel = self.channel = join(self.links.at, Hello(self.links.token, self.key, 42))
        channel.sock.settimeout(PATIENCE_S)
        assert channel.expect(Begin) == Begin({"HOROVOD_RANK": "1"})
        channel.send(Started(agent))
        return channel


class ScriptedCluster:
    """Grants actors, and notes what it hears."""

    def __init__(self, links: Links) -> None:
        self._links = links
        self.actors: SimpleQueue[ScriptedActor] = SimpleQueue()
        self.heard: list[str] = []
        self.lines: list[str] = []
        self.answering = True
        self.counted = False
        self.draining = False

    def place(self, slot: AssignedSlot, key: str, replaces: int) -> ScriptedActor:
        actor = ScriptedActor(self._links, key, replaces)
        self.actors.put(actor)
        return actor

    def env(self, slot: AssignedSlot, gpus: Sequence[str], *, again: bool) -> dict[str, str]:
        self.heard += ["again"] if again else []
        return {"HOROVOD_RANK": str(slot.rank)}

    def node_answers(self, host: str) -> bool:
        return self.answering

    def is_draining(self, host: str) -> bool:
        return self.draining

    def is_counted(self, host: str, local_rank: int) -> bool:
        return self.counted

    def took(self, slot: AssignedSlot) -> None:
        self.heard.append("took")

    def settled(self, slot: AssignedSlot) -> None:
        self.heard.append("settled")

    def left(self, slot: AssignedSlot) -> None:
        self.heard.append("left")

    def lost(self, host: str) -> None:
        self.heard.append("node lost")

    def no_room(self, slot: AssignedSlot) -> None:
        self.heard.append("no room")

    def mark_round(self) -> None:
        self.heard.append("marked")

    def printed(self, slot: AssignedSlot, line: str, stream: str) -> None:
        self.lines.append(f"{stream}: {line}")

    def facts(self, lines: Sequence[str]) -> None:
        self.lines.extend(lines)

    def result(self, slot: AssignedSlot, result: str) -> None:
        self.lines.append(result)


class Case:
    """One slot that is looked after in a thread, as Horovod's driver does it."""

    def __init__(self, links: Links, times: Times, limit: int) -> None:
        self.cluster = ScriptedCluster(links)
        self.over = threading.Event()
        self._code: int | None = None
        slots = Slots(self.cluster, links, times, Budget(limit, 60.0))

        def run() -> None:
            self._code, _ = slots.look_after(AssignedSlot(), [self.over])

        self._thread = threading.Thread(target=run, daemon=True)
        self._thread.start()

    def next_actor(self) -> ScriptedActor:
        return self.cluster.actors.get(timeout=PATIENCE_S)

    def code(self) -> int | None:
        """Return the exit code that Horovod's driver is told."""
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()
        return self._code


@pytest.fixture
def start() -> Iterator[Callable[..., Case]]:
    links = Links("127.0.0.1")
    links.open()
    yield lambda times=Times(PATIENCE_S, PATIENCE_S), limit=2: Case(links, times, limit)  # noqa: B008
    links.close()


def test_an_agents_exit_code_is_the_slots(start: Callable[..., Case]) -> None:
    case = start()
    actor = case.next_actor()
    channel = actor.come()
    channel.send(Printed("a line", "stderr"))
    channel.send(Facts(["a fact"]))
    channel.send(Ended(3, "a result"))
    assert case.code() == 3
    assert case.cluster.lines == ["stderr: a line", "a fact", "a result"]
    assert case.cluster.heard == ["took", "settled", "left"]
    assert actor.killed.is_set()


def test_a_lost_actor_is_replaced_and_the_driver_hears_nothing(start: Callable[..., Case]) -> None:
    case = start()
    case.next_actor().come(agent=77).close()
    second = case.next_actor()
    assert second.replaces == 77
    second.come().send(Ended(0))
    assert case.code() == 0
    assert case.cluster.heard == ["took", "settled", "again", "settled", "left"]


def test_an_agent_that_was_killed_is_replaced_too(start: Callable[..., Case]) -> None:
    case = start()
    case.next_actor().come().send(Ended(-9))
    case.next_actor().come().send(Ended(0))
    assert case.code() == 0
    assert "again" in case.cluster.heard


def test_an_actor_that_ray_cannot_start_is_tried_again_within_the_budget(start: Callable[..., Case]) -> None:
    case = start(limit=1)
    case.next_actor().why = "creation failed"
    case.next_actor().why = "creation failed"
    assert case.code() == ExitCode.SLOT_LOST
    assert case.cluster.heard == ["took", "marked", "left"]


def test_an_actor_lost_with_its_node_fails_the_slot_at_once(start: Callable[..., Case]) -> None:
    case = start()
    channel = case.next_actor().come()
    case.cluster.answering = False
    channel.close()
    assert case.code() == ExitCode.SLOT_LOST
    assert case.cluster.heard[-3:] == ["node lost", "marked", "left"]


def test_an_actor_lost_while_the_driver_counts_on_it_fails_the_slot(start: Callable[..., Case]) -> None:
    case = start()
    channel = case.next_actor().come()
    case.cluster.counted = True
    channel.close()
    assert case.code() == ExitCode.SLOT_LOST
    assert "marked" in case.cluster.heard


def test_an_actor_that_finds_no_room_is_no_fault_of_its_host(start: Callable[..., Case]) -> None:
    case = start(times=Times(0.2, PATIENCE_S))
    actor = case.next_actor()
    assert case.code() == ExitCode.SLOT_LOST
    assert "no room" in case.cluster.heard
    assert actor.killed.is_set()


def test_a_slow_start_is_waited_for(start: Callable[..., Case]) -> None:
    case = start(times=Times(PATIENCE_S, PATIENCE_S))
    actor = case.next_actor()
    assert not actor.killed.wait(1.0)
    actor.come().send(Ended(0))
    assert case.code() == 0


def test_what_is_over_drains_its_agent_first(start: Callable[..., Case]) -> None:
    case = start()
    actor = case.next_actor()
    channel = actor.come()
    case.over.set()
    assert channel.expect(Drain) is not None
    assert not actor.killed.is_set()
    channel.send(Ended(ExitCode.TERMINATED))
    assert case.code() == ExitCode.TERMINATED


def test_an_agent_that_stays_on_a_draining_node_is_told_to_leave(start: Callable[..., Case]) -> None:
    case = start()
    channel = case.next_actor().come()
    case.cluster.draining = True
    assert channel.expect(Drain) is not None
    channel.send(Ended(ExitCode.TERMINATED))
    assert case.code() == ExitCode.TERMINATED


def test_what_is_over_before_its_actor_came_ends_at_once(start: Callable[..., Case]) -> None:
    case = start()
    actor = case.next_actor()
    case.over.set()
    assert case.code() == ExitCode.SLOT_LOST
    assert actor.killed.is_set()
