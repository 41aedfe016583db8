"""The facts of a run: a catalogue of typed events, past tense.

Each class is one fact; its name and its fields are what a line of `events.jsonl` holds besides who
saw it when. How lines are written and read, and what may change about them, is in `eventlog`; its
names can be had from here too.
"""

from dataclasses import dataclass, field

from elastic.eventlog import Event, EventLog, FactsLost, Lines, Record, Sink, Tail, last_generation, parse, read

__all__ = ["Event", "EventLog", "FactsLost", "Lines", "Record", "Sink", "Tail", "last_generation", "parse", "read"]


@dataclass(frozen=True, slots=True)
class JobStarted(Event):
    """`elastic run` starts the launcher, for the time `restarts` + 1; `versions` of what it runs with."""

    job: str
    launcher: str
    min_workers: int
    max_workers: int
    restarts: int = 0
    versions: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AgentStarted(Event):
    """The launcher has started this slot's agent."""

    launcher: str


@dataclass(frozen=True, slots=True)
class WorkerStarted(Event):
    """The agent has given the slot a worker, which is not in a world yet."""

    worker_pid: int
    entry: str  # how it will enter the world: "launched" or "rejoin"
    source: str  # "cold" or "standby"


@dataclass(frozen=True, slots=True)
class WorkerLost(Event):
    """A worker has ended though nobody wanted it to; not `root_cause`: another's loss took it along."""

    worker_pid: int
    cause: str
    summary: str
    root_cause: bool = True
    detected_s: float = 0.0  # from the death (or the last heartbeat) to this fact


@dataclass(frozen=True, slots=True)
class WorkerLeft(Event):
    """An end that nobody needs to be alarmed about."""

    worker_pid: int
    reason: str


@dataclass(frozen=True, slots=True)
class WorkerFailed(Event):
    """The user's code raised; `traceback` is what the user needs to see first."""

    summary: str
    traceback: str
    step: int


@dataclass(frozen=True, slots=True)
class CollectiveFailed(Event):
    """A survivor that had completed `step` noticed that a peer is gone."""

    step: int
    error: str


@dataclass(frozen=True, slots=True)
class HostsChanged(Event):
    """This worker's world knows that another set of hosts is there."""

    step: int


@dataclass(frozen=True, slots=True)
class WorldFormed(Event):
    """This worker is part of a new world, in sync with its peers.

    `phases_s` are seconds by phase, in order.
    """

    size: int
    root: int
    epoch: int
    step: int
    phases_s: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FirstStepDone(Event):
    """The first step of a generation; `pause_s` since this worker's last step before it (0: none)."""

    step: int
    pause_s: float
    first_step_s: float


@dataclass(frozen=True, slots=True)
class Progressed(Event):
    """Where training is; written by rank 0 about once a second.

    `metrics` are rank 0's own, over its samples of the epoch so far.
    """

    epoch: int
    epochs: int
    epoch_step: int
    step: int
    consumed: int
    owed: int
    samples: int
    samples_per_s: float
    size: int
    metrics: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class EpochEnded(Event):
    """All workers have ended an epoch; `metrics` over all their samples, validation included."""

    epoch: int
    step: int
    samples: int
    metrics: dict[str, float]
    took_s: float
    size: int


@dataclass(frozen=True, slots=True)
class Committed(Event):
    """The state of this step is one that a checkpoint may be written of."""

    epoch: int
    step: int


@dataclass(frozen=True, slots=True)
class CheckpointWritten(Event):
    """`took_s` on its own thread; training stood still for `blocked_s` of it."""

    step: int
    path: str
    size_bytes: int
    took_s: float
    blocked_s: float = 0.0


@dataclass(frozen=True, slots=True)
class CheckpointFailed(Event):
    """The disk refused a checkpoint; training goes on."""

    step: int
    error: str


@dataclass(frozen=True, slots=True)
class CheckpointRejected(Event):
    """A checkpoint that cannot be trusted, and why; an older one is taken."""

    path: str
    reason: str


@dataclass(frozen=True, slots=True)
class CheckpointLoaded(Event):
    """No worker held the state: training goes on from this checkpoint."""

    step: int
    path: str


@dataclass(frozen=True, slots=True)
class StashLoaded(Event):
    """No worker held the state, but this slot's agent did: the last worker had put it by."""

    step: int


@dataclass(frozen=True, slots=True)
class StandbyReady(Event):
    """A process that can take a slot at once."""

    standby_pid: int
    level: str
    rss_bytes: int
    took_s: float


@dataclass(frozen=True, slots=True)
class StandbyPromoted(Event):
    """A standby has taken a slot."""

    standby_pid: int
    took_s: float  # from the claim to the hand-over


@dataclass(frozen=True, slots=True)
class StandbyLost(Event):
    """A standby has ended, or was thrown away."""

    standby_pid: int
    reason: str


@dataclass(frozen=True, slots=True)
class PreemptionNoticed(Event):
    """This host will be taken away, `in_s` from now if that was said."""

    reason: str
    in_s: float | None


@dataclass(frozen=True, slots=True)
class DrainRequested(Event):
    """The slot was told to leave; its worker finishes the step."""

    reason: str


@dataclass(frozen=True, slots=True)
class SlotGaveUp(Event):
    """The slot's agent exits non-zero; `bug` when another host would fail the same way."""

    reason: str
    bug: bool = False
    code: int = 1


@dataclass(frozen=True, slots=True)
class WeightsHashed(Event):
    """The trained weights of this worker at a step that all reached together: equal on all ranks."""

    step: int
    sha256: str


@dataclass(frozen=True, slots=True)
class JobFinished(Event):
    """The goal is reached."""

    epochs: int
    step: int
    samples: int
    samples_owed: int
    metrics: dict[str, float]
    stopped_early: bool = False


@dataclass(frozen=True, slots=True)
class JobFailed(Event):
    """`elastic run` has given the job up."""

    reason: str


@dataclass(frozen=True, slots=True)
class JobStopped(Event):
    """The whole job was told to stop; it can be gone on with."""

    reason: str


@dataclass(frozen=True, slots=True)
class WorkerStraggled(Event):
    """A worker holds the others up: it needs `own_s` of a step for itself, its peers `peers_s` (see `stragglers`)."""

    of_host: str
    of_slot: int
    of_rank: int
    own_s: float
    peers_s: float


@dataclass(frozen=True, slots=True)
class FaultInjected(Event):
    """`elastic chaos` broke something on purpose.

    `fault` counts from 1, `at_step` is what training had reached, `slots` how many workers there are
    to be once it is cured.
    """

    fault: int
    kind: str
    target: str
    pids: list[int]
    places: list[str]  # host[slot] of each of them that has one
    at_step: int
    slots: int


@dataclass(frozen=True, slots=True)
class FaultUndone(Event):
    """`elastic chaos` has taken back what it had broken."""

    fault: int
    at_step: int


@dataclass(frozen=True, slots=True)
class FaultSkipped(Event):
    """A fault of the plan cannot be had here."""

    fault: int
    kind: str
    reason: str


@dataclass(frozen=True, slots=True)
class WorkerCaughtUp(Event):
    """A straggler is none any more."""

    of_host: str
    of_slot: int
    of_rank: int
    own_s: float
