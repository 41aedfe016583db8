"""The pulses of a job's workers, read from outside: how far each is and what it is doing."""

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path

from elastic.channel import Beat, Pulse


def pulse_of(pid: int) -> Pulse | None:
    """Return the pulse page of a worker process, to be closed; None when it is gone or has none."""
    with contextlib.suppress(OSError):
        for fd in Path(f"/proc/{pid}/fd").iterdir():
            if "elastic-pulse" in str(fd.readlink()):
                return Pulse(os.open(fd, os.O_RDWR))
    return None


class Pulses:
    """The pages of workers that have been looked at, by pid."""

    def __init__(self) -> None:
        self._pages: dict[int, Pulse] = {}

    def read(self, pid: int) -> Beat | None:
        """Return what a worker last said; None when there is no such worker."""
        page = self._pages.get(pid) or pulse_of(pid)
        if page is None:
            return None
        self._pages[pid] = page
        return page.read()

    def keep(self, pids: Iterable[int]) -> None:
        """Close the pages of all others."""
        wanted = set(pids)
        for pid in [p for p in self._pages if p not in wanted]:
            self._pages.pop(pid).close()

    def step(self, pids: Iterable[int]) -> int:
        """Return the furthest step that one of these workers has completed; 0 when none is there."""
        return max((beat.step for pid in pids if (beat := self.read(pid)) is not None), default=0)
