"""The MNIST job with a fault in it: its model does something unkind when a file tells it to.

The tests write `fault.json` ({"kind": ..., "rank": ..., "step": ...}) into the working directory; the
worker of that rank removes the file, so that its successor is spared, and does the deed.
"""

import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import keras

from elastic.examples.mnist import model as build

FAULT = Path("fault.json")


class Deed(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        import horovod.tensorflow as hvd

        try:
            fault = json.loads(FAULT.read_text())
        except (OSError, ValueError):
            return
        if fault["rank"] != hvd.rank():
            return
        FAULT.unlink(missing_ok=True)
        _DEEDS[fault["kind"]]()


def _hold_gil() -> None:
    ctypes.PyDLL(None).sleep(600)  # PyDLL keeps the GIL


def _spin() -> None:
    until = time.monotonic() + 600
    while time.monotonic() < until:
        pass


def _segfault() -> None:
    ctypes.string_at(0)


def _eat_memory() -> None:
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (1 << 32, 1 << 32))
    hog = []
    while True:
        hog.append(bytearray(1 << 26))


def _leave_child() -> None:
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True)
    os.kill(os.getpid(), signal.SIGKILL)


def _raise() -> None:
    raise RuntimeError("one bad sample")


_DEEDS = {
    "hold_gil": _hold_gil,
    "spin": _spin,
    "segfault": _segfault,
    "abort": os.abort,
    "eat_memory": _eat_memory,
    "leave_child": _leave_child,
    "raise": _raise,
    "exit": lambda: os._exit(7),
}


def model() -> keras.Model:
    return build()


def callbacks() -> list[keras.callbacks.Callback]:
    return [Deed()]
