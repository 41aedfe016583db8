"""The file that keeps the facts of a run, and its readers.

Theory of operation. `events.jsonl` of the run directory holds one JSON object a line:

    schema      the version of this format; absent means 1
    time        seconds since 1970, by the clock of who wrote it
    event       the fact's name, a class of `events`
    host, slot  where it was seen; slot -1: not in a slot
    pid         of the process that wrote it
    rank        of its worker in the world; -1: none
    generation  of that world; 0: none yet
    ...         the fact's own fields

Within a schema, facts and fields may be added: a reader ignores names that it does not know and takes
defaults for fields that are missing. The number rises when a name is removed or changes its meaning;
lines of a newer schema than one's own are for a newer reader (see `views.run.load`).

A line is one `write` to a file opened for appending, so that lines of several processes do not mix.
A disk that is full cuts a line off; whoever writes next sees that the last line has no end and
begins a new one, and readers skip what is no JSON. This holds within one kernel. Where other
machines may write too (NFS and the like), each has a file of its own, `events-MACHINE.jsonl`; readers
take all of them and sort by time.

What cannot be written is lost, which is said once; training goes on, and so do facts once there is
room again.
"""

import errno
import json
import os
import socket
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, ClassVar, Protocol

from elastic.filesystem import is_shared

SCHEMA = 1
_END_BYTES = 1 << 18


@dataclass(frozen=True, slots=True)
class Event:
    """A fact; the class name is its name in the file."""

    registry: ClassVar[dict[str, type["Event"]]] = {}

    def __init_subclass__(cls) -> None:
        Event.registry[cls.__name__] = cls


class Sink(Protocol):
    """Whoever takes facts."""

    def emit(self, event: Event) -> None:
        """Take one fact; never raises."""


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
    schema: int = SCHEMA

    def get(self, name: str, default: Any = None) -> Any:
        """Return the fact's own field `name`."""
        return self.fields.get(name, default)


@dataclass(frozen=True, slots=True)
class FactsLost(Event):
    """Facts that could not be written before this line, and why."""

    count: int
    error: str


class EventLog:
    """The sink that appends to the events file.

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
        self._lost = 0
        self._error = ""

    def emit(self, event: Event) -> None:
        """Append one fact as one line, or say once that this is not possible."""
        lost = self._line(FactsLost(self._lost, self._error)) if self._lost else ""
        try:
            self._append((lost + self._line(event)).encode())
        except OSError as error:
            if not self._lost:
                print(f"elastic: events are not written, training goes on: {error}", file=sys.stderr, flush=True)
            self._lost += 1
            self._error = str(error)
        else:
            self._lost = 0

    def close(self) -> None:
        """Let go of the file; a further fact opens it again."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _line(self, event: Event) -> str:
        head = {
            "schema": SCHEMA,
            "time": round(time.time(), 6),
            "event": type(event).__name__,
            "generation": self.generation,
            "host": self.host,
            "slot": self.slot,
            "pid": os.getpid(),
            "rank": self.rank,
        }
        return json.dumps(head | asdict(event), separators=(",", ":"), default=str) + "\n"

    def _append(self, data: bytes) -> None:
        if self._fd is None:
            flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
            self._fd = os.open(own_file(self.path), flags, 0o644)
        size = os.fstat(self._fd).st_size
        if size and os.pread(self._fd, 1, size - 1) != b"\n":
            data = b"\n" + data
        if os.write(self._fd, data) != len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path))


def own_file(path: Path) -> Path:
    """Return where this machine's processes write what readers find under `path`."""
    return path.with_stem(f"{path.stem}-{socket.gethostname()}") if is_shared(path) else path


def files_of(path: Path) -> list[Path]:
    """Return the files that hold a run's facts, `path` first, which may not exist."""
    return [path, *sorted(path.parent.glob(f"{path.stem}-*{path.suffix}"))]


_HEAD = tuple(f.name for f in fields(Record) if f.name != "fields")


def parse(line: str) -> Record | None:
    """Return the record of one line, or None for a torn or foreign one."""
    try:
        raw = json.loads(line)
        raw.setdefault("schema", 1)
        found = Record(**{name: raw.pop(name) for name in _HEAD}, fields=raw)
        return found if isinstance(found.time, (int, float)) else None
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError):
        return None


def read(path: Path) -> list[Record]:
    """Return all whole records of a run in the order of their time."""
    return sorted(Tail(path).new(), key=lambda record: record.time)


def last_generation(path: Path) -> int:
    """Return the number of the newest world that a run tells of, 0 for none; reads the files' ends alone."""
    found = 0
    for file_path in files_of(path):
        try:
            with file_path.open("rb") as file:
                file.seek(max(0, file_path.stat().st_size - _END_BYTES))
                lines = file.read().decode("utf-8", "replace").splitlines()
        except FileNotFoundError:
            continue
        found = max(found, *(record.generation for line in lines if (record := parse(line))), 0)
    return found


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
    """The records that have been appended to a run's files since they were last looked at.

    Args:
        path: the events file, which may not exist yet; those of other machines lie beside it.
        from_end: leave out what is there already.
    """

    def __init__(self, path: Path, *, from_end: bool = False) -> None:
        self._path = path
        self._files = {file: Lines(file, from_end=from_end) for file in files_of(path)}

    def new(self) -> Iterator[Record]:
        """Yield the whole records that came since the last call, file by file."""
        for file in files_of(self._path):
            lines = self._files.setdefault(file, Lines(file))
            for line in lines.new():
                if record := parse(line):
                    yield record
