"""Hosts from a file that people and programs edit while a job runs."""

from pathlib import Path

from discovery.hosts import Hosts, SourceError, parse
from discovery.source import Bounded

MOST_BYTES = 16 * 2**20


class File:
    """A hosts file, plain or JSON; see `hosts.parse`."""

    period_s = 0.25

    def __init__(self, path: Path, slots: int = 1) -> None:
        self.name = f"file {path}"
        self._path = path
        self._slots = slots
        self._bounded = Bounded(self._read, str(path))
        self._last: tuple[tuple[int, int, int], Hosts] | None = None

    def find(self, timeout_s: float) -> Hosts:
        """Return what the file says now."""
        return self._bounded.find(timeout_s)

    def close(self) -> None:
        """Nothing is open."""

    def _read(self) -> Hosts:
        try:
            status = self._path.stat()
            stamp = (status.st_mtime_ns, status.st_size, status.st_ino)
            if self._last is not None and self._last[0] == stamp:
                return self._last[1]
            if status.st_size > MOST_BYTES:
                raise SourceError(f"{self._path} has {status.st_size} bytes, expected a list of hosts")
            text = self._path.read_bytes().decode(errors="replace")
        except OSError as error:
            raise SourceError(f"{self._path} cannot be read: {error.strerror}") from None
        found = parse(text, self._slots)
        self._last = stamp, found
        return found
