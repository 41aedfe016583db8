"""A job in bad weather: hosts come and go, workers and agents die, under Horovod's own elastic driver.

Workers are threads that decide as real ones do (see `worker.training`) and take steps together; what
agents have to do with the launcher is the real thing.
"""

import itertools
import queue
import random
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from elastic.agent.ahead import GoalReached
from elastic.channel import AskAhead, GoOver, Message, NextWorldReady
from elastic.worker.next_world import HostNews, NextWorld
from tests.contract import cluster as cluster_module
from tests.contract.cluster import LOOK_S, NOBODY_MET, REMOVED, Cluster, Place, Slot

STEP_S = 0.002
REMOVED_HOSTS = 1  # of Horovod's HostUpdateResult
GOAL, SLOT_LOST, KILLED = 0, 75, 137


class Killed(Exception):
    """The worker is no more."""


class Lost(Exception):
    """A peer of the worker is no more."""


@dataclass
class Worlds:
    """The worlds that workers meet in; each is named by its members' addresses."""

    changed: threading.Condition = field(default_factory=threading.Condition)
    dead: set[str] = field(default_factory=set)
    steps: dict[tuple[Any, ...], dict[str, Sequence[float]]] = field(default_factory=dict)

    def step(self, world: tuple[str, ...], me: str, number: int, raised: Sequence[float]) -> list[float]:
        """Do one step with all members; return the sums of what they raised."""
        with self.changed:
            row = self.steps.setdefault((world, number), {})
            row[me] = raised
            self.changed.notify_all()
            if not self.changed.wait_for(lambda: len(row) == len(world) or self.dead & set(world), 30.0):
                raise AssertionError(f"{me} waits for its peers in {world}, step {number}: {sorted(row)} are there")
            if me in self.dead:
                raise Killed
            if len(row) < len(world):
                raise Lost
            return [sum(column) for column in zip(*row.values(), strict=True)]

    def leave(self, me: str) -> None:
        """Leave a world: whoever goes on in it has lost it."""
        with self.changed:
            self.dead.add(me)
            self.changed.notify_all()


