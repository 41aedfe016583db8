"""Facts of a host that does not share the driver's run directory, on their way to it."""

import contextlib
import fcntl
import os
from pathlib import Path


class Forwarder:
    """Reads the host's events file on; one process of the host at a time, the next goes on where it stopped.

    Args:
        events: the host's events file, which may not exist yet.
    """

    def __init__(self, events: Path) -> None:
        self._events = events
        self._state: int | None = None

    def new(self) -> list[str]:
        """Return the whole lines that nobody has forwarded yet; none while another process does that."""
        if self._state is None and not self._take():
            return []
        assert self._state is not None
        offset = int(os.pread(self._state, 32, 0) or b"0")
        with contextlib.suppress(FileNotFoundError), self._events.open("rb") as file:
            file.seek(offset)
            data = file.read()
            whole = data[: data.rfind(b"\n") + 1]
            if whole:
                os.pwrite(self._state, b"%-31d" % (offset + len(whole)), 0)
                return whole.decode("utf-8", "replace").splitlines()
        return []

    def close(self) -> None:
        """Let another process go on."""
        if self._state is not None:
            os.close(self._state)
            self._state = None

    def _take(self) -> bool:
        path = self._events.with_name(".forwarded")
        with contextlib.suppress(OSError):
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                os.close(fd)
                return False
            self._state = fd
            return True
        return False
