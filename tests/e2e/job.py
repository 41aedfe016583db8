"""A job of real processes, as a test drives it: start, wait for facts, break things."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from elastic.channel import Pulse
from elastic.events import Record, Tail
from elastic.rundir import RunDir

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
PATIENCE_S = 120.0


@dataclass
class Job:
    """A running launcher and what its workers have told so far."""

    run_dir: RunDir
    process: subprocess.Popen[str]
    hosts_file: Path
    records: list[Record] = field(default_factory=list)
    _tail: Tail | None = None

    def poll(self) -> list[Record]:
        """Read what is new; return all records so far."""
        if self._tail is None:
            self._tail = Tail(self.run_dir.events)
        self.records += list(self._tail.new())
        return self.records

    def wait(self, what: Callable[[Record], bool], *, count: int = 1, within_s: float = PATIENCE_S) -> Record:
        """Return the `count`-th record that fits, as soon as it is there."""
        deadline = time.monotonic() + within_s
        while True:
            ended = self.process.poll() is not None
            found = [r for r in self.poll() if what(r)]
            if len(found) >= count:
                return found[count - 1]
            assert not ended, f"the job ended with {self.process.returncode}:\n{self.transcript()}"
            assert time.monotonic() < deadline, f"nothing came within {within_s} s:\n{self.transcript()}"
            time.sleep(0.01)

    def wait_step(self, step: int, *, generation: int = 0) -> Record:
        """Return once training has reached a step, in this generation or a later one."""
        return self.wait(lambda r: r.generation >= generation and int(r.get("step", -1)) >= step)

    def wait_world(self, generation: int, *, size: int | None = None) -> Record:
        """Return once rank 0 is in world `generation` (of that size)."""
        return self.wait(
            lambda r: r.event == "WorldFormed" and r.generation >= generation and size in (None, r.get("size"))
        )

    def wait_stepping(self, generation: int, workers: int) -> None:
        """Return once that many workers have done a step in world `generation`."""
        self.wait(lambda r: r.event == "FirstStepDone" and r.generation == generation, count=workers)

    def pid_of(self, rank: int) -> int:
        """Return the process of a rank in the newest world."""
        formed = [r for r in self.poll() if r.event == "WorldFormed" and r.rank == rank]
        return formed[-1].pid

    def generation(self) -> int:
        return max(r.generation for r in self.poll())

    def kill(self, rank: int, number: int = signal.SIGKILL) -> int:
        """Send a signal to a worker; return its pid."""
        pid = self.pid_of(rank)
        os.kill(pid, number)
        return pid

    def of(self, event: str) -> list[Record]:
        return [r for r in self.poll() if r.event == event]

    def finish(self, within_s: float = PATIENCE_S) -> int:
        """Wait for the launcher's end; return its exit code."""
        try:
            code = self.process.wait(within_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the job did not end within {within_s} s:\n{self.transcript()}") from None
        self.poll()
        return code

    def output(self) -> str:
        return (self.run_dir.path.parent / "output.txt").read_text(encoding="utf-8", errors="replace")

    def transcript(self) -> str:
        """Return what a failing test needs to show."""
        logs = sorted(self.run_dir.logs.glob("*.log")) if self.run_dir.logs.exists() else []
        events = "\n".join(f"{r.time:.3f} {r.event} rank={r.rank} gen={r.generation} {r.fields}" for r in self.poll())
        parts = [f"--- output\n{self.output()[-4000:]}", f"--- events\n{events[-8000:]}"]
        parts += [f"--- {p.name}\n{p.read_text(errors='replace')[-3000:]}" for p in logs]
        return "\n".join(parts)

    def processes(self) -> list[psutil.Process]:
        """Return every process of this job that is alive, found by its run directory."""
        mark = str(self.run_dir.path)
        found = []
        for process in psutil.process_iter():
            try:
                if process.status() != psutil.STATUS_ZOMBIE and (
                    mark in " ".join(process.cmdline()) or process.environ().get("ELASTIC_TEST_RUN") == mark
                ):
                    found.append(process)
            except (psutil.NoSuchProcess, psutil.AccessDenied):
                continue
        return found

    def close(self) -> None:
        """End whatever is left of the job."""
        for process in self.processes():
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


def pulse_of(pid: int) -> Pulse:
    """Return the pulse page of a worker process, to be closed.

    Raises:
        ProcessLookupError: when there is no such process any more.
    """
    try:
        for fd in Path(f"/proc/{pid}/fd").iterdir():
            if "elastic-pulse" in str(fd.readlink()):
                return Pulse(os.open(fd, os.O_RDWR))
    except FileNotFoundError:
        pass
    raise ProcessLookupError(pid)


def start(
    tmp_path: Path,
    job: Path | str,
    *sets: str,
    launcher: str = "elastic",
    hosts: Sequence[str] | None = None,
    run_dir: Path | None = None,
    env: dict[str, str] | None = None,
    options: Sequence[str] = (),
) -> Job:
    """Start a job under `elastic run` or stock `horovodrun`, in `tmp_path`."""
    directory = RunDir(run_dir or tmp_path / "run")
    hosts_file = directory.path / "hosts" if launcher == "elastic" else tmp_path / "hosts"
    path = ":".join(filter(None, (str(tmp_path), os.environ.get("PYTHONPATH"))))
    environment = os.environ | {"ELASTIC_TEST_RUN": str(directory.path), "PYTHONPATH": path} | (env or {})
    words = [w for pair in sets for w in ("--set", pair)]
    if launcher == "elastic":
        if hosts is not None:
            words += ["--set", f"hosts=[{','.join(hosts)}]"]
        words += ["--set", "discovery.names=given"]  # this machine plays several hosts
        line = [str(BIN / "elastic"), "run", str(job), "--run-dir", str(directory.path), *words]
    else:
        hosts_file.write_text("".join(f"{h}\n" for h in hosts or ("localhost:2",)))
        discovery = tmp_path / "discovery.yaml"
        discovery.write_text(f"sources: [{{file: {hosts_file}}}]\nnames: given\n")
        environment["ELASTIC_DISCOVERY"] = str(discovery)
        script = str(ROOT / "discovery" / "discover_hosts.sh")
        line = [str(BIN / "horovodrun"), *(options or ("-np", "2", "--min-np", "1", "--max-np", "8"))]
        line += ["--host-discovery-script", script, "--network-interfaces", "lo"]
        line += [str(BIN / "elastic"), "worker", str(job), "--run-dir", str(directory.path), *words]
    with (directory.path.parent / "output.txt").open("a") as output:
        process = subprocess.Popen(
            line,
            cwd=tmp_path,
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
    return Job(directory, process, hosts_file)
