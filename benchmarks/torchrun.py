"""torchrun, as the benchmarks start it, break it and time it.

By default, workers that start again meet in the store of those before them, and may read the addresses
of the dead: on Gloo, about every second restart then fails and costs another one (pytorch/pytorch#135712).
A store a restart, which torchrun offers, is in its favour.
"""

import importlib.metadata
import importlib.util
import random
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks import others
from tests.e2e import job as jobs

RECOVER_S = 90.0
FROZEN_S = 45.0


@dataclass(frozen=True, slots=True)
class Restart:
    """What a kill cost: seconds until both workers have done their next step, and steps done again."""

    total_s: float
    done_again: int


def installed() -> bool:
    return importlib.util.find_spec("torch") is not None


def note() -> str:
    """Say what is measured, or why nothing is."""
    if not installed():
        return "skipped: torch is not installed (`uv sync --group torch`)"
    from benchmarks.torchrun_worker import SNAPSHOT_STEPS

    return f"PyTorch {importlib.metadata.version('torch')}, a snapshot each {SNAPSHOT_STEPS} steps"


def start(folder: Path) -> others.Other:
    """Start two workers, one thread each as ours."""
    line = [str(jobs.BIN / "torchrun"), "--standalone", "--nproc-per-node", "2", "--max-restarts", "1000"]
    line += ["-m", "benchmarks.torchrun_worker", str(folder)]
    env = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    env |= {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "CUDA_VISIBLE_DEVICES": ""}
    return others.start(folder, "benchmarks.torchrun_worker", line, env)


def kill(job: others.Other, rank: int, chance: random.Random) -> Restart:
    """Kill a worker at a random distance from the newest snapshot; return what it cost."""
    from benchmarks.torchrun_worker import SNAPSHOT_STEPS

    begin = len(job.rows())
    job.wait_steps(begin + 2 * (SNAPSHOT_STEPS + chance.randrange(SNAPSHOT_STEPS)))
    start_ = job.rows()[-1].start
    victim = next(p for p in job.workers() if p.environ()["RANK"] == str(rank))
    at = time.time()
    victim.send_signal(signal.SIGKILL)

    def firsts() -> dict[int, others.Row]:
        rows = [r for r in job.rows() if r.start == start_ + 1]
        return {rank: row for row in reversed(rows) for rank in [row.rank]}

    if not job.until(lambda: len(firsts()) == 2, RECOVER_S):
        raise SystemExit(f"torchrun: no step on both within {RECOVER_S:.0f} s of a kill; see {job.folder / 'log'}")
    reached = max(r.step for r in job.rows() if r.start == start_)
    return Restart(max(r.time for r in firsts().values()) - at, reached + 1 - min(r.step for r in firsts().values()))


def freeze(folder: Path) -> str:
    """Freeze a worker; tell what became of the job."""
    job = start(folder)
    try:
        job.wait_steps(100)
        return job.aftermath(signal.SIGSTOP, FROZEN_S)
    finally:
        job.close()
