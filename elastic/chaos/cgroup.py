"""A memory cgroup for a worker that is to be killed for want of memory, as a container's limit does it."""

import contextlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path

_ROOT = Path("/sys/fs/cgroup")
_NEEDS = "needs a memory cgroup that this user may make"


def obstacle() -> str | None:
    """Return what this machine lacks for it, or None."""
    parent = _parent()
    if parent is None:
        return _NEEDS
    probe = parent / f"elastic-chaos-{os.getpid()}"
    try:
        probe.mkdir()
        has_limit = any((probe / name).exists() for name in ("memory.max", "memory.limit_in_bytes"))
        probe.rmdir()
    except OSError:
        return _NEEDS
    return None if has_limit else _NEEDS


def confine(pids: Sequence[int], left_bytes: int) -> Callable[[], None]:
    """Let processes have only `left_bytes` more memory than they have; returns what ends that.

    Raises:
        OSError: when the kernel refuses.
    """
    parent = _parent()
    assert parent is not None
    group = parent / f"elastic-chaos-{os.getpid()}-{pids[0]}"
    group.mkdir()
    first = (group / "memory.limit_in_bytes").exists()  # version 1: what a process has stays with its old group
    (group / ("memory.limit_in_bytes" if first else "memory.max")).write_text(str(left_bytes))
    for pid in pids:
        (group / "cgroup.procs").write_text(str(pid))

    def undo() -> None:
        with contextlib.suppress(OSError):
            for pid in (group / "cgroup.procs").read_text().split():
                with contextlib.suppress(OSError):
                    (parent / "cgroup.procs").write_text(pid)
            group.rmdir()

    return undo


def _parent() -> Path | None:
    """Return the memory cgroup that this process is in; None where there is no such hierarchy."""
    for line in Path("/proc/self/cgroup").read_text(encoding="ascii").splitlines():
        _, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            return _ROOT / "memory" / path.lstrip("/")
        if not controllers and (_ROOT / "cgroup.controllers").exists():
            return _ROOT / path.lstrip("/")
    return None
