"""A small disk under a folder of the run directory, to be filled and made read-only.

Theory of operation. This process enters a mount namespace of its own before it starts the job, and
mounts a tmpfs over the folder there; the job's processes inherit both. So nobody else sees the small
disk, and however this process ends, the kernel takes it away with the last process of the job. What
is on it at the end is copied to where the folder was.
"""

import ctypes
import os
import shutil
from pathlib import Path

_CLONE_NEWNS = 0x00020000
_MS_RDONLY, _MS_REMOUNT, _MS_REC, _MS_PRIVATE = 1, 32, 1 << 14, 1 << 18
_MNT_DETACH = 2
_CAP_SYS_ADMIN = 21
_FILLER = "filler.chaos"


def obstacle() -> str | None:
    """Return what this machine lacks for a small disk, or None."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith("CapEff:") and not int(line.split()[1], 16) >> _CAP_SYS_ADMIN & 1:
            return "needs the right to mount a file system (CAP_SYS_ADMIN)"
    return None


class Disk:
    """A tmpfs of `size_mb` mebibytes over `folder`.

    Raises:
        OSError: from each method, when the kernel refuses.
    """

    def __init__(self, folder: Path, size_mb: int) -> None:
        self.folder = folder
        self._size_mb = size_mb
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._mounted = False

    def open(self) -> None:
        """Mount it, for this process and those that it starts from now on."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._check(self._libc.unshare(_CLONE_NEWNS))
        self._check(self._libc.mount(None, b"/", None, ctypes.c_ulong(_MS_REC | _MS_PRIVATE), None))
        before = self.folder.with_name(f".{self.folder.name}.before")
        shutil.copytree(self.folder, before)
        options = f"size={self._size_mb}m,mode=0755".encode()
        self._check(self._libc.mount(b"tmpfs", bytes(self.folder), b"tmpfs", ctypes.c_ulong(0), options))
        self._mounted = True
        shutil.copytree(before, self.folder, dirs_exist_ok=True)
        shutil.rmtree(before)

    def fill(self) -> None:
        """Leave not a byte free."""
        fd = os.open(self.folder / _FILLER, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            for size in (1 << 20, 1 << 12, 1):
                while _writes(fd, bytes(size)):
                    pass
        finally:
            os.close(fd)

    def free(self) -> None:
        """Take away what `fill` has written."""
        (self.folder / _FILLER).unlink(missing_ok=True)

    def set_read_only(self, read_only: bool) -> None:
        """Refuse writes, or take them again; the kernel refuses while a file is open for writing."""
        flags = _MS_REMOUNT | (_MS_RDONLY if read_only else 0)
        options = f"size={self._size_mb}m".encode()
        self._check(self._libc.mount(b"tmpfs", bytes(self.folder), b"tmpfs", ctypes.c_ulong(flags), options))

    def close(self) -> None:
        """Unmount it and leave its files in the folder; the job must have ended."""
        if not self._mounted:
            return
        kept = self.folder.with_name(f".{self.folder.name}.kept")
        shutil.copytree(self.folder, kept)
        self._check(self._libc.umount2(bytes(self.folder), _MNT_DETACH))
        self._mounted = False
        shutil.rmtree(self.folder)
        kept.rename(self.folder)

    def _check(self, result: int) -> None:
        if result != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), str(self.folder))


def _writes(fd: int, data: bytes) -> bool:
    try:
        return os.write(fd, data) > 0
    except OSError:
        return False
