"""Between an agent and its worker: a socket for messages, a shared page for the pulse.

Theory of operation. The agent starts every worker the same way: as a process that is told what
to `Prepare` and, when it is ready, at once or much later, to `Go`. A worker that is told to go at
once is a cold start; one that waits in between is a standby. Messages are JSON, one a line, over a Unix
socket pair; the end of the stream means that the other side is gone. The worker's direction:
`Ready` (prepared, waits for `Go`), `Entering` (about to join a world), `Entered`, `AskAhead` and
`GoOver` (see `agent.ahead`), and `Failed` or `Finished` or `Left` before it ends.

The pulse is one page of memory that both map: the worker writes what it is doing and how far it
is, the agent reads it when it likes. Writing costs a microsecond and wakes nobody, so it can be
done every step.
"""

import json
import mmap
import os
import socket
import time
from dataclasses import asdict, dataclass, field, fields
from enum import IntEnum
from typing import Any, ClassVar, TypeVar

from elastic.errors import WorkerError


@dataclass(frozen=True, slots=True)
class Message:
    """Anything that crosses the socket; the class name is its tag."""

    registry: ClassVar[dict[str, type["Message"]]] = {}

    def __init_subclass__(cls) -> None:
        Message.registry[cls.__name__] = cls


@dataclass(frozen=True, slots=True)
class Prepare(Message):
    """Agent: load this job. `level`: how far it warms up before it goes; `quiet`: others tell of the epochs."""

    job: str
    config: dict[str, Any]
    run_dir: str
    standby: bool
    level: str = "off"
    quiet: bool = False


@dataclass(frozen=True, slots=True)
class Go(Message):
    """Agent: enter the world of this slot. `entry` says how (see `worker.world`)."""

    env: dict[str, str]
    entry: str
    host: str
    slot: int
    generation: int = 0
    agent_pid: int = 0
    stash_fd: int = -1


@dataclass(frozen=True, slots=True)
class Drain(Message):
    """Agent: finish the step, commit, and leave."""

    reason: str


@dataclass(frozen=True, slots=True)
class Ready(Message):
    """Worker: prepared; waits for `Go`."""

    rss_bytes: int
    took_s: float
    sources: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Entering(Message):
    """Worker: about to join a world; from here on its slot counts as taken."""


@dataclass(frozen=True, slots=True)
class Entered(Message):
    """Worker: in a world."""

    rank: int
    size: int
    generation: int


@dataclass(frozen=True, slots=True)
class AskAhead(Message):
    """Worker: the set of hosts has changed; have the next world made while this one trains on.

    `attempt`: how often this world has asked.
    """

    generation: int
    attempt: int = 1


@dataclass(frozen=True, slots=True)
class HostsAnnounced(Message):
    """Agent: the launcher has announced that hosts have changed; `removed`: some were taken away."""

    removed: bool


@dataclass(frozen=True, slots=True)
class NextWorldReady(Message):
    """Agent: everybody that the next world waits for is there (or, `late`, will not come)."""

    generation: int
    attempt: int = 1
    late: bool = False


@dataclass(frozen=True, slots=True)
class GoOver(Message):
    """Worker: all have agreed to leave this world for the next one."""

    generation: int


@dataclass(frozen=True, slots=True)
class Failed(Message):
    """Worker: an exception ended it; `config` when the user must change the job."""

    summary: str
    traceback: str
    step: int
    config: bool = False


@dataclass(frozen=True, slots=True)
class Finished(Message):
    """Worker: the training goal is reached."""


@dataclass(frozen=True, slots=True)
class Left(Message):
    """Worker: drained; `whole_job` when everybody leaves."""

    whole_job: bool


M = TypeVar("M", bound=Message)


