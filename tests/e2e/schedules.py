"""Random schedules of faults, and a job that lives through one."""

import os
import random
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from tests.e2e.job import Job

MOST = 4  # workers
SETTLE_S = 60.0


@dataclass(frozen=True, slots=True)
class Fault:
    """What happens once training has come so far: a kill of a rank, or another number of slots."""

    step: int
    kill: int | None = None
    slots: int | None = None
    at_once: bool = False  # not waiting for the world before it


@dataclass(frozen=True, slots=True)
class Schedule:
    """One run: how many samples and workers, the global batch, and what happens."""

    seed: int
    samples: int
    batch: int
    slots: int
    faults: tuple[Fault, ...]

    @property
    def steps(self) -> int:
        """Steps of an epoch."""
        return -(-self.samples // self.batch)


def draw(seed: int, *, samples: int | None = None, batch: int | None = None, steps: int = 300) -> Schedule:
    """Return the schedule of a seed: one to four faults within the first two thirds of `steps`."""
    chance = random.Random(seed)
    faults = []
    for step in sorted(chance.randrange(1, 2 * steps // 3) for _ in range(chance.randint(1, 4))):
        if chance.random() < 0.6:
            faults.append(Fault(step, kill=chance.randrange(MOST), at_once=chance.random() < 0.4))
        else:
            faults.append(Fault(step, slots=chance.randint(1, MOST), at_once=chance.random() < 0.4))
    return Schedule(
        seed=seed,
        samples=samples or chance.choice([997, 991, 613, 401, 1009]),
        batch=batch or chance.choice([16, 24, 32, 37]),
        slots=chance.randint(1, MOST),
        faults=tuple(faults),
    )


def live_through(job: Job, schedule: Schedule) -> None:
    """Do to the job what the schedule says, as training reaches each fault's step, until it ends or the list does."""
    for fault in schedule.faults:
        if not _reach(job, fault):
            return
        if fault.slots is not None:
            job.hosts_file.write_text(f"localhost:{fault.slots}\n")
        else:
            _kill(job, fault.kill or 0)


def _reach(job: Job, fault: Fault) -> bool:
    """Wait for the fault's step and, unless it comes at once, for a world that is whole; False if the job ended."""
    deadline = time.monotonic() + SETTLE_S
    while time.monotonic() < deadline and job.process.poll() is None:
        records = job.poll()
        step = max((int(r.get("step", 0)) for r in records if r.event in {"Progressed", "FirstStepDone"}), default=0)
        if step >= fault.step and (fault.at_once or _whole(job)):
            return True
        time.sleep(0.02)
    return job.process.poll() is None


def _whole(job: Job) -> bool:
    formed = job.of("WorldFormed")
    if not formed:
        return False
    newest = max(r.generation for r in formed)
    members = [r for r in formed if r.generation == newest]
    stepped = [r for r in job.of("FirstStepDone") if r.generation == newest]
    return len(stepped) >= members[0].get("size")


def _kill(job: Job, number: int) -> None:
    """Kill one of the workers of the newest world."""
    formed = job.of("WorldFormed")
    if not formed:
        return
    newest = max(r.generation for r in formed)
    pids = sorted({r.pid for r in formed if r.generation == newest})
    try:
        os.kill(pids[number % len(pids)], signal.SIGKILL)
    except ProcessLookupError:
        return


def losses(job: Job) -> int:
    """Return how many of the job's worlds had no worker of the world before: what that one had not written is gone."""
    worlds: dict[int, set[int]] = {}
    for record in job.of("WorldFormed"):
        worlds.setdefault(record.generation, set()).add(record.pid)
    return sum(not worlds[old] & worlds[new] for old, new in pairwise(sorted(worlds)))


def pause(number: int) -> None:
    """Let a random while pass between two faults: the moment is drawn, nothing is waited for."""
    time.sleep(random.Random(number).uniform(0.0, 3.0))


def start(begin: Callable[..., Job], folder: Path, schedule: Schedule, *sets: str, epochs: int) -> Job:
    """Start the paced job of a schedule under `elastic run`."""
    (folder / "paced.py").write_text(Path(__file__).with_name("paced.py").read_text(encoding="utf-8"))
    (folder / "paced.yaml").write_text(
        "name: paced\nmodel: paced:model\ndata: paced:data\ncallbacks: paced:callbacks\n"
        f"epochs: {epochs}\nbatch: {{global: {schedule.batch}}}\n"
        f"workers: {{min: 1, max: {MOST}, start: {schedule.slots}}}\n"
        "audit: true\nrestart: {crash: {limit: 50}, reentry: {limit: 50}}\n"
    )
    env = {"PACED_SAMPLES": str(schedule.samples)}
    return begin(folder / "paced.yaml", *sets, hosts=(f"localhost:{schedule.slots}",), env=env)
