"""The keeper: the one agent of a host that keeps the pool of warm standbys for all of them.

Theory of operation. A standby is a worker process that was told to `Prepare` and waits for `Go`.
Handing it over means passing its five descriptors (channel, pulse, pidfd, output, error) and the
job it was prepared for over the Unix socket. The keeper remains its parent: it holds the claim's
connection open, tells the claimer through it how the worker ended, and kills the worker when the
claimer is gone. A worker that was handed over no longer dies with the keeper, but with its agent.
"""

import contextlib
import json
import os
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elastic.agent.claim import CLAIM, COUNT
from elastic.agent.loop import Loop
from elastic.agent.meeting import Meeting, is_ours
from elastic.agent.pool import Pool, Warm, refill
from elastic.agent.process import WorkerProcess, fds_of
from elastic.channel import Prepare, Ready
from elastic.events import Sink, StandbyLost, StandbyReady

CHUNK = 1 << 16
STANDS_STILL = "stands still"


@dataclass
class Standby:
    """A process of the pool; `ready` once it waits for a slot."""

    worker: WorkerProcess
    ready: Ready | None = None


class Keeper:
    """Keeps the pool while it holds the lock of the meeting place.

    A standby that has shown no life for `silent_s` is thrown away: it could not take a slot. `spawn`
    starts a worker process with an environment.
    """

    def __init__(
        self,
        loop: Loop,
        meeting: Meeting,
        lock: int,
        events: Sink,
        prepare: Prepare,
        env: Mapping[str, str],
        size: int,
        log: Path,
        silent_s: float,
        spawn: Callable[[Mapping[str, str]], WorkerProcess],
    ) -> None:
        self._loop = loop
        self._meeting = meeting
        self._lock = lock
        self._events = events
        self._prepare = prepare
        self._env = env
        self._size = size
        self._log = log
        self._silent_s = silent_s
        self._spawn = spawn
        self._standbys: list[Standby] = []
        self._handed: dict[int, tuple[WorkerProcess, socket.socket]] = {}
        self._training_since: float | None = None
        self._failures = 0
        self._last_failure = 0.0
        self._server: socket.socket | None = None

    def open(self) -> None:
        """Listen for claims."""
        server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with contextlib.suppress(FileNotFoundError):
            self._meeting.socket.unlink()
        server.bind(str(self._meeting.socket))
        server.listen(16)
        server.setblocking(False)
        self._server = server
        self._loop.watch(server, self._accept)

    def training(self) -> None:
        """Hear that a worker of this host trains: the pool may take some CPU now."""
        if self._training_since is None:
            self._training_since = self._loop.now()

    def tend(self) -> None:
        """Bring the pool nearer to its size; called now and then."""
        for standby in [s for s in self._standbys if s.ready is not None and self._is_silent(s)]:
            self._drop(standby, STANDS_STILL)
        ready, warming = self.count()
        pool = Pool(
            size=self._size,
            ready=ready,
            warming=warming,
            training_since=self._training_since,
            failures=self._failures,
            last_failure=self._last_failure,
        )
        if isinstance(refill(pool, self._loop.now()), Warm):
            self._warm()

    def count(self) -> tuple[int, int]:
        """Return how many standbys are ready and how many are warming."""
        ready = sum(s.ready is not None for s in self._standbys)
        return ready, len(self._standbys) - ready

    def take(self) -> WorkerProcess | None:
        """Return a ready standby to this agent itself, whose child it stays."""
        standby = self._pick()
        if standby is None:
            return None
        worker = standby.worker
        worker.source = "standby"
        return worker

    def assignment(self) -> dict[str, Any]:
        """Return the job that the standbys are prepared for."""
        return {"job": self._prepare.job, "config": self._prepare.config, "run_dir": self._prepare.run_dir}

    def close(self) -> None:
        """End the standbys and leave the meeting place to the next keeper."""
        for standby in self._standbys:
            self._forget(standby)
            standby.worker.kill()
            standby.worker.reap()
        self._standbys = []
        if self._server is not None:
            self._loop.unwatch(self._server)
            self._server.close()
            with contextlib.suppress(FileNotFoundError):
                self._meeting.socket.unlink()
        os.close(self._lock)

    def _warm(self) -> None:
        standby = Standby(self._spawn(self._env))
        worker = standby.worker
        worker.send(self._prepare)
        self._standbys.append(standby)
        self._loop.watch(worker.channel.sock, lambda: self._listen(standby))
        self._loop.watch(worker.pidfd, lambda: self._on_death(standby))
        for fd in worker.outputs:
            self._loop.watch(fd, self._pump(standby, fd))

    def _listen(self, standby: Standby) -> None:
        messages = standby.worker.channel.receive()
        if messages is None:
            self._loop.unwatch(standby.worker.channel.sock)
            return
        for message in messages:
            if isinstance(message, Ready):
                standby.ready = message
                self._failures = 0
                fact = StandbyReady(
                    standby.worker.pid, self._prepare.level, message.rss_bytes, round(message.took_s, 3)
                )
                self._events.emit(fact)

    def _pump(self, standby: Standby, fd: int) -> Callable[[], None]:
        def pump() -> None:
            try:
                data = os.read(fd, CHUNK)
            except BlockingIOError:
                return
            if not data:
                self._loop.unwatch(fd)
            with contextlib.suppress(OSError), self._log.open("ab") as file:
                file.write(data)

        return pump

    def _on_death(self, standby: Standby) -> None:
        self._drop(standby, "died" if standby.ready else "died while warming")
        if standby.ready is None:
            self._failures += 1
            self._last_failure = self._loop.now()

    def _drop(self, standby: Standby, reason: str) -> None:
        self._forget(standby)
        self._standbys.remove(standby)
        pid = standby.worker.pid
        standby.worker.kill()
        code = standby.worker.reap()
        self._events.emit(StandbyLost(pid, f"{reason} (exit code {code})"))

    def _forget(self, standby: Standby) -> None:
        worker = standby.worker
        for file in (worker.channel.sock, worker.pidfd, *worker.outputs):
            self._loop.unwatch(file)

    def _pick(self) -> Standby | None:
        """Remove a ready, fresh standby from the pool and return it; replace stale ones."""
        for standby in [s for s in self._standbys if s.ready is not None]:
            assert standby.ready is not None
            if _stale(standby.ready.sources):
                self._drop(standby, "its code has changed")
                continue
            if self._is_silent(standby) or standby.worker.is_stopped():
                self._drop(standby, STANDS_STILL)
                continue
            self._forget(standby)
            self._standbys.remove(standby)
            return standby
        return None

    def _is_silent(self, standby: Standby) -> bool:
        return self._loop.now() - standby.worker.pulse.read().heartbeat > self._silent_s

    def _accept(self) -> None:
        assert self._server is not None
        connection, _ = self._server.accept()
        connection.settimeout(0.2)
        try:
            asked = connection.recv(64) if is_ours(connection) else b""
        except OSError:
            asked = b""
        if asked == COUNT:
            with contextlib.suppress(OSError):
                connection.send(str(self.count()[0]).encode())
        standby = self._pick() if asked == CLAIM else None
        if standby is None:
            connection.close()
            return
        worker = standby.worker
        answer = json.dumps({"pid": worker.pid, "assignment": self.assignment()}).encode()
        try:
            socket.send_fds(connection, [answer], fds_of(worker))
        except OSError:
            worker.kill()
            worker.reap()
            connection.close()
            return
        worker.let_go()
        self._handed[worker.pid] = (worker, connection)
        self._loop.watch(worker.pidfd, lambda: self._on_handed_death(worker))
        self._loop.watch(connection, lambda: self._on_claimer_gone(worker))

    def _on_handed_death(self, worker: WorkerProcess) -> None:
        _, connection = self._handed.pop(worker.pid)
        self._loop.unwatch(worker.pidfd)
        self._loop.unwatch(connection)
        code = worker.exit_code()
        os.close(worker.pidfd)
        with contextlib.suppress(OSError):
            connection.send(str(code).encode())
        connection.close()

    def _on_claimer_gone(self, worker: WorkerProcess) -> None:
        _, connection = self._handed[worker.pid]
        self._loop.unwatch(connection)
        worker.kill()


def _stale(sources: Mapping[str, int]) -> bool:
    """Tell whether a file that a standby has loaded is another by now."""
    for name, modified in sources.items():
        try:
            if os.stat(name).st_mtime_ns != modified:  # noqa: PTH116 - a plain call, on a hot path
                return True
        except OSError:
            return True
    return False
