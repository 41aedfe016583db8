"""Jobs of other systems, whose workers write a line a step: start, watch, break, end.

A worker appends `time rank size step` to `steps.N` in the job's folder; N counts the starts of all
workers where the system starts all of them again, and is 0 elsewhere.
"""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from elastic.events import Lines
from tests.e2e import job as jobs

START_S = 90.0


@dataclass(frozen=True, slots=True)
class Row:
    """A step that a worker has done."""

    time: float
    rank: int
    size: int
    step: int
    start: int


@dataclass
class Other:
    """A running launcher of another system and the steps of its workers so far."""

    folder: Path
    process: subprocess.Popen[bytes]
    worker: str  # the module that its workers run
    _rows: list[Row] = field(default_factory=list)
    _files: dict[Path, Lines] = field(default_factory=dict)

    def rows(self) -> list[Row]:
        """Read what is new; return all steps so far."""
        for path in self.folder.glob("steps.*"):
            for line in self._files.setdefault(path, Lines(path)).new():
                t, rank, size, step = line.split()
                self._rows.append(Row(float(t), int(rank), int(size), int(step), int(path.suffix[1:])))
        return self._rows

    def workers(self) -> list[psutil.Process]:
        return [p for p in descendants(self.process.pid) if _runs(p, self.worker)]

    def wait_steps(self, count: int, within_s: float = START_S) -> None:
        """Return once that many steps are done, over all workers."""
        if not self.until(lambda: len(self.rows()) > count, within_s):
            log = (self.folder / "log").read_text(errors="replace")[-3000:]
            raise SystemExit(f"{self.worker}: {len(self.rows())} steps in {within_s:.0f} s, expected {count}:\n{log}")

    def until(self, what: Callable[[], bool], within_s: float) -> bool:
        """Wait for a condition; tell whether it came."""
        deadline = time.monotonic() + within_s
        while time.monotonic() < deadline:
            if what():
                return True
            time.sleep(0.02)
        return False

    def aftermath(self, number: int, within_s: float) -> str:
        """Send a signal to one of the workers; tell what becomes of the job."""
        at = time.time()
        self.workers()[0].send_signal(number)

        def steps_again() -> bool:  # a second later it is no step that was under way
            return self.rows()[-1].time > at + 1.0

        self.until(lambda: self.process.poll() is not None or steps_again(), within_s)
        if self.process.poll() is not None:
            return f"the job ends (exit code {self.process.returncode})"
        if not steps_again():
            return f"no step within {within_s:.0f} s"
        return f"a step after {next(r.time for r in self.rows() if r.time > at + 1.0) - at:.2f} s"

    def close(self) -> None:
        """End the job by its own means, then by force."""
        every = descendants(self.process.pid)
        for process in every:
            _send(process, signal.SIGCONT)
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        for process in every:
            _send(process, signal.SIGKILL)


def start(folder: Path, worker: str, line: Sequence[str], env: dict[str, str]) -> Other:
    """Start a launcher whose command line is given."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            line, cwd=jobs.ROOT, env=os.environ | env, stdout=log, stderr=log, start_new_session=True
        )
    return Other(folder, process, worker)


def descendants(pid: int) -> list[psutil.Process]:
    """Return the processes below one, without itself."""
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def _runs(process: psutil.Process, module: str) -> bool:
    try:
        line = process.cmdline()
        return "python" in process.name() and "-m" in line and module in line
    except psutil.NoSuchProcess:
        return False


def _send(process: psutil.Process, number: int) -> None:
    try:
        process.send_signal(number)  # psutil sees when the pid is another's by now
    except psutil.NoSuchProcess:
        return
