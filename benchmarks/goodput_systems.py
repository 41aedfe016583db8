"""The systems whose goodput is compared: how each is started, watched and broken (private to `benchmarks.goodput`)."""

import contextlib
import importlib.util
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import psutil

from benchmarks import faults, others, ray_train, stock, torchft, torchrun
from benchmarks.others import Row
from elastic.chaos.pulses import Pulses
from elastic.chaos.scene import Scene, after
from tests.e2e import job as jobs

START_S = 300.0  # patience until a job trains and is warm, on a machine that is busy
TWO_HOSTS = "localhost:1\n127.0.0.1:1"
COOLDOWN = ("--blacklist-cooldown-range", "1", "2")  # the shortest that Horovod takes


class Running(Protocol):
    """A job of one system."""

    def rows(self) -> list[Row]:
        """Return the steps so far."""

    def victims(self) -> list[int]:
        """Return the processes of the workers that train, in a fixed order."""

    def alive(self) -> bool:
        """Tell whether the job goes on."""


@dataclass(frozen=True, slots=True)
class System:
    """One of those compared.

    Attributes:
        missing: what it lacks here; empty when it can run.
        start: runs its job in a folder until the context ends; when it begins, each worker has done so many steps.
    """

    name: str
    words: str
    missing: Callable[[], str]
    start: Callable[[Path, int], AbstractContextManager[Running]]


class Ours:
    """Our job: its steps are those of its facts, and of its workers' pulses at the moment."""

    def __init__(self, job: jobs.Job) -> None:
        self._job = job
        self._scene = Scene()
        self._read = 0
        self._rows: list[Row] = []
        self._pulses = Pulses()

    def rows(self) -> list[Row]:
        records = self._job.poll()
        for record in records[self._read :]:
            self._scene = after(self._scene, record)
            if record.event in ("Progressed", "FirstStepDone"):
                size = self._scene.world.size
                self._rows.append(Row(record.time, record.rank, size, int(record.get("step")), 0))
        self._read = len(records)
        pids = self._scene.world.pids
        self._pulses.keep(pids)
        step = self._pulses.step(pids)
        if step and (not self._rows or step > self._rows[-1].step):
            self._rows.append(Row(time.time(), 0, self._scene.world.size, step, 0))
        return self._rows

    def victims(self) -> list[int]:
        self.rows()
        return [p.pid for _, p in sorted(self._scene.world.members.items()) if psutil.pid_exists(p.pid)]

    def alive(self) -> bool:
        return self._job.process.poll() is None


class Other:
    """Another system's job; `by_pid`: its workers name their files by their own process."""

    def __init__(self, job: others.Other, *, by_pid: bool) -> None:
        self._job = job
        self._by_pid = by_pid

    def rows(self) -> list[Row]:
        return self._job.rows()

    def victims(self) -> list[int]:
        if not self._by_pid:
            return sorted(p.pid for p in self._job.workers())
        pids = {row.start for row in self._job.rows()[-1000:]}
        return sorted(pid for pid in pids if _runs(pid))

    def alive(self) -> bool:
        return self._job.process.poll() is None


def _runs(pid: int) -> bool:
    with contextlib.suppress(psutil.Error):
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    return False


@contextmanager
def ours(folder: Path, settled: int) -> Iterator[Running]:
    job = faults.start(folder, "localhost:2")
    try:
        job.wait(lambda r: r.event == "StandbyReady", within_s=START_S)
        job.wait_step(settled)
        yield Ours(job)
    finally:
        job.close()


@contextmanager
def _settled(job: others.Other, settled: int, *, by_pid: bool) -> Iterator[Running]:
    try:
        job.wait_steps(2 * settled, START_S)
        yield Other(job, by_pid=by_pid)
    finally:
        job.close()


def stock_on_two_hosts(folder: Path, settled: int) -> AbstractContextManager[Running]:
    return _settled(stock.start(folder, TWO_HOSTS, options=COOLDOWN), settled, by_pid=False)


def under_torchrun(folder: Path, settled: int) -> AbstractContextManager[Running]:
    return _settled(torchrun.start(folder), settled, by_pid=False)


def with_torchft(settings: torchft.Settings) -> Callable[[Path, int], AbstractContextManager[Running]]:
    return lambda folder, settled: _settled(torchft.start(folder, settings), settled, by_pid=True)


@contextmanager
def under_ray_train(folder: Path, settled: int) -> Iterator[Running]:
    from tests.e2e.ray.nodes import Nodes

    nodes = Nodes()
    try:
        for _ in range(2):
            nodes.add()
        with _settled(ray_train.start(folder, nodes), settled, by_pid=True) as running:
            yield running
    finally:
        nodes.close()


def _needs(*names: str) -> Callable[[], str]:
    def missing() -> str:
        absent = [name for name in names if importlib.util.find_spec(name) is None]
        return f"{', '.join(absent)} not installed (`uv sync --group torch`)" if absent else ""

    return missing


SYSTEMS = (
    System("ours", "ours", lambda: "", ours),
    System("stock", "stock Horovod Elastic, two hosts", lambda: "", stock_on_two_hosts),
    System("torchrun", "torchrun", _needs("torch"), under_torchrun),
    System("torchft", "torchft, documented settings", torchft.missing, with_torchft(torchft.DOCUMENTED)),
    System("torchft_1s", "torchft, all its time-outs 1 s", torchft.missing, with_torchft(torchft.IMPATIENT)),
    System("ray_train", "Ray Train v2, elastic", _needs(*ray_train.NEEDS), under_ray_train),
)
