"""What a worker prints: into its slot's log, and on through the agent's own streams."""

import contextlib
import os
import sys
from collections.abc import Callable
from pathlib import Path

from elastic.agent.loop import Loop
from elastic.agent.process import WorkerProcess

CHUNK = 1 << 16


class Output:
    """The log of a slot. A full disk or a closed terminal must not stop training.

    Args:
        path: the log file, appended to.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def attach(self, loop: Loop, worker: WorkerProcess) -> None:
        """Copy what the worker prints from now on."""
        for fd, stream in zip(worker.outputs, (sys.stdout, sys.stderr), strict=True):
            loop.watch(fd, self._copy(loop, fd, stream.fileno()))

    def detach(self, loop: Loop, worker: WorkerProcess) -> None:
        """Copy what an ended worker has left, and no more: its own children may still hold the pipe."""
        for fd, stream in zip(worker.outputs, (sys.stdout, sys.stderr), strict=True):
            self._copy(loop, fd, stream.fileno())()
            loop.unwatch(fd)

    def _copy(self, loop: Loop, fd: int, to: int) -> Callable[[], None]:
        def copy() -> None:
            try:
                data = os.read(fd, CHUNK)
            except OSError:
                return
            if not data:
                loop.unwatch(fd)
                return
            with contextlib.suppress(OSError), self._path.open("ab") as log:
                log.write(data)
            with contextlib.suppress(OSError):
                os.write(to, data)

        return copy
