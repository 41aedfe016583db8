"""Drives jobs on a Ray cluster one after the other in this one process, and counts what each has left in it.

    python -m tests.e2e.ray.driving {drive,run} RUN_DIR TIMES JOB [SET ...]

`drive` is what `elastic run` starts as its launcher, `run` is `elastic.ray.run` (JOB is ignored). Once a job has
done its first step, it is told to stop. Prints one JSON object a line: what this process has before the first job, and
after each.
"""

import json
import os
import signal
import sys
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil
import ray

import elastic
from elastic.events import Tail
from elastic.jobfile import load
from elastic.launch.ray import cluster
from elastic.launch.ray.main import drive
from elastic.rundir import RunDir

SETTLE_S = 5.0


@dataclass(frozen=True, slots=True)
class Held:
    """What a process holds: threads of Python by name, ports it listens on, connections, pipes and files, children."""

    threads: tuple[str, ...]
    ports: int
    connections: int
    descriptors: int
    children: tuple[str, ...]


def held() -> Held:
    """Count what this process holds, now."""
    me = psutil.Process()
    inet = me.net_connections()
    return Held(
        threads=tuple(sorted(thread.name for thread in threading.enumerate())),
        ports=sum(c.status == psutil.CONN_LISTEN for c in inet),
        connections=sum(c.status == psutil.CONN_ESTABLISHED for c in inet),
        descriptors=me.num_fds(),
        children=tuple(sorted(child.name() for child in me.children())),
    )


def settled(before: Held) -> Held:
    """Return what is held once that is no more than before, or has had the time."""
    deadline = time.monotonic() + SETTLE_S
    while (now := held()) != before and time.monotonic() < deadline:
        time.sleep(0.1)
    return now


def stop_after_first_step(run_dir: RunDir, over: threading.Event) -> None:
    tail = Tail(run_dir.events)
    while not over.wait(0.1):
        if any(record.event == "FirstStepDone" for record in tail.new()):
            os.kill(os.getpid(), signal.SIGTERM)
            return


def one(way: str, job: Path, run_dir: RunDir, sets: list[str]) -> str:
    """Run one job to its end; return how it ended."""
    over = threading.Event()
    stopper = threading.Thread(target=stop_after_first_step, args=(run_dir, over))
    stopper.start()
    try:
        config = load(job, sets)
        if way == "drive":
            return str(drive(config, run_dir.create(), job, None, sets))
        workers = {"max": config.workers.max, "start": config.workers.first}
        options = {"workers": workers, "network": {"start_timeout_s": config.network.start_timeout_s}}
        return str(
            elastic.ray.run(time.monotonic, options={**options, "job": {"max_restarts": 0}}, run_dir=run_dir.path)
        )
    except elastic.JobError as error:
        return str(error)
    finally:
        over.set()
        stopper.join()


def main(way: str, run_dir: str, times: str, job: str, *sets: str) -> None:
    cluster.connect(load(Path(job), sets), "before")  # Ray itself keeps some of what a first connection needs
    ray.shutdown()
    before = held()
    print(json.dumps({"ended": "", **asdict(before)}), flush=True)
    for number in range(int(times)):
        ended = one(way, Path(job), RunDir(Path(f"{run_dir}-{number}")), list(sets))
        print(json.dumps({"ended": ended, **asdict(settled(before))}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
