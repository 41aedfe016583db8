"""Horovod's own elastic driver over hosts that a test names, with agents' rendezvous and no processes in its slots.

What a worker does there is a method call: it goes to its world by showing up and looking for its
peers, through its agent's proxy, as Horovod's core does.
"""

import contextlib
import queue
import select
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
from horovod.runner.common.util.hosts import SlotInfo
from horovod.runner.elastic import driver as driver_module
from horovod.runner.elastic.discovery import HostDiscovery
from horovod.runner.elastic.driver import ElasticDriver
from horovod.runner.elastic.rendezvous import create_rendezvous_handler
from horovod.runner.http.http_server import RendezvousServer

from elastic.agent.ahead import Ahead, GoalReached
from elastic.agent.announcements import Announcements
from elastic.agent.rendezvous import Rendezvous
from elastic.channel import HostsAnnounced, NextWorldReady
from tests.contract.launchers import DEADLINE_S, LONG_S, Client

LOOK_S = 0.01
REMOVED = (-1, -1)
NOBODY_MET = (-2, -2)
OVER = (-3, -3)
Place = tuple[int, int]


class Hosts(HostDiscovery):  # type: ignore[misc]
    """What discovery finds."""

    def __init__(self, **slots: int) -> None:
        self.slots = slots

    def find_available_hosts_and_slots(self) -> dict[str, int]:
        return dict(self.slots)


class Slot:
    """A slot that the driver has started: its agent's way to the launcher, and its worker."""

    def __init__(self, info: SlotInfo, port: int, hold_s: float) -> None:
        self.info = info
        self.name = f"{info.hostname}:{info.local_rank}"
        self.proxy = Rendezvous("127.0.0.1", port, LONG_S, self.name)
        self.proxy.open()
        self.ahead = Ahead(self.proxy, hold_s)
        self.announcements = Announcements(self.proxy.register, self.proxy.own_address)
        self.announcements.open()
        self.exits: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._asked = threading.Event()
        self._client: Client | None = None
        self.hung_up = False
        self.world: tuple[str, ...] = ()
        self._pool = ThreadPoolExecutor(2)

    def go(self) -> "Future[Place]":
        """Let the worker, whose last world is lost or that has none, join one; its rank and size when all have met."""
        self.proxy.entering()
        return self._pool.submit(self._go)

    def go_over(self) -> "Future[Place]":
        """Let the worker leave its world for the next, as all have agreed."""
        self.proxy.open_round()
        return self.go()

    def go_and_ask(self) -> "Future[Place]":
        """Let the worker join a world that it must ask for; return once its agent has got the question."""
        going = self.go()
        assert self._asked.wait(DEADLINE_S)
        self._call("GET", "/other/key")  # a whole round trip later
        return going

    def news(self, within_s: float = DEADLINE_S) -> list[NextWorldReady | GoalReached]:
        """Wait for what the agent is told."""
        assert select.select([self.ahead.fd], [], [], within_s)[0], f"nothing was told to {self.name}"
        return self.ahead.news()

    def announced(self, within_s: float = DEADLINE_S) -> list[HostsAnnounced]:
        """Wait for what the launcher announces to this slot."""
        assert select.select([self.announcements.fd], [], [], within_s)[0], f"nothing was announced to {self.name}"
        return self.announcements.news()

    def hears_nothing(self) -> bool:
        return not select.select([self.ahead.fd], [], [], 0)[0]

    def end(self, code: int) -> None:
        """End the agent, as the launcher sees it."""
        self.exits.put(code)

    def reach_goal(self) -> None:
        """Let the worker finish, and the agent end as soon as that counts."""
        self.proxy.ended()
        wait_for(lambda: self.proxy.retire(goal=True))
        self.end(0)

    def register(self, value: str) -> int:
        """Let the worker register where it hears of changes; return the answer's status."""
        return self._call("PUT", f"/worker_addresses/{self.name}", value.encode())[0]

    def die(self) -> None:
        """Let the agent be killed, so that nobody speaks for the slot."""
        self.ahead.rest()
        self.end(137)

    def close(self) -> None:
        self.ahead.rest()
        self.proxy._server.close()
        self.announcements.close()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _call(self, method: str, target: str, body: bytes = b"") -> tuple[int, bytes]:
        env = self.proxy.env
        address = (env["HOROVOD_GLOO_RENDEZVOUS_ADDR"], int(env["HOROVOD_GLOO_RENDEZVOUS_PORT"]))
        if self.hung_up:
            raise ConnectionError("the worker is dead")
        client = self._client = Client(address, method, target, body)
        client.sock.settimeout(DEADLINE_S)
        client.send()
        if target.startswith("/rank_and_size/"):
            self._asked.set()
        response = client.response()
        return response.status, response.body

    def _go(self) -> Place:
        entry = self.proxy.enter()
        place = OVER if entry == "over" else self.join(entry, self.name)
        if place == NOBODY_MET:
            self.proxy.ended()  # Horovod's core aborts
        elif place[0] >= 0:
            self.proxy.entered()
        return place

    def join(self, entry: str, address: str) -> Place:
        """Do what Horovod's core does to find its peers; `world` are their addresses."""
        rank, size = self.info.rank, self.info.size
        if entry == "rejoin":
            status, body = self._call("GET", f"/rank_and_size/{self.name}")
            assert status == 200, status
            rank, size = (int(word) for word in body.split(b",")[:2])
            if rank < 0:
                return REMOVED
        self._call("PUT", f"/global/rank_{rank}", address.encode())
        found = []
        for peer in range(size):
            status, body = self._call("GET", f"/global/rank_{peer}")
            if status != 200:
                return NOBODY_MET
            found.append(body.decode())
        self.world = tuple(found)
        return rank, size

    def hang_up(self) -> None:
        """Close the connection that a worker that is killed has open, and let it open no other."""
        self.hung_up = True
        if self._client is not None:
            with contextlib.suppress(OSError):
                self._client.sock.shutdown(socket.SHUT_RDWR)  # who waits for an answer has none now, and closes it


