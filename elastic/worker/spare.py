"""A pruned checkpoint whose files the next one is written over.

A new file's pages have to be found, and on many virtual machines fetched from the host, which takes a
multiple of the CPU time of writing to pages that a file already has; with a checkpoint of 300 MB that
is most of what it costs the training beside it. So the newest checkpoint that is not kept any more
lies ready under a hidden name that is nobody's checkpoint, for as long as its process lives.

It is never taken from anybody: a file with a second name (a backup by hard links), or one that
somebody has open or mapped, as the kernel says when it is asked for a write lease, is deleted as usual.
"""

import contextlib
import fcntl
import os
import shutil
import signal
from pathlib import Path


class Spare:
    """The spare of a folder of checkpoints.

    Args:
        folder: theirs; the spare's name is one that `CheckpointStore` clears away when its process is gone.
        names: of the files that a checkpoint has; one with others is not taken.
    """

    def __init__(self, folder: Path, names: frozenset[str]) -> None:
        self._names = names
        self._path = folder / f".step-spare.{os.getpid()}.tmp"

    def keep(self, pruned: Path) -> None:
        """Take a checkpoint that is to be deleted, or delete it."""
        if self._path.exists():
            shutil.rmtree(pruned, ignore_errors=True)
            return
        with contextlib.suppress(OSError):  # whoever else prunes here was faster
            pruned.rename(self._path)  # from here on nobody new opens it
        files = list(self._path.iterdir()) if self._path.exists() else []
        if {file.name for file in files} != self._names or not all(map(_is_ours_alone, files)):
            self.drop()

    def become(self, path: Path) -> None:
        """Make `path` a directory: the spare, files and all, or else a new one."""
        try:
            self._path.rename(path)
        except FileNotFoundError:
            path.mkdir()

    def drop(self) -> None:
        """Delete it."""
        shutil.rmtree(self._path, ignore_errors=True)


def _is_ours_alone(file: Path) -> bool:
    try:
        fd = os.open(file, os.O_RDWR | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        if os.fstat(fd).st_nlink > 1:
            return False
        fcntl.fcntl(fd, fcntl.F_SETSIG, signal.SIGURG)  # ignored; SIGIO, for somebody who opens it now, would kill
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except OSError:  # open elsewhere, or a file system that cannot tell
        return False
    finally:
        os.close(fd)
    return True