class Life:
    """A slot's agent and its workers, one after the other."""

    def __init__(self, storm: "Storm", slot: Slot) -> None:
        self.storm = storm
        self.slot = slot
        self.address = ""
        self.world: tuple[str, ...] = ()
        self.step = 0
        self.generation = 0
        self.news = HostNews()
        self.to_kill = threading.Event()
        self.agent_killed = False
        self.draining = False
        self.gone: int | None = None
        self.doing = "starting"
        self._next_world = NextWorld(self._tell)
        self._drained = False
        self._thread = threading.Thread(target=self._live, daemon=True)
        self._thread.start()

    def __repr__(self) -> str:
        proxy = self.slot.proxy
        state = f"asking={proxy.asking} due={proxy.due} removed={proxy.removed} there={proxy._there}"
        return f"{self.slot.name} gen={self.generation} {self.doing} {state} exit={self.gone} size={len(self.world)}"

    def kill(self) -> None:
        """Kill the worker."""
        self.to_kill.set()
        self.storm.worlds.leave(self.address)
        self.slot.hang_up()

    def kill_agent(self) -> None:
        self.agent_killed = True
        self.kill()

    def drain(self) -> None:
        """Let the agent get SIGTERM."""
        self.draining = True
        self.slot.ahead.leave()

    def notify_hosts_updated(self, timestamp: int, result: int) -> None:
        """What the driver calls on the client of rank 0."""
        self.storm.note(f"news {result!r} for {self!r}")
        if self.to_kill.is_set() or not self.world:
            raise ConnectionError
        self.news.hear(bool(int(result) & REMOVED_HOSTS))

    def _tell(self, message: Message) -> None:
        match message:
            case AskAhead(generation, attempt) if not self.draining:
                self.slot.ahead.ask(generation, attempt)
            case GoOver():
                self.slot.proxy.open_round()

    def _live(self) -> None:
        try:
            code = self._look_after()
        except Exception as error:  # noqa: BLE001
            self.storm.failures.append(f"{self.slot.name}: {error!r}")
            code = 1
        self.doing, self.gone = "ended", code
        self.slot.end(code)

    def _look_after(self) -> int:
        """Run workers until the slot ends; return the exit code."""
        proxy = self.slot.proxy
        while True:
            end = self._one_worker()
            if end != GOAL:
                self.storm.worlds.leave(self.address)
            self.doing = "between workers"
            self.world = ()
            if self.agent_killed:
                self.slot.ahead.rest()
                return KILLED
            over = end != GOAL and self._entering and proxy.is_over()
            proxy.ended()
            if over:
                end = GOAL
            if end is not None:
                while (end == GOAL and self.slot.ahead.asks) or not proxy.retire(goal=end == GOAL):
                    self.doing = "lingering"
                    time.sleep(LOOK_S)
                return end
            if proxy.removed:
                proxy.retire(goal=False)
                return SLOT_LOST

    def _one_worker(self) -> int | None:
        """Return the code the slot is to end with, None to start another worker."""
        self.slot.hung_up = False
        self.to_kill.clear()
        self.address = f"{self.slot.name}#{next(self.storm.numbers)}"
        self.news, self._next_world = HostNews(), NextWorld(self._tell)
        self._entering = False
        self.generation, self.step = 0, 0
        try:
            if self.storm.chance.random() < 0.6 and (end := self._come_up()) is not None:
                return end
            self.slot.ahead.rest()
            return self._work()
        except Killed:
            self.storm.worlds.leave(self.address)
            return None

    def _come_up(self) -> int | None:
        self.doing = "coming up"
        self.slot.ahead.watch()
        until = time.monotonic() + self.storm.chance.uniform(0.0, 0.5)
        over = False
        while time.monotonic() < until or over:
            if self.to_kill.is_set():
                raise Killed
            over = over or GoalReached() in self.slot.ahead.news()
            if self.slot.proxy.removed:
                return SLOT_LOST
            if over and not self.slot.proxy.asking:
                return GOAL
            time.sleep(LOOK_S)
        return None

    def _work(self) -> int | None:
        entry = self.slot.proxy.enter()
        if entry == "over":
            return GOAL
        while True:
            self._entering = True
            place = self._join(entry)
            if place == REMOVED:
                return SLOT_LOST
            if place == NOBODY_MET:
                return None  # Horovod's core aborts
            self.world = self.slot.world
            try:
                return self._train(place)
            except Lost:
                if not self._next_world.asked:
                    self.news.settle(self.news.told)
            except GoneOver:
                if not self._next_world.asked:
                    self.news.settle(self.news.told)
            self._next_world.forget()
            self.storm.worlds.leave(self.address)
            self.address = f"{self.slot.name}#{next(self.storm.numbers)}"
            entry = "rejoin"

    def _join(self, entry: str) -> Place:
        self.doing = f"joining ({entry})"
        self.slot.proxy.entering()
        try:
            place = self.slot.join(entry, self.address)
        except (OSError, AssertionError, ValueError):
            place = NOBODY_MET  # a connection that was closed
        if self.to_kill.is_set():
            raise Killed
        return place

    def _train(self, place: Place) -> int | None:
        worlds, rank = self.storm.worlds, place[0]
        self.doing = "syncing"
        rows = [
            worlds.step(self.world, self.address, -1, [self.generation if i == rank else 0 for i in range(place[1])])
        ]
        self.generation = int(max(rows[0])) + 1
        rows = [worlds.step(self.world, self.address, -2, [self.step if i == rank else 0 for i in range(place[1])])]
        self.step = int(max(rows[0]))
        self._entering = False
        self.slot.proxy.entered()
        self.doing = "training"
        for number in itertools.count():
            if self.to_kill.is_set():
                raise Killed
            for message in self.slot.ahead.news():
                if isinstance(message, NextWorldReady):
                    self._next_world.hear(message)
            told = self.news.told
            asked = self._next_world.asked
            changed = self._next_world.late or (self.news.open and (self.news.removed or not asked))
            time.sleep(self.storm.chance.uniform(0, 2 * STEP_S))
            raised = [
                float(changed),
                float(self._next_world.ready),
                float(self.draining),
                float(self.storm.goal.is_set()),
            ]
            seen = worlds.step(self.world, self.address, number, raised)
            self.step += 1
            if seen[2]:
                if self.draining:
                    worlds.leave(self.address)
                    return SLOT_LOST
                raise GoneOver
            if seen[1]:
                self._next_world.go_over(self.generation)
                raise GoneOver
            if seen[0]:
                self.news.settle(told)
                self._next_world.ask(self.generation)
            if seen[3] == len(self.world):
                self.doing = "at the goal"
                worlds.step(self.world, self.address, -3, [1.0])
                time.sleep(self.storm.chance.uniform(0, 0.05))
                return GOAL
        raise AssertionError


