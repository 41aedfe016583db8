"""The driver of a job on a Ray cluster, which `elastic run` starts: `python -m elastic.launch.ray.main JOB ...`."""

import argparse
import contextlib
import ctypes
import logging
import os
import signal
import sys
import threading
import uuid
from pathlib import Path

import ray

from elastic.errors import ConfigError, ExitCode, JobError
from elastic.jobfile import load
from elastic.launch.ray import cluster
from elastic.launch.ray.executor import Executor
from elastic.rundir import RunDir

_PR_SET_PDEATHSIG = 1


def main() -> int:
    """Run the job on its cluster; return the exit code."""
    parser = argparse.ArgumentParser(prog="elastic.launch.ray.main")
    parser.add_argument("job", type=Path)
    parser.add_argument("--run-dir", type=Path, required=True)
    parser.add_argument("--set", dest="sets", action="append", default=[])
    parser.add_argument("--config", type=Path)
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(ExitCode.TERMINATED))
    told_when_parent_dies(os.getppid())
    logging.basicConfig(level=logging.WARNING, format="%(name)s: %(message)s", stream=sys.stderr)
    config = load(options.job, options.sets, options.config)
    run_dir = RunDir(options.run_dir).create()
    cluster.connect(config, namespace=f"elastic-{uuid.uuid4().hex[:8]}")
    executor = Executor(config, run_dir, options.job, options.config, options.sets)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: threading.Thread(target=executor.stop).start())
    try:
        executor.start()
        return executor.run()
    finally:
        executor.close()
        ray.shutdown()


def told_when_parent_dies(parent: int) -> None:
    """Be sent SIGTERM, and so drain, when `elastic run` is gone (Ray's job server kills it after three seconds)."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        sys.exit(ExitCode.TERMINATED)


if __name__ == "__main__":
    try:
        code = main()
    except ConfigError as error:
        print(f"elastic: {error}", file=sys.stderr, flush=True)
        code = ExitCode.CONFIG
    except JobError as error:
        print(f"elastic: {error}", file=sys.stderr, flush=True)
        code = ExitCode.FAILED
    with contextlib.suppress(OSError):
        sys.stdout.flush()
    os._exit(code)
