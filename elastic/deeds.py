"""How a worker is asked to break itself: only where `elastic chaos` started the job.

Theory of operation. A worker whose environment names a folder (`ELASTIC_CHAOS`) makes a named pipe there,
called by its pid, and a thread of its own waits for lines of JSON from it. Each asks for one deed.
What `worker.deeds` does not know it does not do; without the variable there is no pipe and no thread.
"""

import json
import os
from enum import StrEnum
from pathlib import Path

FOLDER_VARIABLE = "ELASTIC_CHAOS"
EXIT_CODE = 7  # of the deed `exit`
MESSAGE = "chaos: an exception in a step"


class Deed(StrEnum):
    """What a worker can do to itself."""

    RAISE = "raise"
    SEGFAULT = "segfault"
    ABORT = "abort"
    EXIT = "exit"
    HOLD_GIL = "hold_gil"
    SPIN = "spin"
    MEMORY = "memory"
    HOG = "hog"
    FDS = "fds"
    STDOUT_CHILD = "stdout_child"
    CLOCK = "clock"


def ask(folder: Path, pid: int, deed: Deed, amount: float) -> bool:
    """Ask a worker for a deed; False when it does not listen (yet).

    Args:
        folder: that the worker's environment names.
        pid: of the worker.
        deed: what to do.
        amount: seconds that it lasts, or that a clock is set forward by; mebibytes for `memory`.
    """
    try:
        fd = os.open(folder / str(pid), os.O_WRONLY | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        os.write(fd, json.dumps({"deed": deed, "amount": amount}).encode() + b"\n")
    except OSError:
        return False
    finally:
        os.close(fd)
    return True
