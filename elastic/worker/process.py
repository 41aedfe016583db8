"""This process among others: who it dies with, how politely it warms up, what it has loaded."""

import ctypes
import os
import resource
import signal
import sys
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_POLITE = 5  # a quarter of a busy core: warming takes half a minute beside training, not minutes


def die_with_parent(parent: int) -> None:
    """Let the kernel kill this process when its parent dies."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(0)  # it died before the kernel was told


def be_polite() -> None:
    """Give way to workers that train, where the priority can be raised again later."""
    if os.geteuid() == 0 or resource.getrlimit(resource.RLIMIT_NICE)[0] >= 20:
        os.nice(_POLITE)


def belong_to(agent: int) -> None:
    """Become the worker of `agent`: full priority for every thread, and no other's death matters."""
    if agent != os.getppid():
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, 0)
    if os.getpriority(os.PRIO_PROCESS, 0) > 0:
        for thread in Path("/proc/self/task").iterdir():
            os.setpriority(os.PRIO_PROCESS, int(thread.name), 0)


def user_sources() -> dict[str, int]:
    """Return the source files outside of this package and the installed ones, with their times of change in ns."""
    own = Path(__file__).parents[1]
    found = {}
    for module in list(sys.modules.values()):
        name = getattr(module, "__file__", None)
        if not name or "site-packages" in name or name.startswith((sys.base_prefix, str(own))):
            continue
        try:
            found[name] = os.stat(name).st_mtime_ns  # noqa: PTH116 - hundreds of plain calls
        except OSError:
            continue
    return found
