"""Facts of a run as typed values, and the file that keeps them.

Every fact is one JSON line in `events.jsonl` of the run directory: its name (`event`), wall time
in seconds since 1970 (`time`), who saw it (`host`, `slot`, `pid`, `rank`, `generation`) and its
own fields. A line is written with one `write` to a file opened for appending, so lines of several
processes never mix; a reader skips a torn last line. Status, summary and reports are views of
this file. A file that cannot be written is reported once and then left alone: losing facts
must not stop training.
"""

import json
import os
import socket
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar, Protocol

SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Event:
    """A fact; the class name is its name in the file."""

    registry: ClassVar[dict[str, type["Event"]]] = {}

    def __init_subclass__(cls) -> None:
        Event.registry[cls.__name__] = cls


@dataclass(frozen=True, slots=True)
class JobStarted(Event):
    job: str
    launcher: str
    min_workers: int
    max_workers: int
    restarts: int = 0
    schema: int = SCHEMA


@dataclass(frozen=True, slots=True)
class AgentStarted(Event):
    launcher: str


@dataclass(frozen=True, slots=True)
class WorkerStarted(Event):
    worker_pid: int
    entry: str  # how it will enter the world: "launched" or "rejoin"
    source: str  # "cold" or "standby"


@dataclass(frozen=True, slots=True)
class WorkerLost(Event):
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
    """Where training is; written by rank 0 about once a second."""

    epoch: int
    epochs: int
    epoch_step: int
    step: int
    consumed: int
    owed: int
    samples: int
    samples_per_s: float
    size: int


@dataclass(frozen=True, slots=True)
class EpochEnded(Event):
    epoch: int
    step: int
    samples: int
    metrics: dict[str, float]
    took_s: float
    size: int


@dataclass(frozen=True, slots=True)
class Committed(Event):
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
    step: int
    error: str


@dataclass(frozen=True, slots=True)
class CheckpointRejected(Event):
    path: str
    reason: str


@dataclass(frozen=True, slots=True)
class CheckpointLoaded(Event):
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
    standby_pid: int
    took_s: float  # from the claim to the hand-over


@dataclass(frozen=True, slots=True)
class StandbyLost(Event):
    standby_pid: int
    reason: str


@dataclass(frozen=True, slots=True)
class PreemptionNoticed(Event):
    """This host will be taken away, `in_s` from now if that was said."""

    reason: str
    in_s: float | None


@dataclass(frozen=True, slots=True)
class DrainRequested(Event):
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
    epochs: int
    step: int
    samples: int
    samples_owed: int
    metrics: dict[str, float]
    stopped_early: bool = False


@dataclass(frozen=True, slots=True)
class JobFailed(Event):
    reason: str


@dataclass(frozen=True, slots=True)
class JobStopped(Event):
    reason: str


_END_BYTES = 1 << 18


@dataclass(frozen=True, slots=True)
class Record:
    """A line of the file: the fact and who saw it when."""

    time: float
    event: str
    host: str
    slot: int
    pid: int
    rank: int
    generation: int
    fields: dict[str, Any]

    def get(self, name: str, default: Any = None) -> Any:
        """Return the fact's own field `name`."""
        return self.fields.get(name, default)


class Sink(Protocol):
    """Whoever takes facts."""

    def emit(self, event: Event) -> None:
        """Take one fact; never raises."""


class EventLog:
    """The sink that appends to `events.jsonl`.

    `host`, `slot`, `rank` and `generation` are stamped on each line; the owner updates them when
    they change. `slot` and `rank` are -1 where there is none.
    """

    def __init__(self, path: Path, *, host: str | None = None, slot: int = -1) -> None:
        self.path = path
        self.host = host or socket.gethostname()
        self.slot = slot
        self.rank = -1
        self.generation = 0
        self._fd: int | None = None
        self._broken = False

    def emit(self, event: Event) -> None:
        """Append one fact as one line."""
        if self._broken:
            return
        head = {
            "time": round(time.time(), 6),
            "event": type(event).__name__,
            "generation": self.generation,
            "host": self.host,
            "slot": self.slot,
            "pid": os.getpid(),
            "rank": self.rank,
        }
        line = json.dumps(head | asdict(event), separators=(",", ":"), default=str) + "\n"
        try:
            if self._fd is None:
                flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
                self._fd = os.open(self.path, flags, 0o644)
            os.write(self._fd, line.encode())
        except OSError as error:
            self._broken = True
            print(f"elastic: events are no longer written: {error}", file=sys.stderr)


def parse(line: str) -> Record | None:
    """Return the record of one line, or None for a torn or foreign one."""
    try:
        raw = json.loads(line)
        head = {f.name: raw.pop(f.name) for f in fields(Record) if f.name != "fields"}
        return Record(**head, fields=raw)
    except (ValueError, KeyError, AttributeError, TypeError):
        return None


def read(path: Path) -> list[Record]:
    """Return all whole records of an events file in the order of their time."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except FileNotFoundError:
        return []
    found = [record for line in lines if (record := parse(line))]
    return sorted(found, key=lambda record: record.time)


def last_generation(path: Path) -> int:
    """Return the number of the newest world that an events file tells of, 0 for none; reads its end alone."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - _END_BYTES))
            lines = file.read().decode("utf-8", "replace").splitlines()
    except FileNotFoundError:
        return 0
    return max((record.generation for line in lines if (record := parse(line))), default=0)


class Lines:
    """A reader of a growing text file that returns what has been appended since it last looked.

    Args:
        path: a file that may not exist yet.
        from_end: leave out what is there already.
    """

    def __init__(self, path: Path, *, from_end: bool = False) -> None:
        self._path = path
        self._offset = path.stat().st_size if from_end and path.exists() else 0
        self._rest = b""

    def new(self) -> Iterator[str]:
        """Yield the whole lines that came since the last call."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                data = file.read()
        except FileNotFoundError:
            return
        self._offset += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            yield line.decode("utf-8", "replace")


class Tail:
    """The records that have been appended to an events file since it was last looked at."""

    def __init__(self, path: Path, *, from_end: bool = False) -> None:
        self._lines = Lines(path, from_end=from_end)

    def new(self) -> Iterator[Record]:
        """Yield the whole records that came since the last call."""
        for line in self._lines.new():
            if record := parse(line):
                yield record