class Channel:
    """One end of the socket. Not for several threads at once in one direction."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._rest = b""
        self._pending: list[Message] = []

    @staticmethod
    def pair() -> tuple["Channel", socket.socket]:
        """Return the agent's end and the socket to hand to the worker."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        return Channel(ours), theirs

    def send(self, message: Message) -> bool:
        """Send one message; False when the other side is gone."""
        line = json.dumps({"tag": type(message).__name__, **asdict(message)}) + "\n"
        try:
            self.sock.sendall(line.encode())
        except OSError:
            return False
        return True

    def receive(self) -> list[Message] | None:
        """Return what has come (waits for something), or None at the end of the stream."""
        if self._pending:
            pending, self._pending = self._pending, []
            return pending
        try:
            data = self.sock.recv(1 << 20)
        except BlockingIOError:
            return []
        except OSError:
            return None
        if not data:
            return None
        *lines, self._rest = (self._rest + data).split(b"\n")
        return [_decode(line) for line in lines]

    def expect(self, kind: type[M]) -> M | None:
        """Wait for the next message, which must be a `kind`; None when the other side is gone."""
        got: list[Message] | None = []
        while not got:
            got = self.receive()
            if got is None:
                return None
        first, *self._pending = got
        if not isinstance(first, kind):
            raise WorkerError(f"found the message {type(first).__name__}, expected {kind.__name__}")
        return first

    def close(self) -> None:
        self.sock.close()


def _decode(line: bytes) -> Message:
    raw = json.loads(line)
    kind = Message.registry[raw.pop("tag")]
    known = {f.name for f in fields(kind)}
    return kind(**{k: v for k, v in raw.items() if k in known})


class Phase(IntEnum):
    """What a worker is doing, as the hang verdict needs to know it."""

    STARTING = 0  # importing, loading the user's model and data
    WAITING = 1  # a standby without a slot
    ENTERING = 2  # Horovod init, rendezvous
    SYNCING = 3
    COMPILING = 4  # the first step traces
    STEPPING = 5  # in a step's computation, or in its collective
    USER = 6  # callbacks and data between steps
    VALIDATING = 7
    SAVING = 8
    ENDING = 9
    AFTER = 10  # what the user's script does after training


@dataclass(frozen=True, slots=True)
class Beat:
    """A reading of the pulse; times on the monotonic clock, in seconds."""

    heartbeat: float
    phase: Phase
    since: float
    step: int
    in_collective: bool = False
    own_s: float = 0.0  # of a step, without the wait for peers (see `worker.own_time`); 0: unknown


@dataclass(slots=True)
class Pulse:
    """The shared page: the worker writes, the agent reads, neither waits.

    Each field is one aligned 8-byte word that is stored whole, and phase and its start share a
    word, so that a reader can never see half of a change.
    """

    fd: int
    _page: mmap.mmap = field(init=False, repr=False)
    _words: "memoryview[int]" = field(init=False, repr=False)

    _HEARTBEAT: ClassVar[int] = 0
    _PHASE: ClassVar[int] = 1
    _STEP: ClassVar[int] = 2
    _COLLECTIVE: ClassVar[int] = 3
    _OWN: ClassVar[int] = 4

    def __post_init__(self) -> None:
        self._page = mmap.mmap(self.fd, mmap.PAGESIZE)
        self._words = memoryview(self._page).cast("q")

    @classmethod
    def create(cls) -> "Pulse":
        """Return a new page, of a process that starts now."""
        fd = os.memfd_create("elastic-pulse", os.MFD_CLOEXEC)
        os.ftruncate(fd, mmap.PAGESIZE)
        pulse = cls(fd)
        pulse.heartbeat()
        pulse.enter(Phase.STARTING)
        return pulse

    def heartbeat(self) -> None:
        """Say: this process runs Python."""
        self._words[self._HEARTBEAT] = time.monotonic_ns()

    def enter(self, phase: Phase) -> None:
        """Say what begins now."""
        self._words[self._PHASE] = time.monotonic_ns() & ~0xF | phase

    def step_done(self, step: int) -> None:
        """Say that a step is complete, and that the user's code is next."""
        self._words[self._STEP] = step
        self.enter(Phase.USER)

    def collective(self, inside: bool) -> None:
        """Say that this worker waits for its peers, or no longer does."""
        self._words[self._COLLECTIVE] = inside

    def own_time(self, own_s: float) -> None:
        """Say what this worker itself needs of a step; 0: not known yet."""
        self._words[self._OWN] = round(own_s * 1e9)

    def read(self) -> Beat:
        """Return what the worker last said."""
        phase = self._words[self._PHASE]
        return Beat(
            heartbeat=self._words[self._HEARTBEAT] / 1e9,
            phase=Phase(phase & 0xF),
            since=(phase & ~0xF) / 1e9,
            step=self._words[self._STEP],
            in_collective=bool(self._words[self._COLLECTIVE]),
            own_s=self._words[self._OWN] / 1e9,
        )

    def close(self) -> None:
        """Unmap the page."""
        self._words.release()
        self._page.close()
        os.close(self.fd)
