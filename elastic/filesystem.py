"""Files whole or not at all; and on what kind of file system a path is.

Only on this machine's own file systems do several writers append safely to one file.
"""

import os
from pathlib import Path

# File systems of one kernel: there, an append is atomic among all processes that can reach the file.
LOCAL = frozenset(
    {"ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "zfs", "bcachefs", "jfs", "overlay", "aufs"}
    | {"tmpfs", "ramfs", "rootfs", "vfat", "exfat", "ntfs3"}
)
MOUNTS = Path("/proc/self/mountinfo")


def write_whole(path: Path, data: bytes) -> None:
    """Write a file that readers see whole, the old one or the new one; raises `OSError`."""
    new = path.with_name(f".{path.name}.{os.getpid()}")
    new.write_bytes(data)
    new.replace(path)


def kind_of(path: Path, mounts: str) -> str:
    """Return the type of the file system that holds `path`, which is absolute; "" when it cannot be told.

    Args:
        path: need not exist.
        mounts: the text of `/proc/self/mountinfo` (see proc(5)): later mounts lie over earlier ones.
    """
    best, kind = -1, ""
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        fields = before.split(" ")
        if len(fields) < 5 or not after:
            continue
        point = Path(fields[4].encode("latin-1", "replace").decode("unicode_escape"))  # a blank is written \040
        if len(point.parts) >= best and path.is_relative_to(point):
            best, kind = len(point.parts), after.split(" ")[0]
    return kind


def is_shared(path: Path) -> bool:
    """Tell whether other machines may write there too; a file system that is not known is taken to be shared."""
    try:
        mounts = MOUNTS.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return True
    return kind_of(path.resolve(), mounts) not in LOCAL
