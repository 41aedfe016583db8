"""What agent, heartbeats and an idle pool cost while training runs: ours against static stock Horovod.

Wall-clock steps per second say what a user gets, and what else the machine was doing; CPU seconds per step
are disturbed less. Windows come in pairs, in the order ABBA, so that a machine that becomes slower in
between slows both sides alike. Nothing of the benchmark runs within a window.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil

from benchmarks import faults, others, stock
from tests.e2e import job as jobs

WINDOW_S = 12.0
SETTLED = 400  # steps of both workers together, after which traces and caches are warm


@dataclass(frozen=True, slots=True)
class Window:
    """Training over a while: steps per second, and CPU seconds per step by who spends them."""

    steps_per_s: float
    workers_s: float
    agents_s: float  # with the idle pool
    launcher_s: float  # with the discovery scripts that it starts each second


@dataclass(frozen=True, slots=True)
class Pair:
    """Two windows, one soon after the other."""

    ours: Window
    stock: Window


def measure(folder: Path, number: int) -> Pair:
    """Return the pair with this number; the order of its two windows turns with each."""
    if number % 2:
        theirs = of_stock(folder / "stock")
        return Pair(of_ours(folder / "ours"), theirs)
    own = of_ours(folder / "ours")
    return Pair(own, of_stock(folder / "stock"))


def of_ours(folder: Path) -> Window:
    """Measure our job while its pool is idle."""
    job = faults.start(folder, "localhost:2")
    try:
        faults.wait_warm(job, 0.0)
        workers = {job.pid_of(rank) for rank in (0, 1)}
        return window(
            job.process.pid,
            workers,
            lambda: [(r.time, int(r.get("step"))) for r in job.poll() if r.event == "Progressed"],
        )
    finally:
        job.close()


def of_stock(folder: Path) -> Window:
    """Measure static stock Horovod with the same model, batch and threads."""
    job = stock.start(folder, "localhost:2", elastic=False)
    try:
        job.wait_steps(SETTLED)
        workers = {p.pid for p in job.workers()}
        return window(job.process.pid, workers, lambda: [(r.time, r.step) for r in job.rows() if r.rank == 0])
    finally:
        job.close()


def window(launcher: int, workers: set[int], steps: Callable[[], list[tuple[float, int]]]) -> Window:
    """Sleep for a window; `steps` gives time and number of rank 0's steps, or of some of them."""
    before, begin = cpu_s(launcher, workers), time.time()
    time.sleep(WINDOW_S)
    after, end = cpu_s(launcher, workers), time.time()
    (first, from_step), *_, (last, to_step) = [(t, n) for t, n in steps() if begin <= t <= end]
    rate = (to_step - from_step) / (last - first)
    done = rate * (end - begin)
    spent = [(b - a) / done for a, b in zip(before, after, strict=True)]
    return Window(rate, *spent)


def cpu_s(launcher: int, workers: set[int]) -> tuple[float, float, float]:
    """Return the CPU seconds so far of the workers, of agents with standbys, and of the launcher with the rest.

    The dead count with the parent that has waited for them, as discovery scripts come and go.
    """
    own = agents = rest = 0.0
    for process in [psutil.Process(launcher), *others.descendants(launcher)]:
        try:
            times, line = process.cpu_times(), process.cmdline()
        except psutil.NoSuchProcess:
            continue
        spent = times.user + times.system
        if process.pid in workers:
            own += spent
        elif process.pid != launcher and {"elastic.worker.main", str(jobs.BIN / "elastic")} & set(line):
            agents += spent
        else:
            rest += spent + times.children_user + times.children_system
    return own, agents, rest
