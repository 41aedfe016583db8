"""What has happened since one fault was injected: a fold over the facts that follow.

A fault is over when whoever it was fatal for has been replaced, it has been undone (where somebody must
do that), all workers that there are to be train in one world, and training has gone on since. Until
then the time is split where facts tell of the next thing: `detect_s` up to the first fact that something
is wrong, `replace_s` up to the start of another worker, `world_s` up to the world that is whole in the
end, `first_step_s` up to the last member's first step in it. The four add up to the time to recover.
"""

from dataclasses import dataclass, field
from pathlib import Path

from elastic.chaos.kinds import FATAL, LASTS_S, Kind
from elastic.chaos.plan import Planned
from elastic.chaos.scene import Scene
from elastic.events import Record


@dataclass(frozen=True, slots=True)
class Recovery:
    """Seconds by phase, from the injection on; see the module's head."""

    detect_s: float
    replace_s: float
    world_s: float
    first_step_s: float

    @property
    def total_s(self) -> float:
        return round(self.detect_s + self.replace_s + self.world_s + self.first_step_s, 6)


_TROUBLE = frozenset(
    {"WorkerLost", "WorkerFailed", "WorkerLeft", "CollectiveFailed", "HostsChanged", "StandbyLost", "SlotGaveUp"}
)
_STEPS = frozenset({"FirstStepDone", "Progressed", "EpochEnded", "Committed"})


@dataclass
class Trial:
    """What has happened since one fault was injected; fed with the facts that follow, in order."""

    planned: Planned
    injected: Record
    before: Scene
    recovered_at: float | None = None
    steps_lost: int = 0
    said: list[tuple[str, str]] = field(default_factory=list)
    failure: str = ""
    damage_loaded: bool = False
    _undone: Record | None = None
    _trouble_at: float | None = None
    _started_at: float | None = None
    _formed_at: float | None = None
    _world: int = 0
    _gone_on: bool = False

    def __post_init__(self) -> None:
        self._world = self.before.world.number
        self._reached = int(self.injected.get("at_step"))
        self._must_go = frozenset(self.injected.get("pids")) if self.fatal else frozenset()
        if self.planned.target.startswith("agent"):  # its worker dies with it
            lost = [p.pid for s, p in self.before.workers.items() if name_of(s) in self.injected.get("places")]
            self._must_go |= frozenset(lost) if self.fatal else frozenset()

    @property
    def over(self) -> bool:
        """Whether the job has recovered."""
        return self.recovered_at is not None

    @property
    def since(self) -> float:
        """The time from which on the job has `settle_s` to recover."""
        return self._undone.time if self._undone is not None else self.injected.time

    @property
    def waits(self) -> bool:
        """Whether it has yet to be undone."""
        return self.planned.for_s is not None and not self.fatal and self._undone is None

    @property
    def fatal(self) -> bool:
        """Whether its victims end of it, rather than when it is undone."""
        kind, for_s = self.planned.kind, self.planned.for_s
        if kind in {Kind.HOLD_GIL, Kind.SPIN}:
            return for_s == LASTS_S[kind]
        return kind in FATAL or (kind is Kind.STOP and for_s is None)

    def take(self, record: Record, scene: Scene) -> None:
        """Take one more fact, and the scene after it."""
        if self.over:
            return
        if self.waits and record.event == "FaultUndone" and record.get("fault") == self.planned.number:
            self._undone, self._gone_on = record, False
        self._note_times(record, scene)
        self._note_steps(record, scene)
        self._note_words(record)
        if record.event in ("JobFailed", "SlotGaveUp"):
            self.failure = str(record.get("reason"))
        if record.event == "CheckpointLoaded" and Path(record.get("path")).name == self.injected.get("target"):
            self.damage_loaded = True
        if record.event == "JobFinished" or self._is_over(scene):
            self.recovered_at = record.time

    def _note_times(self, record: Record, scene: Scene) -> None:
        if self._trouble_at is None and (record.event in _TROUBLE or record.event == "JobStarted"):
            self._trouble_at = record.time
        if self._started_at is None and record.event == "WorkerStarted":
            self._started_at = record.time
        if record.event == "WorldFormed" and scene.world.number > self.before.world.number:
            self._formed_at = record.time

    def _note_steps(self, record: Record, scene: Scene) -> None:
        if scene.world.number > self._world:
            self._world = scene.world.number
            self.steps_lost += max(0, self._reached - scene.world.begins)
            self._reached = scene.world.begins
        if record.event in _STEPS:
            step = int(record.get("step"))
            mark = self._undone if self._undone is not None else self.injected
            self._gone_on |= step > int(mark.get("at_step")) or self._world > self.before.world.number
            self._reached = max(self._reached, step)

    def _note_words(self, record: Record) -> None:
        get, where = record.get, f"{record.host}[{record.slot}]"
        match record.event:
            case "WorkerLost" if get("root_cause"):
                self.said.append((where, f"WorkerLost {get('cause')}: {get('summary')}"))
            case "WorkerFailed":
                self.said.append((where, f"WorkerFailed {get('summary')}"))
            case "WorkerLeft" if get("worker_pid") in self.injected.get("pids"):
                self.said.append((where, f"WorkerLeft {get('reason')}"))
            case "StandbyLost" if get("standby_pid") in self.injected.get("pids"):
                self.said.append(("standby", f"StandbyLost {get('reason')}"))
            case "JobStarted":
                self.said.append(("driver", f"JobStarted launcher started again ({get('restarts')})"))
            case "CheckpointRejected":
                self.said.append((Path(get("path")).name, f"CheckpointRejected {get('reason')}"))

    def _is_over(self, scene: Scene) -> bool:
        if self.waits or not self._gone_on:
            return False
        world = scene.world
        if not world.whole or world.size != int(self.injected.get("slots")):
            return False
        if self.fatal and self.planned.target == "driver":
            return scene.launchers > self.before.launchers and world.number > self.before.world.number
        return not self._must_go & (world.pids | frozenset(scene.standbys))

    def recovery(self) -> Recovery | None:
        """Return the time to recover by phase; None when training was not disturbed or has not recovered."""
        if self.recovered_at is None or self._formed_at is None:
            return None
        marks = [self._trouble_at, self._started_at, self._formed_at, self.recovered_at]
        at, spent = self.injected.time, []
        for mark in marks:
            reached = min(max(at, mark if mark is not None else at), self.recovered_at)
            spent.append(round(reached - at, 6))
            at = reached
        return Recovery(*spent)


def name_of(slot: tuple[str, int]) -> str:
    """Return a slot as facts for people name it."""
    return f"{slot[0]}[{slot[1]}]"
