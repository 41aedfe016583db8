"""Who is where in a job, as its facts tell: a pure fold, for aiming faults and for judging them."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from elastic.events import Record

Slot = tuple[str, int]
"""A host and which of its slots."""


@dataclass(frozen=True, slots=True)
class Process:
    """A process of the job; `slot` is None for one that has none."""

    pid: int
    slot: Slot | None = None

    def __str__(self) -> str:
        where = f"{self.slot[0]}[{self.slot[1]}], " if self.slot is not None else ""
        return f"{where}pid {self.pid}"


@dataclass(frozen=True, slots=True)
class World:
    """The newest world that formed.

    Attributes:
        number: from 1, counted over all launchers of the run.
        members: by rank, as far as they have told.
        stepping: pids of those that have done a step in it.
    """

    number: int = 0
    generation: int = 0
    size: int = 0
    begins: int = 0
    members: Mapping[int, Process] = field(default_factory=dict)
    stepping: frozenset[int] = frozenset()

    @property
    def whole(self) -> bool:
        """Whether all members train."""
        return self.size > 0 and len(self.members) == self.size and self.pids <= self.stepping

    @property
    def pids(self) -> frozenset[int]:
        return frozenset(p.pid for p in self.members.values())


@dataclass(frozen=True, slots=True)
class Scene:
    """A job at one moment.

    Attributes:
        world: the newest.
        workers: the newest worker process of each slot, the one started last at the end.
        agents: by slot.
        standbys: ready ones, oldest first.
        launchers: how many have been started.
        step: the furthest that a fact told of since the newest world formed.
        training: whether any step has ever been done.
        end: the event that ended the job, or None.
    """

    world: World = World()
    workers: Mapping[Slot, Process] = field(default_factory=dict)
    agents: Mapping[Slot, Process] = field(default_factory=dict)
    standbys: tuple[int, ...] = ()
    launchers: int = 0
    step: int = 0
    training: bool = False
    end: str | None = None


_ENDS = frozenset({"JobFinished", "JobFailed", "JobStopped"})
_STARTING_POINTS = frozenset({"CheckpointLoaded", "StashLoaded"})  # their step is none that was done just now


def after(scene: Scene, record: Record) -> Scene:
    """Return the scene after one more fact."""
    slot = (record.host, record.slot)
    match record.event:
        case "JobStarted":
            return replace(scene, launchers=scene.launchers + 1, end=None, workers={}, agents={}, standbys=())
        case "AgentStarted":
            return replace(scene, agents=_with(scene.agents, Process(record.pid, slot)))
        case "WorkerStarted":
            pid = int(record.get("worker_pid"))
            standbys = tuple(p for p in scene.standbys if p != pid)
            return replace(scene, workers=_with(scene.workers, Process(pid, slot)), standbys=standbys)
        case "StandbyReady":
            return replace(scene, standbys=(*scene.standbys, int(record.get("standby_pid"))))
        case "StandbyPromoted" | "StandbyLost":
            gone = int(record.get("standby_pid"))
            return replace(scene, standbys=tuple(p for p in scene.standbys if p != gone))
        case "WorldFormed":
            world = _formed(scene.world, record)
            return replace(scene, world=world, step=scene.step if world.number == scene.world.number else world.begins)
        case "FirstStepDone" if record.generation == scene.world.generation:
            world = replace(scene.world, stepping=scene.world.stepping | {record.pid})
            return replace(scene, world=world, step=max(scene.step, int(record.get("step"))), training=True)
        case name if name in _ENDS:
            return replace(scene, end=name)
        case name if name not in _STARTING_POINTS and "step" in record.fields:
            return replace(scene, step=max(scene.step, int(record.get("step"))))
        case _:
            return scene


def _with(processes: Mapping[Slot, Process], newest: Process) -> Mapping[Slot, Process]:
    """Return the processes by slot with one more, which comes last."""
    assert newest.slot is not None
    return {slot: p for slot, p in processes.items() if slot != newest.slot} | {newest.slot: newest}


def _formed(world: World, record: Record) -> World:
    """Return the newest world, of which one more member tells; a rank that tells twice is of another one."""
    me = Process(record.pid, (record.host, record.slot))
    size = int(record.get("size"))
    if (record.generation, size) == (world.generation, world.size) and record.rank not in world.members:
        return replace(world, members={**world.members, record.rank: me})
    return World(world.number + 1, record.generation, size, int(record.get("step")), {record.rank: me})


def scene_of(records: Iterable[Record]) -> Scene:
    """Fold facts, in the order in which they were written, into the scene that they end with."""
    scene = Scene()
    for record in records:
        scene = after(scene, record)
    return scene


def aim(target: str, draw: float, scene: Scene) -> tuple[Process, ...]:
    """Return the processes that a target means at this moment; none where there is no such one.

    Args:
        target: as in a plan; `driver` is not in any fact and means nobody here.
        draw: in [0, 1), which of several.
        scene: who is where.
    """
    members = [scene.world.members[rank] for rank in sorted(scene.world.members)]
    number = int(found[0]) if (found := re.findall(r"\d+$", target)) else 0
    if target.startswith("rank "):
        return (scene.world.members[number],) if number in scene.world.members else ()
    if target.startswith("host "):
        return tuple(p for p in members if p.slot is not None and p.slot[0] == target[5:])
    if target.startswith("agent "):
        slots = sorted(p.slot for p in members if p.slot is not None)  # not one whose worker is still to come
        agents = [scene.agents[slot] for slot in slots if slot in scene.agents]
        return (agents[number],) if number < len(agents) else ()
    match target:
        case "random":
            return (members[int(draw * len(members))],) if members else ()
        case "all":
            return tuple(members)
        case "newcomer":
            return tuple(p for p in scene.workers.values() if p.pid not in scene.world.stepping)[-1:]
        case "standby":
            return (Process(scene.standbys[0]),) if scene.standbys else ()
        case _:
            return ()
