"""Horovod's driver over real agents on this machine, which plays several hosts (private to `benchmarks.scale`)."""

import contextlib
import dataclasses
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import psutil
from horovod.runner.common.util.hosts import SlotInfo
from horovod.runner.elastic.driver import ElasticDriver
from horovod.runner.elastic.rendezvous import create_rendezvous_handler
from horovod.runner.gloo_run import create_run_env_vars, create_slot_env_vars
from horovod.runner.http.http_server import RendezvousServer

from benchmarks.scale_worker import MARKS_VARIABLE
from elastic.config import Config
from elastic.events import Lines, Record, Tail
from elastic.rundir import RunDir
from tests.contract.cluster import Hosts
from tests.e2e.job import ROOT

LOOK_S = 0.05
QUIET_S = 2.0  # between a standby's readiness and the next loss
LONG_S = 100_000.0
MANY = {"limit": 1000, "window_s": 60.0}
JOB = {
    "model": "none:none",  # nobody asks for it
    "data": {"source": "bundled"},
    "standby": {"size": 1, "level": "step"},
    "hang": dict.fromkeys(("heartbeat_s", "progress_s", "start_s", "compile_s", "validation_s", "saving_s"), LONG_S),
    "restart": {"crash": MANY, "reentry": MANY},
    "network": {"gloo_timeout_s": 600, "join_s": 600.0},
    "preemption": {"cloud": "none"},
}


@dataclass(frozen=True, slots=True)
class Mark:
    """What a worker tells of a world that it has come to be in; times are monotonic, 0 for what it did not see."""

    pid: int
    host: str
    rank: int
    size: int
    generation: int
    lost: float
    told: float
    asked: float
    placed: float
    met: float
    done: float
    requests: int
    longest_wait_s: float


@dataclass(frozen=True, slots=True)
class Cpu:
    """Seconds of CPU time, by who spent them."""

    launcher: float
    agents: float
    workers: float

    def __sub__(self, before: "Cpu") -> "Cpu":
        mine, its = dataclasses.astuple(self), dataclasses.astuple(before)
        return Cpu(*(max(0.0, a - b) for a, b in zip(mine, its, strict=True)))


class Cluster:
    """A job of `size` workers, `slots` a host.

    Attributes:
        served: requests that the launcher's rendezvous has answered.
    """

    def __init__(self, folder: Path, size: int, slots: int, limit_s: float) -> None:
        self._folder = folder
        self._size = size
        self._slots = slots
        self._limit_s = limit_s
        self._run_dir = RunDir(folder / "run")
        self._marks_file = folder / "marks.jsonl"
        self._marks: list[Mark] = []
        self._agents: list[subprocess.Popen[bytes]] = []
        self._ended = threading.Event()
        self._killed_at: dict[str, float] = {}
        self.served = 0

    def __enter__(self) -> Self:
        self._run_dir.create()
        self._marks_file.touch()
        config = Config.model_validate(JOB).model_dump(mode="json", by_alias=True)
        (self._folder / "config.json").write_text(json.dumps(config))
        self._lines, self._tail = Lines(self._marks_file), Tail(self._run_dir.events)
        self._facts: list[Record] = []
        left, hosts = self._size, {}
        while left > 0:
            hosts[f"h{len(hosts)}"] = min(left, self._slots)
            left -= self._slots
        self._server = RendezvousServer()
        self._driver = ElasticDriver(self._server, Hosts(**hosts), 1, self._size, timeout=int(self._limit_s))
        port = self._server.start(self._handler())
        self._server._httpd.daemon_threads = True  # at the end some wait for a round that is never made
        run = create_run_env_vars("127.0.0.1", ["lo"], port, elastic=True)
        self._env = os.environ | {name: str(value) for name, value in run.items()}
        self._env |= {MARKS_VARIABLE: str(self._marks_file), "TMPDIR": str(self._folder), "PYTHONPATH": str(ROOT)}
        self._driver.start(self._size, self._run)
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._server._httpd.handle_error = lambda *_: None  # whoever asks now is killed
        for agent in self._agents:
            agent.kill()  # its workers and standbys die with it
        for agent in self._agents:
            agent.wait()
        self._driver.stop()
        self._server._httpd.server_close()
        mark = str(self._marks_file)
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.environ().get(MARKS_VARIABLE) == mark:
                    process.kill()

    def wait_world(self, generation: int) -> list[Mark]:
        """Return what all members of a world have told, once they have.

        Raises:
            TimeoutError: when they have not within the limit.
        """

        def members() -> list[Mark]:
            return [m for m in self._read() if m.generation == generation]

        self._wait(lambda: len(members()) == self._size, lambda: f"{len(members())} of {self._size} workers have met")
        return members()

    def wait_standby(self, host: str) -> None:
        """Return when a standby of that host has become ready since the last loss there, and a while later."""

        def is_ready() -> bool:
            self._facts += self._tail.new()
            since = self._killed_at.get(host, 0.0)
            return any(f.event == "StandbyReady" and f.host == host and f.time > since for f in self._facts)

        self._wait(is_ready, lambda: f"no standby on {host}")
        time.sleep(QUIET_S)

    def kill(self, victim: Mark) -> None:
        self._killed_at[victim.host] = time.time()
        psutil.Process(victim.pid).kill()

    def cpu(self) -> Cpu:
        """Return the CPU time so far; that of the dead is not in it."""
        agents = {agent.pid for agent in self._agents}
        spent = {True: 0.0, False: 0.0}
        for pid in [*agents, *(m.pid for m in self._marks[-self._size :])]:
            with contextlib.suppress(psutil.Error):
                times = psutil.Process(pid).cpu_times()
                spent[pid in agents] += times.user + times.system
        return Cpu(time.process_time(), spent[True], spent[False])

    def _read(self) -> list[Mark]:
        self._marks += [Mark(**json.loads(line)) for line in self._lines.new()]
        return self._marks

    def _wait(self, what: Callable[[], bool], otherwise: Callable[[], str]) -> None:
        deadline = time.monotonic() + self._limit_s
        while not what():
            if time.monotonic() > deadline:
                raise TimeoutError(f"{otherwise()} within {self._limit_s:.0f} s")
            time.sleep(LOOK_S)

    def _handler(self) -> type:
        cluster = self

        class Counting(create_rendezvous_handler(self._driver)):  # type: ignore[misc]
            def handle_one_request(self) -> None:
                cluster.served += 1
                super().handle_one_request()

        return Counting

    def _run(self, slot: SlotInfo, events: list[threading.Event]) -> tuple[int, float]:
        """Start an agent in a slot, as the launcher does over ssh; return how and when it ended."""
        line = [sys.executable, "-m", "benchmarks.scale_agent"]
        line += [str(self._folder / "config.json"), str(self._run_dir.path)]
        with (self._folder / f"agent-{slot.hostname}-{slot.local_rank}.log").open("ab") as log:
            agent = subprocess.Popen(line, env=self._env | create_slot_env_vars(slot), stdout=log, stderr=log)
        self._agents.append(agent)
        while True:
            try:
                return agent.wait(0.5), time.time()
            except subprocess.TimeoutExpired:
                if not self._ended.is_set() and any(event.is_set() for event in events):
                    agent.terminate()


def overflows() -> int:
    """Return how often a listener of this machine had no room for a connection, which the kernel then tries again."""
    lines = Path("/proc/net/netstat").read_text(encoding="ascii").splitlines()
    names, values = ([line.split() for line in lines if line.startswith("TcpExt:")])[:2]
    return int(values[names.index("ListenOverflows")])
