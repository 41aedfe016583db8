"""Stock Horovod, as the benchmarks start it, break it and time it."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil

from tests.e2e import job as jobs


def steps_of(path: Path) -> list[tuple[float, int, int, int]]:
    """Return (time, rank, size, step) of every step that the stock job has done."""
    lines = path.read_text().splitlines() if path.exists() else []
    return [
        (float(t), int(r), int(s), int(n)) for t, r, s, n in (line.split() for line in lines if line.count(" ") == 3)
    ]


def start(folder: Path, hosts: str, np: int, *, elastic: bool = True) -> tuple[subprocess.Popen[bytes], Path, Path]:
    """Start stock Horovod; return its process, the file of its steps and its hosts file."""
    folder.mkdir(parents=True, exist_ok=True)
    steps, hosts_file = folder / "steps.txt", folder / "hosts"
    hosts_file.write_text(hosts)
    line = [str(jobs.BIN / "horovodrun"), "-np", str(np), "--network-interfaces", "lo"]
    script = str(jobs.ROOT / "discovery" / "discover_hosts.sh")
    line += ["--min-np", "1", "--max-np", "4", "--host-discovery-script", script] if elastic else ["-H", hosts.strip()]
    line += [sys.executable, "-m", "benchmarks.stock_worker", str(steps), "1000000", *(["elastic"] if elastic else [])]
    env = os.environ | {"ELASTIC_HOSTS_FILE": str(hosts_file), "TF_CPP_MIN_LOG_LEVEL": "3"}
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(line, cwd=jobs.ROOT, env=env, stdout=log, stderr=log, start_new_session=True)
    return process, steps, hosts_file


def end(process: subprocess.Popen[bytes]) -> None:
    """End a stock job by its own means, then by force."""
    process.terminate()
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def until(what: Any, within_s: float) -> bool:
    """Wait for a condition; tell whether it came."""
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        if what():
            return True
        time.sleep(0.02)
    return False


def rate(folder: Path, seconds: float) -> float:
    """Return steps per second of static Horovod with the same model, batch and threads."""
    process, steps, _ = start(folder, "localhost:2\n", 2, elastic=False)
    try:
        until(lambda: len(steps_of(steps)) > 400, 90)
        begin = steps_of(steps)[-1]
        until(lambda: steps_of(steps)[-1][0] > begin[0] + seconds, seconds + 10)
        last = steps_of(steps)[-1]
        return (last[3] - begin[3]) / (last[0] - begin[0])
    finally:
        end(process)


def kill(folder: Path) -> str:
    """Kill a worker of a stock job on one host; tell what became of it."""
    process, steps, _ = start(folder, "localhost:2\n", 2)
    try:
        until(lambda: len(steps_of(steps)) > 100, 90)
        victim = _children(process.pid, "benchmarks.stock_worker")
        os.kill(victim[0], signal.SIGKILL)
        ended = until(lambda: process.poll() is not None, 30)
        return f"the job ends (exit code {process.returncode})" if ended else "no step within 30 s"
    finally:
        end(process)


def join(folder: Path) -> float | None:
    """Add a slot to a stock job; return how long the incumbent stood still, in seconds."""
    process, steps, hosts_file = start(folder, "localhost:1\n", 1)
    try:
        until(lambda: len(steps_of(steps)) > 100, 90)
        hosts_file.write_text("localhost:2\n")
        if not until(lambda: any(size == 2 for _, _, size, _ in steps_of(steps)), 60):
            return None
        until(lambda: sum(size == 2 for _, _, size, _ in steps_of(steps)) > 4, 10)
        rows = steps_of(steps)
        first = min(t for t, _, size, _ in rows if size == 2)
        return first - max(t for t, _, size, _ in rows if size == 1)
    finally:
        end(process)


def _children(pid: int, mark: str) -> list[int]:
    found = psutil.Process(pid).children(recursive=True)
    return [p.pid for p in found if mark in " ".join(p.cmdline()) and "python" in p.name() and "-m" in p.cmdline()]
