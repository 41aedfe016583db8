"""`elastic chaos`: start a job, break it by the plan, wait for it to recover, judge.

Theory of operation. The job is started with `elastic run`, as a user would start it, with its audit on
and with a folder in its environment where workers listen for deeds. One loop follows the facts that it
writes and the pulses of its workers, injects the next fault when it is due, undoes what lasts only a
while, and stops the job when all faults are over. Whatever happens, every fault is undone at the end,
and no process of the job is left.
"""

import contextlib
import os
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from datetime import datetime
from pathlib import Path

from elastic.chaos import network
from elastic.chaos.cue import Cue
from elastic.chaos.disk import Disk
from elastic.chaos.faults import Ground, NotYet, Ongoing, Skip, inject, obstacle
from elastic.chaos.hosts import HostsFile, slots_of
from elastic.chaos.job import Job
from elastic.chaos.kinds import DISK, has_target
from elastic.chaos.net.hosts import Net
from elastic.chaos.outcome import End, Report, report, show, write
from elastic.chaos.plan import Plan, Planned, load_plan, overrides, schedule
from elastic.chaos.pulses import Pulses
from elastic.chaos.scene import Process, Scene, after, aim
from elastic.chaos.trial import Trial
from elastic.config import Config
from elastic.errors import ConfigError, ExitCode
from elastic.events import (
    Event,
    EventLog,
    FaultInjected,
    FaultSkipped,
    FaultUndone,
    Record,
    Tail,
)
from elastic.jobfile import load
from elastic.launch.horovodrun import hosts_of, is_local
from elastic.rundir import RunDir, fresh

PERIOD_S = 0.02
CLOSE_S = 0.001  # while the target's phase is waited for
SKEW_S = 2.0  # a fact whose time is further off than this was written by a clock that is wrong
STOP_S = 20.0  # besides the job's own `drain_s`


def run_chaos(
    plan_file: Path, job: Path, sets: Sequence[str], run_dir: Path | None, extra: Path | None, seed: int | None
) -> int:
    """Break a job by a plan and judge how it lived through it; return the exit code.

    Raises:
        ConfigError: when the plan or the job must be changed before it can start.
    """
    plan = load_plan(plan_file)
    seed = plan.seed if seed is None else seed
    own = [f"hosts=[{','.join(network.hosts_of(plan.hosts))}]"] if plan.hosts is not None else []
    sets = ["audit=true", *overrides(plan.job), *sets, *own]
    config = load(job, sets, extra)
    if plan.hosts is not None and (why := network.obstacle(plan.hosts)):
        raise ConfigError(f"{plan_file}: hosts: {why}")
    if plan.hosts is None and not is_local(hosts := hosts_of(config)):
        raise ConfigError(
            f"{job}: hosts: found {', '.join(hosts)}; elastic chaos breaks processes of this machine alone"
        )
    directory = RunDir(run_dir.resolve()) if run_dir is not None else fresh(config.name, datetime.now())
    directory.create()
    planned = schedule(plan, seed)
    needs_disk = any(p.kind in DISK and obstacle(p.kind, plan.hosts) is None for p in planned)
    small = Disk(directory.checkpoints, plan.disk_mb) if needs_disk else None
    folder = Path(tempfile.mkdtemp(prefix="elastic-chaos-"))
    line = [sys.executable, "-m", "elastic", "run", str(job), "--run-dir", str(directory.path)]
    line += [word for pair in sets for word in ("--set", pair)] + (["--config", str(extra)] if extra else [])
    net = Net(folder / "net", plan.hosts + 1, switched=True) if plan.hosts is not None else None
    ground = Ground(directory, folder, HostsFile(directory.path / "hosts"), config.workers.max, small, net)
    try:
        if small is not None:
            small.open()
        if net is not None:
            net.open()
        chaos = Chaos(plan, planned, config, ground)
        found = chaos.run(line)
    finally:
        if small is not None:
            small.close()
        if net is not None:
            net.close()
        shutil.rmtree(folder, ignore_errors=True)
    path = write(directory, plan.name, seed, planned, found)
    show(plan.name, seed, found, path)
    if chaos.told is not None:
        return ExitCode.INTERRUPTED if chaos.told == signal.SIGINT else ExitCode.TERMINATED
    return ExitCode.GOAL_REACHED if found.passed else ExitCode.FAILED


