"""What elasticity costs while training runs: ours against static stock Horovod, same model, batch and threads.

On a machine that others use too, a rate of now says little about one of a minute ago. So both jobs
run at once, and take turns: while one trains, the other's workers are stopped (SIGSTOP). Windows of
seconds alternate in the order ABBA, and what is told is the median of the ratios of neighbours. Windows
begin and end with a step. Our time-outs are raised, as a stopped worker is not to be replaced here.
"""

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from benchmarks import faults, others, stock
from tests.e2e import job as jobs

WINDOW_S = 4.0
RESUME_S = 0.3  # until a continued job is in its stride
START_S = 300.0  # patience until a standby has run a step: at low priority, beside workers of a large model
SETTLED = 100  # steps of each worker, after which traces and caches are warm
PATIENT = ("hang.heartbeat_s=100000", "hang.progress_s=100000", "network.gloo_timeout_s=3600")


@dataclass(frozen=True, slots=True)
class Window:
    """Training over a while: steps per second, and CPU seconds per step by who spends them."""

    steps_per_s: float
    workers_s: float
    agents_s: float  # with the idle pool
    launcher_s: float  # with the discovery scripts that it starts each second


@dataclass(frozen=True, slots=True)
class Pair:
    """Two windows, one right after the other: ours, and that of what it is compared with."""

    ours: Window
    other: Window


@dataclass(frozen=True, slots=True)
class Side:
    """A job that is stopped and continued."""

    launcher: int
    workers: tuple[int, ...]
    step: Callable[[], int]

    def send(self, number: int) -> None:
        for pid in self.workers:
            psutil.Process(pid).send_signal(number)


def measure(
    folder: Path,
    pairs: int,
    *,
    model: str = "cnn",
    window_s: float = WINDOW_S,
    sets: tuple[str, ...] = (),
    settled: int = SETTLED,
    resume_s: float = RESUME_S,
) -> list[Pair]:
    """Run our job and static stock Horovod and return so many pairs of windows.

    Args:
        folder: for their files.
        pairs: how many.
        model: of `benchmarks.models`.
        window_s: length of a window.
        sets: further settings of ours.
        settled: steps after which windows begin.
        resume_s: from when a job is continued until its window begins.
    """
    theirs = stock.start(folder / "stock", "localhost:2", elastic=False, model=model)
    try:
        theirs.wait_steps(2 * settled)
        side = Side(theirs.process.pid, tuple(p.pid for p in theirs.workers()), lambda: _last_step(theirs))
        side.send(signal.SIGSTOP)
        with ours(folder / "ours", model, *sets, settled=settled) as own:
            return take_turns(own, side, pairs, window_s, resume_s)
    finally:
        theirs.close()


@contextmanager
def ours(folder: Path, model: str, *sets: str, settled: int = SETTLED) -> Iterator[Side]:
    """Run a job of ours with a warm pool; it is stopped when it has come into its stride."""
    job = faults.start(folder, "localhost:2", *PATIENT, *sets, model=model)
    try:
        job.wait(lambda r: r.event == "StandbyReady", within_s=START_S)
        job.wait_step(settled)
        workers = (job.pid_of(0), job.pid_of(1))
        pulse = jobs.pulse_of(workers[0])
        side = Side(job.process.pid, workers, lambda: pulse.read().step)
        side.send(signal.SIGSTOP)
        yield side
        side.send(signal.SIGCONT)
    finally:
        job.close()


def take_turns(own: Side, other: Side, pairs: int, window_s: float, resume_s: float = RESUME_S) -> list[Pair]:
    """Let two stopped jobs train in turn; return so many pairs of windows."""
    sides, found = {"ours": own, "other": other}, []
    for number in range(pairs):
        windows = {name: _window(sides[name], window_s, resume_s) for name in in_turn("ours", "other", number)}
        found.append(Pair(**windows))
    return found


def in_turn(a: str, b: str, number: int) -> tuple[str, str]:
    """Return who comes first and second in a pair: ABBA, so that a machine that slows down slows both sides alike."""
    return (b, a) if number % 2 else (a, b)


def _last_step(job: others.Other) -> int:
    return max((r.step for r in job.rows()[-8:] if r.rank == 0), default=0)


def _window(side: Side, seconds: float, resume_s: float) -> Window:
    """Let one side train for a while."""
    side.send(signal.SIGCONT)
    time.sleep(resume_s)
    first, begin = _edge(side)
    before = cpu_s(side)
    time.sleep(seconds)
    last, end = _edge(side)
    after = cpu_s(side)
    side.send(signal.SIGSTOP)
    done = last - first
    spent = [(b - a) / done for a, b in zip(before, after, strict=True)]
    return Window(done / (end - begin), *spent)


def _edge(side: Side) -> tuple[int, float]:
    """Wait until a step is done; return its number and the time."""
    step = side.step()
    while (now := side.step()) == step:
        time.sleep(0.001)
    return now, time.monotonic()


def cpu_s(side: Side) -> tuple[float, float, float]:
    """Return the CPU seconds so far of the workers, of agents with standbys, and of the launcher with the rest.

    The dead count with the parent that has waited for them, as discovery scripts come and go.
    """
    own = agents = rest = 0.0
    for process in [psutil.Process(side.launcher), *others.descendants(side.launcher)]:
        try:
            times, line = process.cpu_times(), process.cmdline()
        except psutil.NoSuchProcess:
            continue
        spent = times.user + times.system
        if process.pid in side.workers:
            own += spent
        elif process.pid != side.launcher and {"elastic.worker.main", str(jobs.BIN / "elastic")} & set(line):
            agents += spent
        else:
            rest += spent + times.children_user + times.children_system
    return own, agents, rest
