"""torchft, as the benchmarks start it.

`python -m benchmarks.torchft FOLDER TIMEOUT_S JOIN_MS HEARTBEAT_MS` runs a lighthouse and two replica groups, each a
torchrun with one worker that it starts again, as torchft's README has it.
"""

import importlib.metadata
import importlib.util
import os
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from benchmarks import others
from benchmarks.report import end_when_told
from tests.e2e import job as jobs

GROUPS = 2


@dataclass(frozen=True, slots=True)
class Settings:
    """What decides how soon a loss is noticed and a replica taken back; the defaults are the documented ones."""

    gloo_timeout_s: float = 5.0
    join_timeout_ms: int = 10_000
    heartbeat_timeout_ms: int = 5_000


DOCUMENTED = Settings()
IMPATIENT = Settings(gloo_timeout_s=1.0, join_timeout_ms=1_000, heartbeat_timeout_ms=1_000)


def missing() -> str:
    """Say what is not installed; empty when all is."""
    absent = [name for name in ("torch", "torchft") if importlib.util.find_spec(name) is None]
    return f"{', '.join(absent)} not installed (`uv pip install torchft`)" if absent else ""


def version() -> str:
    return importlib.metadata.version("torchft")


def start(folder: Path, settings: Settings) -> others.Other:
    line = [sys.executable, "-m", "benchmarks.torchft", str(folder), str(settings.gloo_timeout_s)]
    line += [str(settings.join_timeout_ms), str(settings.heartbeat_timeout_ms)]
    env = {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "CUDA_VISIBLE_DEVICES": ""}
    return others.start(folder, "benchmarks.torchft_worker", line, env)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def main() -> None:
    folder, timeout_s, join_ms, heartbeat_ms = sys.argv[1:5]
    port = free_port()
    lighthouse = [str(jobs.BIN / "torchft_lighthouse"), "--min_replicas", "1", "--bind", f"127.0.0.1:{port}"]
    lighthouse += ["--quorum_tick_ms", "100", "--join_timeout_ms", join_ms, "--heartbeat_timeout_ms", heartbeat_ms]
    running = [subprocess.Popen(lighthouse)]
    for group in range(GROUPS):
        line = [str(jobs.BIN / "torchrun"), "--nnodes", "1", "--nproc-per-node", "1", "--max-restarts", "1000"]
        line += ["--master-addr", "127.0.0.1", "--master-port", str(free_port())]
        line += ["-m", "benchmarks.torchft_worker", folder, timeout_s]
        env = {"REPLICA_GROUP_ID": str(group), "NUM_REPLICA_GROUPS": str(GROUPS)}
        env["TORCHFT_LIGHTHOUSE"] = f"http://127.0.0.1:{port}"
        running.append(subprocess.Popen(line, env=os.environ | env))
    end_when_told()
    try:
        for process in running[1:]:
            process.wait()
    finally:
        for process in running:
            process.terminate()


if __name__ == "__main__":
    main()
