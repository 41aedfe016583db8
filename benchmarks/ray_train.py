"""Ray Train v2, as the benchmarks start it, break it and time it."""

import importlib.metadata
import importlib.util
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks import others
from tests.e2e.ray.nodes import Nodes, RayNode

NEEDS = ("torch", "pyarrow", "pandas")
RECOVER_S = 90.0
CHECKPOINT_STEPS = 5


@dataclass
class Measured:
    """What was seen, in seconds, and what was measured or why nothing was."""

    kills_s: list[float] = field(default_factory=list)
    losses_s: list[float] = field(default_factory=list)
    joins_s: list[float] = field(default_factory=list)
    blocked_share: float | None = None
    note: str = "not measured"


def missing() -> list[str]:
    """Return which of its needs are not installed."""
    return [name for name in NEEDS if importlib.util.find_spec(name) is None]


def measure(folder: Path, nodes: Nodes, pair: list[RayNode], rounds: int) -> Measured:
    """Break a job in the same ways as ours; skipped where its needs are not installed."""
    m = Measured()
    if lacks := missing():
        m.note = f"skipped: {', '.join(lacks)} not installed (`uv sync --group torch`)"
        return m
    m.note = f"Ray {importlib.metadata.version('ray')}, PyTorch {importlib.metadata.version('torch')}, 1 to 2 workers"
    with _noting(m):
        job = start(folder, nodes)
        try:
            for _ in range(rounds):
                m.kills_s.append(kill(job))
                m.losses_s.append(lose_node(job, nodes, pair))
                m.joins_s.append(join(job, nodes, pair))
        finally:
            job.close()
    return m


def measure_reports(folder: Path, nodes: Nodes, m: Measured) -> None:
    """Report a checkpoint every few steps, on a cluster that no other job has used: an ended one keeps its CPUs."""
    with _noting(m):
        job = start(folder, nodes, CHECKPOINT_STEPS)
        try:
            job.wait_steps(40)
            m.blocked_share = blocked(folder)
        finally:
            job.close()


@contextmanager
def _noting(m: Measured) -> Iterator[None]:
    """Note why a part could not be measured; what was measured before counts."""
    try:
        yield
    except SystemExit as error:
        m.note += f"; {str(error).splitlines()[0]}"


def start(folder: Path, nodes: Nodes, *steps: int) -> others.Other:
    line = [sys.executable, "-m", "benchmarks.ray_train_worker", str(folder), *map(str, steps)]
    env = {"RAY_ADDRESS": nodes.address, "RAY_TRAIN_V2_ENABLED": "1", "CUDA_VISIBLE_DEVICES": ""}
    return others.start(folder, "benchmarks.ray_train_worker", line, env)


def kill(job: others.Other) -> float:
    """Kill a worker; return the seconds until two others have done a step."""
    job.wait_steps(len(job.rows()) + 400)
    before = {r.start for r in job.rows()}
    at = time.time()
    os.kill(job.rows()[-1].start, signal.SIGKILL)
    return first_of(job, before, 2) - at


def lose_node(job: others.Other, nodes: Nodes, pair: list[RayNode]) -> float:
    """Kill a node's raylet; return the seconds until one worker trains again."""
    job.wait_steps(len(job.rows()) + 400)
    before = {r.start for r in job.rows()}
    at = time.time()
    nodes.kill(pair.pop())
    return first_of(job, before, 1) - at


def join(job: others.Other, nodes: Nodes, pair: list[RayNode]) -> float:
    """Add a node; return for how long nobody trained."""
    job.wait_steps(len(job.rows()) + 200)
    before = {r.start for r in job.rows()}
    pair.append(nodes.add())
    first = first_of(job, before, 2)
    return first - max(r.time for r in job.rows() if r.start in before)


def first_of(job: others.Other, before: set[int], workers: int) -> float:
    """Return when so many workers that are not among `before` had each done a step."""

    def new() -> dict[int, float]:
        rows = [r for r in job.rows() if r.start not in before and r.size == workers]
        return {r.start: r.time for r in reversed(rows)}

    if not job.until(lambda: len(new()) >= workers, RECOVER_S):
        raise SystemExit(f"Ray Train: no step within {RECOVER_S:.0f} s; see {job.folder / 'log'}")
    return max(new().values())


def blocked(folder: Path) -> float:
    """Return the share of rank 0's time that reports took."""
    shares = []
    for path in folder.glob("reports.*"):
        rows = [tuple(map(float, line.split())) for line in path.read_text().splitlines()]
        if len(rows) > 2:
            shares.append(sum(took for _, took in rows[1:]) / (rows[-1][0] + rows[-1][1] - rows[0][0] - rows[0][1]))
    return max(shares, default=0.0)
