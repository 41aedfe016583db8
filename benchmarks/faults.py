"""Faults of our own job under stock `horovodrun`, and what they cost."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from elastic.events import Record
from tests.e2e import job as jobs

MNIST = jobs.ROOT / "configs" / "mnist.yaml"
SETS = (
    "data.source=benchmarks.digits:data",
    "epochs=100000",
    "batch.per_worker=32",
    "commit.steps=1000",
    "learning_rate.scale=none",
)
QUIET_S = 2.0  # training runs undisturbed this long between a standby's readiness and the next fault
PHASES = ("detect", "promote", "rendezvous", "sync", "first step")


@dataclass(frozen=True, slots=True)
class Recovery:
    """What a lost worker cost: seconds until both have done their next step, by phase, and steps done again."""

    total_s: float
    phases_s: dict[str, float]
    done_again: int


def start(folder: Path, hosts: str, *sets: str, model: str = "cnn") -> jobs.Job:
    """Start our job on `host:slots`, with further settings and one of `benchmarks.models`."""
    folder.mkdir(parents=True, exist_ok=True)
    options = ("-np", hosts.rpartition(":")[2], "--min-np", "1", "--max-np", "4")
    env = {"PYTHONPATH": str(jobs.ROOT)}
    batch = any(pair.startswith("batch.") for pair in sets)
    usual = (pair for pair in SETS if not (batch and pair.startswith("batch.")))
    chosen = (*usual, f"model=benchmarks.models:{model}", *sets)
    return jobs.start(folder, MNIST, *chosen, launcher="horovodrun", hosts=(hosts,), options=options, env=env)


def wait_warm(job: jobs.Job, since: float) -> None:
    """Return when a standby has become ready after `since` and training has run quietly for a while."""
    job.wait(lambda r: r.event == "StandbyReady" and r.time > since)
    wait_quiet(job)


def wait_quiet(job: jobs.Job) -> None:
    """Return when training has run undisturbed for a while."""
    step = max(int(r.get("step", 0)) for r in job.poll())
    job.wait_step(step + 1)
    quiet_until = time.monotonic() + QUIET_S
    while time.monotonic() < quiet_until:
        job.poll()
        time.sleep(0.05)


def lose(job: jobs.Job, rank: int, number: int) -> Recovery:
    """Send a worker a signal that it does not survive; return what that cost."""
    generation = job.generation()
    at = time.time()
    job.kill(rank, number)
    job.wait(lambda r: r.event == "FirstStepDone" and r.generation == generation + 1, count=2)
    return recovery([r for r in job.poll() if r.time >= at], at, generation + 1)


def recovery(seen: list[Record], at: float, generation: int) -> Recovery:
    """Return what a loss at time `at` cost, from the facts since, up to the first steps of `generation`."""

    def first(event: str, fits: Callable[[Record], bool] = lambda _: True) -> Record:
        return next(r for r in seen if r.event == event and fits(r))

    lost = first("WorkerLost")
    started = first("WorkerStarted")
    formed = first("WorldFormed", lambda r: r.pid == started.get("worker_pid"))
    end = max(r.time for r in seen if r.event == "FirstStepDone" and r.generation == generation)
    reached = max(int(r.get("step")) for r in seen if r.event == "CollectiveFailed")  # by the survivor
    sync_s = float(formed.get("phases_s")["sync"])
    parts = (
        lost.time - at,
        started.time - lost.time,
        formed.time - started.time - sync_s,
        sync_s,
        end - formed.time,
    )
    return Recovery(end - at, dict(zip(PHASES, parts, strict=True)), reached - int(formed.get("step")))


def join(job: jobs.Job) -> float:
    """Add a slot to the host; return how long the incumbent stood still, in seconds."""
    generation = job.generation()
    job.hosts_file.write_text("localhost:2\n")
    job.wait(lambda r: r.event == "FirstStepDone" and r.generation == generation + 1, count=2)
    pause = max(float(r.get("pause_s")) for r in job.of("FirstStepDone") if r.generation == generation + 1)
    job.hosts_file.write_text("localhost:1\n")
    job.wait(lambda r: r.event == "FirstStepDone" and r.generation == generation + 2)
    return pause