class Cluster:
    """A job under Horovod's driver; `hold_s` is how long its agents let a newcomer take."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, hold_s: float, **hosts: int) -> None:
        monkeypatch.setattr(driver_module, "DISCOVER_HOSTS_FREQUENCY_SECS", LOOK_S)
        self.hold_s = hold_s
        self.slots: list[Slot] = []
        self._hosts = Hosts(**hosts)
        self._server = RendezvousServer()
        self.driver = ElasticDriver(self._server, self._hosts, min_num_proc=1, max_num_proc=8, timeout=30)
        self._port = self._server.start(create_rendezvous_handler(self.driver))
        self.driver.start(sum(hosts.values()), self._run)

    def change(self, **hosts: int) -> None:
        """Change the set of hosts; return when the driver has seen it."""
        self._hosts.slots = hosts
        wait_for(lambda: self.driver._host_manager.current_hosts.host_slots == hosts)

    def slot(self, name: str, number: int = 1) -> Slot:
        """Return the slot's agent, the `number`-th that the driver has started there."""

        def found() -> list[Slot]:
            return [s for s in self.slots if s.name == name]

        wait_for(lambda: len(found()) >= number)
        return found()[number - 1]

    def meet(self, *slots: Slot) -> list[Place]:
        """Let workers go to their world at once; return where they are."""
        return [going.result(DEADLINE_S) for going in [slot.go_over() for slot in slots]]

    def results(self) -> dict[str, int]:
        """Wait for the end of the job; return each slot's exit code, as the launcher judges it."""
        with ThreadPoolExecutor(1) as pool:
            results = pool.submit(self.driver.get_results).result(DEADLINE_S)
        assert results.error_message is None
        return {name: code for name, (code, _) in results.worker_results.items()}

    def close(self) -> None:
        for slot in self.slots:
            slot.end(1)
            slot.close()
        stopping = threading.Thread(target=self.driver.stop)
        stopping.start()
        while stopping.is_alive():  # its server looks up twice a second, or when somebody comes
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", self._port), timeout=0.05).close()
            stopping.join(0.02)
        self._server._httpd.server_close()

    def _run(self, info: SlotInfo, events: list[threading.Event]) -> tuple[int, float]:
        slot = Slot(info, self._port, self.hold_s)
        self.slots.append(slot)
        while not any(event.is_set() for event in events):
            try:
                return slot.exits.get(timeout=0.05), time.time()
            except queue.Empty:
                continue
        return 143, time.time()


def wait_for(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(LOOK_S)
