"""Where the agents of one job on one host meet: a directory that nobody else can enter.

The directory is 0700 and ours, or it is not used. Whoever holds the lock in it keeps the pool and
listens on the socket; the others claim from there. A lock goes with its holder's death, so the
next agent that asks becomes the keeper.
"""

import fcntl
import hashlib
import os
import socket
import stat
import struct
import tempfile
from dataclasses import dataclass
from pathlib import Path

from elastic.errors import HostError


@dataclass(frozen=True, slots=True)
class Meeting:
    """The meeting place of one job on one host."""

    folder: Path

    @property
    def socket(self) -> Path:
        return self.folder / "pool"

    def open(self) -> None:
        """Make the directory, or check that the one there is ours alone.

        Raises:
            HostError: when it is not.
        """
        for folder in (self.folder.parent, self.folder):
            folder.mkdir(mode=0o700, exist_ok=True)
            found = folder.lstat()
            private = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077
            if not private:
                raise HostError(f"{folder} is not a private directory of this user; remove it or set TMPDIR")

    def take_lock(self) -> int | None:
        """Return a descriptor that holds the keeper's lock while open, or None if another holds it."""
        fd = os.open(self.folder / "keeper", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(fd)
            return None
        return fd


def meeting_of(rendezvous: str, host: str) -> Meeting:
    """Return the meeting place of the job whose launcher listens at `rendezvous`, on `host`."""
    key = hashlib.sha256(f"{rendezvous} {host}".encode()).hexdigest()[:16]
    return Meeting(Path(tempfile.gettempdir()) / f"elastic-{os.getuid()}" / key)


def is_ours(connection: socket.socket) -> bool:
    """Tell whether the other end of a Unix socket belongs to this user."""
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return bool(struct.unpack("3i", raw)[1] == os.getuid())
