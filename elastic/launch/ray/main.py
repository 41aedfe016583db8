"""The driver of a job on a Ray cluster, which `elastic run` starts: `python -m elastic.launch.ray.main JOB ...`."""

import argparse
import contextlib
import ctypes
import logging
import os
import signal
import socket
import sys
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import ray

from elastic.config import Config
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
    return drive(config, RunDir(options.run_dir).create(), options.job, options.config, options.sets)


def drive(config: Config, run_dir: RunDir, job: Path, extra: Path | None, sets: Sequence[str]) -> int:
    """Run a job on its cluster to its end; return the exit code, and leave nothing behind, in this process neither.

    In the main thread: SIGTERM and SIGINT drain the job meanwhile.

    Args:
        config: the job's.
        run_dir: where facts go.
        job, extra: the job's file, and the configuration beside a script.
        sets: the command line's overrides.

    Raises:
        ConfigError: when there is no cluster.
        JobError: when there is too little room on it to start.
    """
    cluster.connect(config, namespace=f"elastic-{uuid.uuid4().hex[:8]}")
    try:
        executor = Executor(config, run_dir, job, extra, sets)
        with told_to_stop(executor.stop):
            try:
                executor.start()
                return executor.run()
            finally:
                executor.close()
    finally:
        ray.shutdown()


@contextlib.contextmanager
def told_to_stop(stop: Callable[[], None]) -> Iterator[None]:
    """Have `stop` called, in a thread of its own, whenever SIGTERM or SIGINT comes; in the main thread.

    Python runs handlers in the main thread, which waits in a lock here and is not woken when the kernel gives
    the signal to one of Ray's threads. The bytes that it writes for a signal come whoever got it.
    """
    heard, told = socket.socketpair()
    told.setblocking(False)

    def listen() -> None:
        while numbers := heard.recv(64):
            if {signal.SIGTERM, signal.SIGINT} & set(numbers):
                stop()

    thread = threading.Thread(target=listen, name="signals", daemon=True)
    previous = {number: signal.signal(number, lambda *_: None) for number in (signal.SIGTERM, signal.SIGINT)}
    fd = signal.set_wakeup_fd(told.fileno(), warn_on_full_buffer=False)
    thread.start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(fd)
        for number, handler in previous.items():
            signal.signal(number, handler)
        told.close()
        thread.join()
        heard.close()


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