class Chaos:
    """One job that is broken.

    Attributes:
        told: the signal by which somebody stopped this, or None.
    """

    def __init__(self, plan: Plan, planned: Sequence[Planned], config: Config, ground: Ground) -> None:
        self._plan = plan
        self._planned = planned
        self._config = config
        self._ground = ground
        self._log = EventLog(ground.run_dir.events)
        self._tail = Tail(ground.run_dir.events, from_end=True)
        self._pulses = Pulses()
        self._records: list[Record] = []
        self._scene = Scene()
        self._trials: dict[int, Trial] = {}
        self._ongoing: dict[int, tuple[Ongoing, float | None]] = {}
        self._next = 0
        self._cue = Cue(planned[0])
        self._due_since: float | None = None
        self._training_since: float | None = None
        self._stopping: float | None = None
        self._cut_short = ""
        self._at_once = False
        self.told: int | None = None

    def run(self, line: list[str]) -> Report:
        """Start the job, break it, see it to its end; return what came of it."""
        previous = {n: signal.signal(n, lambda s, _: self._hear_signal(s)) for n in (signal.SIGINT, signal.SIGTERM)}
        began = time.monotonic()
        output = self._ground.run_dir.logs / "elastic-run.log"
        job = self._job = Job(line, self._ground.folder, output, self._ground.net)
        try:
            while True:
                ended = job.code() is not None
                self._read()
                job.show()
                if ended or not self._goes_on(time.monotonic(), began):
                    break
                time.sleep(CLOSE_S if self._is_close() else PERIOD_S)
        finally:
            self._undo(None)
            job.kill()
            for number, handler in previous.items():
                signal.signal(number, handler)
        left = tuple(job.clear())
        self._read()
        job.show()
        end = End(job.code() or 0, self._stopping is not None, self._cut_short, left)
        return report(self._planned, self._records, time.time(), end, self._ground.run_dir)

    def _goes_on(self, now: float, began: float) -> bool:
        """Do what is due; False when the job must be ended at once."""
        self._undo(now)
        for ongoing, _ in self._ongoing.values():
            ongoing.tick(now)
        if self._stopping is not None:
            return not self._at_once and now - self._stopping < self._config.drain_s + STOP_S
        if self.told is not None:
            self._say("stopping; once more kills the job at once")
            self._stop_job(now)
            return True
        failed = [t.planned.number for t in self._trials.values() if self._has_failed(t)]
        if failed or now - began > self._plan.limit_s:
            over = f"the plan's time (limit_s) of {self._plan.limit_s:.0f} s was over"
            self._cut_short = f"fault {failed[0]} was not recovered from" if failed else over
            self._say(f"{self._cut_short}: the job is stopped")
            self._stop_job(now)
        elif self._next < len(self._planned):
            self._try(self._planned[self._next], now)
        elif self._plan.until == "faults" and all(t.over for t in self._trials.values()):
            self._stop_job(now)
        return True

    def _has_failed(self, trial: Trial) -> bool:
        return not trial.over and not trial.waits and time.time() - trial.since > trial.planned.settle_s

    def _try(self, planned: Planned, now: float) -> None:
        """Inject the next fault, if it is due."""
        training_s = now - self._training_since if self._training_since is not None else -1.0
        if not planned.overlap and not all(t.over for t in self._trials.values()):
            return
        reason = obstacle(planned.kind, self._plan.hosts)
        if reason is not None:
            self._skip(planned, reason)
        if reason is not None or not self._cue.due(self._step(), training_s, now):
            return
        anyhow = planned.overlap or planned.event is not None or planned.during is not None
        if (not anyhow and not self._scene.world.whole) or (planned.warm and not self._scene.standbys):
            return
        self._due_since = self._due_since or now
        victims = self._victims(planned)
        self._ground.hosts.read()
        slots, at = self._slots(), time.time()
        try:
            if not victims and has_target(planned.kind):
                raise NotYet
            ongoing = inject(planned, victims, self._ground)
        except Skip as why:
            self._skip(planned, str(why))
        except NotYet:
            missed = planned.target == "newcomer" and all(t.over for t in self._trials.values())
            if missed or now - self._due_since > planned.settle_s:
                phase = f" while {planned.during.name.lower()}" if planned.during is not None else ""
                self._skip(planned, f"found no {planned.target}{phase} after {now - self._due_since:.1f} s")
        else:
            self._injected(planned, victims, ongoing, slots, at)

    def _victims(self, planned: Planned) -> tuple[Process, ...]:
        if planned.target == "driver":
            return tuple(Process(pid) for pid in self._job.launchers())
        found = aim(planned.target, planned.draw, self._scene)
        if planned.during is None:
            return found
        beats = {p: self._pulses.read(p.pid) for p in found}
        return tuple(p for p, beat in beats.items() if beat is not None and beat.phase is planned.during)

    def _step(self) -> int:
        """Return what training has reached."""
        return max(self._pulses.step(self._scene.world.pids), self._scene.step)

    def _slots(self) -> int:
        """Return how many workers there are to be."""
        lines, workers = self._ground.hosts.lines, self._config.workers
        return min(workers.max, slots_of(lines)) if lines else workers.first

    def _injected(self, planned: Planned, victims: Sequence[Process], ongoing: Ongoing, slots: int, at: float) -> None:
        hit = victims if has_target(planned.kind) else ()
        others = self._scene.world.pids - {v.pid for v in hit}
        fact = FaultInjected(
            fault=planned.number,
            kind=planned.kind,
            target=planned.target if hit else ongoing.what,
            pids=[v.pid for v in hit],
            places=[f"{v.slot[0]}[{v.slot[1]}]" for v in hit if v.slot is not None],
            at_step=max(self._pulses.step(others or self._scene.world.pids), self._scene.step),
            slots=slots,
        )
        whom = f" ({'; '.join(map(str, hit))})" if hit else ""
        self._say(f"fault {planned.number}: {planned.kind} {fact.target}{whom} at step {fact.at_step}")
        until = time.monotonic() + planned.for_s if planned.for_s is not None else None
        self._ongoing[planned.number] = (ongoing, until)
        self._emit(fact, at)
        self._advance()

    def _skip(self, planned: Planned, reason: str) -> None:
        self._say(f"fault {planned.number}: {planned.kind} skipped: {reason}")
        self._emit(FaultSkipped(planned.number, planned.kind, reason), time.time())
        self._advance()

    def _advance(self) -> None:
        self._next += 1
        self._due_since = None
        if self._next < len(self._planned):
            self._cue = Cue(self._planned[self._next])

    def _undo(self, now: float | None) -> None:
        """Undo the faults whose time is over; all of them where there is no `now`."""
        for number, (ongoing, until) in list(self._ongoing.items()):
            if now is None or (until is not None and now >= until):
                del self._ongoing[number]
                with contextlib.suppress(OSError):
                    ongoing.undo()
                if not self._trials[number].fatal:  # otherwise the job has cured it
                    self._emit(FaultUndone(number, self._step()), time.time())

    def _read(self) -> None:
        """Take the facts that have come."""
        for record in self._tail.new():
            if record.pid != os.getpid():
                now = time.time()
                self._take(record if abs(record.time - now) < SKEW_S else replace(record, time=now))
        wanted = self._scene.world.pids | {p.pid for p in self._scene.workers.values()}
        self._pulses.keep(wanted)

    def _take(self, record: Record) -> None:
        before = self._scene
        self._records.append(record)
        self._scene = after(before, record)
        if self._scene.training and self._training_since is None:
            self._training_since = time.monotonic()
        if record.event == "FaultInjected":
            self._trials[record.get("fault")] = Trial(self._planned[record.get("fault") - 1], record, before)
        for trial in self._trials.values():
            if not trial.over:
                trial.take(record, self._scene)
                if trial.over:
                    self._tell(trial)
        self._cue.hear(record)

    def _emit(self, event: Event, at: float) -> None:
        """Record a fact of this process, and take it at once: the file may be on a disk that is full."""
        self._log.emit(event)
        name, generation = type(event).__name__, self._scene.world.generation
        self._take(Record(at, name, socket.gethostname(), -1, os.getpid(), -1, generation, asdict(event)))

    def _tell(self, trial: Trial) -> None:
        recovery = trial.recovery()
        how = f"recovered after {recovery.total_s:.2f} s" if recovery is not None else "training was not disturbed"
        self._say(f"fault {trial.planned.number}: {how}, {trial.steps_lost} steps lost")

    def _is_close(self) -> bool:
        return self._next < len(self._planned) and self._planned[self._next].during is not None

    def _hear_signal(self, number: int) -> None:
        self._at_once = self.told is not None
        self.told = number

    def _stop_job(self, now: float) -> None:
        if self._stopping is None:
            self._stopping = now
            self._undo(None)
            self._job.stop()

    def _say(self, text: str) -> None:
        print(f"chaos: {text}", flush=True)