class GoneOver(Exception):
    """All leave this world together."""


class Storm:
    """Everything at once; `chance` decides."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
        self.chance = random.Random(seed)
        self.worlds = Worlds()
        self.numbers = itertools.count()
        self.lives: list[Life] = []
        self.failures: list[str] = []
        self.goal = threading.Event()
        self.log: list[str] = []
        self.began = time.monotonic()
        storm = self

        class Watched(Cluster):
            def _run(self, info: Any, events: Any) -> tuple[int, float]:
                slot = Slot(info, self._port, self.hold_s)
                self.slots.append(slot)
                life = Life(storm, slot)
                storm.lives.append(life)
                while True:
                    try:
                        return slot.exits.get(timeout=0.02), time.time()
                    except queue.Empty:
                        if any(event.is_set() for event in events):
                            if life.doing == "lingering":  # a signal does not take the goal back
                                return GOAL, time.time()
                            storm.note(f"{slot.name} is ended by the launcher while {life!r}")
                            return 143, time.time()

        self.hosts = {"a": 1, "b": 1}
        self.cluster = Watched.__new__(Watched)
        monkeypatch.setattr(cluster_module.ElasticDriver, "get_worker_client", self._client)
        self.cluster.__init__(monkeypatch, 5.0, **self.hosts)  # type: ignore[misc]

    def note(self, what: str) -> None:
        self.log.append(f"{time.monotonic() - self.began:7.3f} {what}")

    def _client(self, info: Any) -> Life | None:
        name = f"{info.hostname}:{info.local_rank}"
        alive = [life for life in self.lives if life.slot.name == name and life.gone is None]
        if not alive:
            self.note(f"no news for {name}, which has no agent")
        return alive[-1] if alive else None

    def living(self) -> list[Life]:
        return [life for life in self.lives if life.gone is None]

    def is_calm(self) -> bool:
        """Tell whether all workers train in one world."""
        living = self.living()
        return len({life.world for life in living}) == 1 and all(life.doing == "training" for life in living)

    def trains(self, hosts: set[str]) -> bool:
        """Tell whether a world of exactly these hosts trains."""
        living = self.living()
        return (
            {life.slot.info.hostname for life in living} == hosts
            and len({life.world for life in living}) == 1
            and len(living[0].world) == len(hosts)
            and all(life.doing == "training" and not life.slot.proxy.asking for life in living)
        )

    def story(self) -> str:
        return "\n".join([*self.log, *map(repr, self.lives), *self.failures])

    def rage(self, seconds: float) -> None:
        """Let things happen."""
        until = time.monotonic() + seconds
        anchor = self.chance.choice(["a", "b"])
        lost = False
        while time.monotonic() < until:
            time.sleep(self.chance.choice([0.0, 0.01, 0.05, 0.2, 0.5]))
            dice = self.chance.random()
            if dice < 0.6:
                self.change(anchor)
            elif dice < 0.9:
                life = self.chance.choice(self.living())
                self.note(f"kill {life!r}")
                life.kill()
            elif not lost and (others := [x for x in self.living() if x.slot.info.hostname != anchor and x.world]):
                lost = True
                life = self.chance.choice(others)
                if dice < 0.95:
                    self.note(f"kill the agent of {life!r}")
                    life.kill_agent()
                else:
                    self.note(f"drain {life!r}")
                    life.drain()

    def change(self, anchor: str) -> None:
        """Add or take away a host; one that was taken away comes back only when its agent has ended."""
        living = {life.slot.info.hostname for life in self.living()}
        host = self.chance.choice([h for h in "abcd" if h != anchor])
        if host in self.hosts:
            del self.hosts[host]
        elif host not in living:
            self.hosts[host] = 1
        else:
            return
        self.note(f"hosts {sorted(self.hosts)}")
        self.cluster.change(**self.hosts)

    def expected(self) -> set[str]:
        blacklisted = self.cluster.driver._host_manager.is_blacklisted
        return {host for host in self.hosts if not blacklisted(host)}
