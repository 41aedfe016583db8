"""`elastic run`: start the launcher, watch it, start it again if need be, sum it up."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path

import psutil

from elastic import doctor
from elastic.config import Config
from elastic.errors import ConfigError, ExitCode
from elastic.events import EventLog, JobFailed, JobStarted, JobStopped, Lines, Record, Tail, read
from elastic.jobfile import dump
from elastic.launch import horovodrun
from elastic.launch.discovering import Discovering
from elastic.launch.ray import command as ray
from elastic.launch.screen import Screen
from elastic.launch.supervise import Done, Ended, GiveUp, Starts, after_launcher
from elastic.rundir import RunDir, fresh
from elastic.views import summary as summaries

PERIOD_S = 0.1
QUIET_S = 5.0  # after so long without a fact, look whether there is room for one
ROOM_BYTES = 1 << 16
FIRST_S = 10.0  # without a host for so long, say why
LEFTOVERS_S = 10.0  # agents notice within this time that their launcher is gone


def run_job(job: Path, config: Config, run_dir: Path | None, sets: Sequence[str], extra: Path | None) -> int:
    """Train a job under its launcher; return the exit code.

    Raises:
        ConfigError: when something must be changed before it can start.
    """
    directory = RunDir(run_dir.resolve()) if run_dir is not None else fresh(config.name, datetime.now())
    screen = Screen(directory)
    done = summaries.finished(directory)
    script = job.suffix == ".py"  # says itself for how many epochs
    if done is not None and not script and (done.stopped_early or done.epochs >= config.epochs):
        screen.line(f"this run has reached its goal ({done.epochs} epochs); train anew with another --run-dir")
        screen.summary(done)
        return ExitCode.GOAL_REACHED
    problems = doctor.blocking()
    if problems:
        raise ConfigError("this machine cannot train yet:\n" + "\n".join(f"  {p}" for p in problems))
    directory.create()
    directory.config.write_text(dump(config), encoding="utf-8")
    close = _serve_metrics(config, directory, screen)
    try:
        if config.launcher == "ray":
            line = ray.command(job, directory.path, sets, extra)
            return Supervisor(config, directory, screen).run(line, ray.environment())
        with Discovering(config, directory, horovodrun.hosts_of(config)) as discovering:
            hosts = _first_hosts(discovering, config.network.start_timeout_s, screen)
            _refuse_a_name_that_nobody_reaches(horovodrun.to_come(config, hosts) or hosts)
            line = horovodrun.command(config, job, directory.path, sets, extra, hosts)
            return Supervisor(config, directory, screen).run(line, horovodrun.environment(config, discovering.env))
    finally:
        close()


def _first_hosts(discovering: Discovering, within_s: float, screen: Screen) -> tuple[str, ...]:
    """Wait for hosts, as the launcher would, but say what keeps them out.

    Raises:
        ConfigError: when there are none in time.
    """
    hosts = discovering.first(min(FIRST_S, within_s))
    if not hosts:
        screen.line(discovering.problem)
        hosts = discovering.first(within_s - FIRST_S)
    if not hosts:
        raise ConfigError(f"discovery: no hosts within {within_s:g} s (network.start_timeout_s): {discovering.problem}")
    return hosts


def _refuse_a_name_that_nobody_reaches(hosts: Sequence[str]) -> None:
    """See that workers on other hosts can reach those on this one; discovery sees to the other hosts.

    Raises:
        ConfigError: with what to change.
    """
    others = horovodrun.remote(hosts)
    if others and len(others) < len(hosts) and (found := doctor.own_name()).level is not doctor.Level.OK:
        raise ConfigError(f"{found.found}; {found.advice}")


def _serve_metrics(config: Config, directory: RunDir, screen: Screen) -> Callable[[], None]:
    """Serve what Prometheus asks for, if the job says so; return what ends that."""
    if config.metrics.port is None:
        return lambda: None
    from elastic.views.metrics import serve

    port, close = serve(directory.path, config.metrics.address, config.metrics.port)
    screen.line(f"metrics: http://{config.metrics.address}:{port}/metrics")
    return close


class Supervisor:
    """Watches launchers of one job, one after the other, to the end of the job."""

    def __init__(self, config: Config, directory: RunDir, screen: Screen) -> None:
        self._config = config
        self._directory = directory
        self._screen = screen
        self._events = EventLog(directory.events)
        self._tail = Tail(directory.events, from_end=True)
        self._launcher: subprocess.Popen[bytes] | None = None
        self._stop_signal: int | None = None
        self._at_once = False

    def run(self, line: list[str], env: dict[str, str]) -> int:
        """Start the launcher until the goal is reached or the job is given up; return the exit code."""
        workers, policy = self._config.workers, self._config.job
        starts = Starts()
        previous = {n: signal.signal(n, lambda s, _: self._stop(s)) for n in (signal.SIGINT, signal.SIGTERM)}
        try:
            with self._screen:
                while True:
                    started = JobStarted(
                        self._config.name,
                        self._config.launcher,
                        workers.min,
                        workers.max,
                        starts.again,
                        doctor.versions(),
                    )
                    self._events.emit(started)
                    end = self._watch(line, env)
                    if self._stop_signal is not None:
                        return self._stopped()
                    starts = starts.ended(end)
                    decision = after_launcher(end, starts.in_vain, policy.max_restarts, policy.backoff_s)
                    if isinstance(decision, Done):
                        return ExitCode.GOAL_REACHED
                    if isinstance(decision, GiveUp):
                        return self._failed(decision)
                    starts = starts.another()
                    left = policy.max_restarts - starts.in_vain
                    self._screen.line(f"{decision.reason}; starting again ({left} more if training gets no further)")
                    time.sleep(decision.delay_s)
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)
            self._events.close()
            self._screen.summary(self._summary())

    def _summary(self) -> summaries.Summary:
        try:
            return summaries.write(self._directory)
        except OSError as error:
            self._screen.line(f"no summary.json: {error}")
            return summaries.summarise(read(self._directory.events))

    def _watch(self, line: list[str], env: dict[str, str]) -> Ended:
        """Run one launcher to its end, showing facts as they come."""
        records: list[Record] = []
        last_fact = time.monotonic()
        stalled_s: float | None = None
        log = self._directory.logs / "launcher.log"
        output = Lines(log, from_end=True)
        with log.open("ab", buffering=0) as file:
            self._launcher = subprocess.Popen(
                line, env=env, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT, start_new_session=True
            )
        while True:
            ended = self._launcher.poll() is not None
            for record in self._tail.new():
                records.append(record)
                last_fact = time.monotonic()
                self._screen.show(record)
            for text in output.new():
                self._screen.printed(text)
            if ended:
                break
            if time.monotonic() - last_fact > QUIET_S and self._disk_full():
                last_fact = time.monotonic()  # it may train on, and cannot say so
            if stalled_s is None and time.monotonic() - last_fact > self._config.job.stall_s:
                stalled_s = time.monotonic() - last_fact
                self._kill()
            time.sleep(PERIOD_S)
        self._clear(records)
        return Ended(records, self._launcher.returncode, _last_line(log), stalled_s, self._disk_full())

    def _disk_full(self) -> bool:
        try:
            return shutil.disk_usage(self._directory.path).free < ROOM_BYTES
        except OSError:
            return True

    def _clear(self, records: list[Record]) -> None:
        """See that agents of this host are gone before another launcher starts; end those that stay."""
        agents = {r.pid for r in records if r.event == "AgentStarted"}
        found = [p for pid in agents if (p := _process(pid, str(self._directory.path))) is not None]
        _, stuck = psutil.wait_procs(found, timeout=0.0 if self._at_once else LEFTOVERS_S)
        for process in stuck:
            process.kill()

    def _stop(self, number: int) -> None:
        first, self._stop_signal = self._stop_signal is None, number
        if self._launcher is None:
            return
        if first:
            self._screen.line("stopping: workers finish their step and write a checkpoint; once more kills at once")
            self._launcher.send_signal(signal.SIGTERM)
        else:
            self._at_once = True
            self._kill()

    def _kill(self) -> None:
        assert self._launcher is not None
        os.killpg(self._launcher.pid, signal.SIGKILL)

    def _stopped(self) -> ExitCode:
        self._events.emit(JobStopped("told to stop"))
        self._screen.line(f"stopped; go on with --run-dir {self._directory.path}")
        return ExitCode.INTERRUPTED if self._stop_signal == signal.SIGINT else ExitCode.TERMINATED

    def _failed(self, cause: GiveUp) -> ExitCode:
        if cause.traceback:
            self._screen.error(cause.traceback, cause.source)
        self._events.emit(JobFailed(cause.reason))
        print(f"elastic: the job failed: {cause.reason}", file=sys.stderr, flush=True)
        return ExitCode(cause.code)


def _process(pid: int, mark: str) -> psutil.Process | None:
    """Return the process if it is one of this run (a pid may have been given anew)."""
    try:
        process = psutil.Process(pid)
        return process if mark in " ".join(process.cmdline()) else None
    except psutil.Error:
        return None


def _last_line(path: Path) -> str:
    """Return the launcher's own last line, not what a worker has printed."""
    text = path.read_text(encoding="utf-8", errors="replace")
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("[")]
    return lines[-1] if lines else ""
