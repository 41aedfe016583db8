"""What a worker does to itself when `elastic chaos` asks (see `elastic.deeds`)."""

import ctypes
import json
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from elastic.deeds import EXIT_CODE, MESSAGE, Deed

_FEW_FILES = 64
_held: list[Any] = []  # what was taken and is not to be given back


class Deeds:
    """The deeds that wait for the next step, and the thread that hears of them."""

    def __init__(self, folder: Path) -> None:
        self._pipe = folder / str(os.getpid())
        self._in_step: list[Callable[[], None]] = []

    def listen(self) -> None:
        """Make the pipe and wait for requests, aside from what the worker does."""
        os.mkfifo(self._pipe, 0o600)
        threading.Thread(target=self._hear, name="deeds", daemon=True).start()

    def callback(self) -> Any:
        """Return a Keras callback, as a user might have written it, that goes wrong when asked to."""
        import keras

        in_step = self._in_step

        class Deed_(keras.callbacks.Callback):  # noqa: N801 - the name shows in the traceback of the deed
            def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
                if in_step:
                    in_step.pop()()

        return Deed_()

    def _hear(self) -> None:
        while True:
            with self._pipe.open("rb") as pipe:  # waits for somebody who writes
                for line in pipe:
                    asked = json.loads(line)
                    self._do(Deed(asked["deed"]), float(asked["amount"]))

    def _do(self, deed: Deed, amount: float) -> None:  # noqa: C901 - one case a deed
        match deed:
            case Deed.RAISE:
                self._in_step.append(_raise)
            case Deed.SPIN:
                self._in_step.append(lambda: _spin(amount))
            case Deed.SEGFAULT:
                ctypes.string_at(0)
            case Deed.ABORT:
                os.abort()
            case Deed.EXIT:
                os._exit(EXIT_CODE)
            case Deed.HOLD_GIL:
                ctypes.PyDLL(None).sleep(int(amount))  # PyDLL keeps the interpreter's lock
            case Deed.MEMORY:
                _take_memory(int(amount) << 20)
            case Deed.HOG:
                while True:
                    _held.append(b"\1" * (1 << 24))  # written, so that the pages are there
            case Deed.FDS:
                _take_files(amount)
            case Deed.STDOUT_CHILD:
                _leave_child(self._pipe, amount)
            case Deed.CLOCK:
                _set_clock(amount)


def _raise() -> None:
    raise RuntimeError(MESSAGE)


def _spin(seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        pass


def _take_memory(left: int) -> None:
    """Leave this process only `left` bytes more than it has, and take these."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + left
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    size = 1 << 24
    while size > 1 << 10:
        try:
            _held.append(bytearray(size))
        except MemoryError:
            size >>= 1


def _take_files(seconds: float) -> None:
    """Open files until there is no descriptor left; give them back after a while."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(fd.name) for fd in Path("/proc/self/fd").iterdir())
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, highest + _FEW_FILES), hard))
    taken: list[int] = []
    try:
        while True:
            taken.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
    except OSError:
        pass
    time.sleep(seconds)
    for fd in taken:
        os.close(fd)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def _leave_child(mark: Path, seconds: float) -> None:
    """Die, and leave a process in a session of its own that holds this one's standard output."""
    code = f"import time; time.sleep({seconds})"
    subprocess.Popen([sys.executable, "-c", code, str(mark)], start_new_session=True)
    os.kill(os.getpid(), signal.SIGKILL)


def _set_clock(forward: float) -> None:
    """Let Python's wall clock jump, in this process; its monotonic clock does not."""
    real = time.time
    time.time = lambda: real() + forward
