"""`elastic run`: start the launcher, show what happens, sum it up."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from elastic import doctor
from elastic.config import Config, dump
from elastic.errors import ConfigError, ExitCode
from elastic.events import EventLog, JobFailed, JobStarted, JobStopped, Record, Tail
from elastic.launch import horovodrun
from elastic.launch.screen import Screen
from elastic.rundir import RunDir, fresh
from elastic.views import summary as summaries

PERIOD_S = 0.2


def run_job(job: Path, config: Config, run_dir: Path | None, sets: Sequence[str], extra: Path | None) -> int:
    """Train a job under its launcher; return the exit code.

    Raises:
        ConfigError: when something must be changed before it can start.
    """
    directory = RunDir(run_dir.resolve()) if run_dir is not None else fresh(config.name, datetime.now())
    screen = Screen(directory)
    done = summaries.finished(directory)
    if done is not None and (done.stopped_early or done.epochs >= config.epochs):
        screen.line(f"this run has reached its goal ({done.epochs} epochs); train anew with another --run-dir")
        screen.summary(done)
        return ExitCode.GOAL_REACHED
    problems = doctor.blocking()
    if problems:
        raise ConfigError("this machine cannot train yet:\n" + "\n".join(f"  {p}" for p in problems))
    directory.create()
    directory.config.write_text(dump(config), encoding="utf-8")
    hosts = directory.path / "hosts"
    hosts.write_text("".join(f"{line}\n" for line in horovodrun.hosts_of(config)), encoding="utf-8")
    line = horovodrun.command(config, job, directory.path, sets, extra)
    return _Supervisor(config, directory, screen).run(line, horovodrun.environment(hosts))


class _Supervisor:
    """Watches one launcher process to its end."""

    def __init__(self, config: Config, directory: RunDir, screen: Screen) -> None:
        self._config = config
        self._directory = directory
        self._screen = screen
        self._events = EventLog(directory.events)
        self._stop_signal: int | None = None

    def run(self, line: list[str], env: dict[str, str]) -> int:
        workers = self._config.workers
        tail = Tail(self._directory.events, from_end=True)
        self._events.emit(JobStarted(self._config.name, self._config.launcher, workers.min, workers.max))
        log = (self._directory.logs / "launcher.log").open("ab", buffering=0)
        seen: list[Record] = []
        with self._screen, log:
            launcher = subprocess.Popen(
                line, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )
            previous = {
                n: signal.signal(n, lambda s, _: self._stop(launcher, s)) for n in (signal.SIGINT, signal.SIGTERM)
            }
            try:
                while True:
                    ended = launcher.poll() is not None
                    for record in tail.new():
                        seen.append(record)
                        self._screen.show(record)
                    if ended:
                        break
                    time.sleep(PERIOD_S)
            finally:
                for number, handler in previous.items():
                    signal.signal(number, handler)
        return self._conclude(seen, launcher.returncode)

    def _stop(self, launcher: subprocess.Popen[bytes], number: int) -> None:
        if self._stop_signal is None:
            self._screen.line("stopping: workers finish their step and write a checkpoint; once more kills at once")
            launcher.send_signal(signal.SIGTERM)
        else:
            os.killpg(launcher.pid, signal.SIGKILL)
        self._stop_signal = number

    def _conclude(self, seen: list[Record], launcher_code: int) -> int:
        code = ExitCode.GOAL_REACHED
        if not any(r.event == "JobFinished" for r in seen):
            code = self._explain_failure(seen, launcher_code)
        summary = summaries.write(self._directory)
        self._screen.summary(summary)
        return code

    def _explain_failure(self, seen: list[Record], launcher_code: int) -> ExitCode:
        if self._stop_signal is not None:
            self._events.emit(JobStopped("told to stop"))
            return ExitCode.INTERRUPTED if self._stop_signal == signal.SIGINT else ExitCode.TERMINATED
        failed = next((r for r in seen if r.event == "WorkerFailed"), None)
        gave_up = next((r for r in seen if r.event == "SlotGaveUp"), None)
        if failed is not None:
            self._screen.error(failed.get("traceback"), f"worker {failed.host}[{failed.slot}], rank {failed.rank}")
            reason = failed.get("summary")
        elif gave_up is not None:
            reason = f"slot {gave_up.host}[{gave_up.slot}] given up: {gave_up.get('reason')}"
        else:
            reason = f"the launcher ended with code {launcher_code}: {self._launcher_tail()}"
        self._events.emit(JobFailed(reason))
        print(f"elastic: the job failed: {reason}", file=sys.stderr)
        return ExitCode.FAILED

    def _launcher_tail(self) -> str:
        text = (self._directory.logs / "launcher.log").read_text(encoding="utf-8", errors="replace")
        lines = [line for line in text.splitlines() if line.strip()]
        return lines[-1] if lines else "it printed nothing"
