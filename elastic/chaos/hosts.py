"""The hosts file that discovery reads, changed and put back."""

import os
from collections.abc import Sequence
from pathlib import Path

GARBAGE = b"\x00\xff:::\nlocalhost:many\n:3\n<html>503 Service Unavailable</html>\n"


class HostsFile:
    """The file of one job.

    Attributes:
        lines: `host:slots`, as they are meant to be.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._new = path.with_name(".hosts.chaos")
        self.lines: tuple[str, ...] = ()

    def read(self) -> None:
        """Learn what the job started with, once it has."""
        if not self.lines and self._path.is_file():
            self.lines = tuple(self._path.read_text(encoding="utf-8").split())

    def put(self, lines: Sequence[str]) -> None:
        """Have other hosts from now on."""
        self.lines = tuple(lines)
        self.restore()

    def restore(self) -> None:
        """Write what is meant to be there, in one piece."""
        self.write("".join(f"{line}\n" for line in self.lines).encode())

    def write(self, data: bytes) -> None:
        """Write anything in one piece."""
        self._new.write_bytes(data)
        self._new.rename(self._path)

    def remove(self) -> None:
        self._path.unlink(missing_ok=True)

    def block(self) -> None:
        """Let whoever reads it wait."""
        self._new.unlink(missing_ok=True)
        os.mkfifo(self._new, 0o600)
        self._new.rename(self._path)

    def unblock(self) -> None:
        """Give those who wait what is meant to be there, and so all others."""
        waiting = os.open(self._path, os.O_RDWR | os.O_NONBLOCK)  # O_RDWR: never fails for want of a reader
        try:
            os.write(waiting, "".join(f"{line}\n" for line in self.lines).encode())
            self.restore()
        finally:
            os.close(waiting)


def slots_of(lines: Sequence[str]) -> int:
    """Return how many slots `host:slots` lines have."""
    return sum(int(line.rpartition(":")[2]) for line in lines)


def with_fewer(lines: Sequence[str]) -> tuple[str, ...] | None:
    """Return the lines without the last host, or the last slot of the only one; None if nothing would be left."""
    if len(lines) > 1:
        return tuple(lines[:-1])
    host, _, slots = lines[0].rpartition(":") if lines else ("", "", "0")
    return (f"{host}:{int(slots) - 1}",) if int(slots) > 1 else None


def with_more(lines: Sequence[str], most: int) -> tuple[str, ...] | None:
    """Return the lines with one slot more on the last host; None when there are `most` workers already."""
    if not lines or slots_of(lines) >= most:
        return None
    host, _, slots = lines[-1].rpartition(":")
    return (*lines[:-1], f"{host}:{int(slots) + 1}")
