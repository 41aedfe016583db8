"""Stock Horovod, as the benchmarks start it, break it and time it."""

import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks import others
from tests.e2e import job as jobs

KILLED_S = 30.0
FROZEN_S = 45.0  # more than the 30 s after which Gloo gives a silent peer up


def start(
    folder: Path, hosts: str, *, elastic: bool = True, model: str = "cnn", options: Sequence[str] = ()
) -> others.Other:
    """Start stock Horovod.

    Args:
        folder: for its files.
        hosts: `host:slots` lines; this machine may play several.
        elastic: or static.
        model: of `benchmarks.models`.
        options: more of `horovodrun`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    hosts_file = folder / "hosts"
    hosts_file.write_text(f"{hosts}\n")
    discovery = folder / "discovery.yaml"
    discovery.write_text(f"sources: [{{file: {hosts_file}}}]\nnames: given\n")
    slots = sum(int(line.rpartition(":")[2]) for line in hosts.splitlines())
    line = [str(jobs.BIN / "horovodrun"), "-np", str(slots), "--network-interfaces", "lo", *options]
    script = str(jobs.ROOT / "discovery" / "discover_hosts.sh")
    line += ["--min-np", "1", "--max-np", "4", "--host-discovery-script", script] if elastic else ["-H", hosts]
    line += [
        sys.executable,
        "-m",
        "benchmarks.stock_worker",
        str(folder / "steps.0"),
        model,
        *(["elastic"] if elastic else []),
    ]
    env = {"ELASTIC_DISCOVERY": str(discovery), "TF_CPP_MIN_LOG_LEVEL": "3"}
    if not elastic:
        env["HOROVOD_GLOO_TIMEOUT_SECONDS"] = "3600"  # it is stopped while its rival trains
    return others.start(folder, "benchmarks.stock_worker", line, env)


def kill(folder: Path) -> str:
    """Kill a worker of a stock job on one host; tell what became of it."""
    return _aftermath(folder, signal.SIGKILL, KILLED_S)


def freeze(folder: Path) -> str:
    """Freeze a worker of a stock job on one host; tell what became of it."""
    return _aftermath(folder, signal.SIGSTOP, FROZEN_S)


def _aftermath(folder: Path, number: int, within_s: float) -> str:
    job = start(folder, "localhost:2")
    try:
        job.wait_steps(100)
        return job.aftermath(number, within_s)
    finally:
        job.close()


def join(folder: Path) -> float | None:
    """Add a slot to a stock job; return how long the incumbent stood still, in seconds."""
    job = start(folder, "localhost:1")
    try:
        job.wait_steps(100)
        (folder / "hosts").write_text("localhost:2\n")
        if not job.until(lambda: sum(r.size == 2 for r in job.rows()) > 4, 60):
            return None
        first = min(r.time for r in job.rows() if r.size == 2)
        return first - max(r.time for r in job.rows() if r.size == 1)
    finally:
        job.close()
