"""The job that is broken, as a process: `elastic run`, its launcher, and whatever they leave."""

import contextlib
import os
import re
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil

from elastic.chaos.net.hosts import Net
from elastic.chaos.network import LAUNCHER
from elastic.deeds import FOLDER_VARIABLE
from elastic.events import Lines

_LAUNCHER = re.compile(r"elastic[./]launch")  # not what else `elastic run` may start
GONE_S = 5.0  # processes of a job that has ended may take to end


class Job:
    """One `elastic run`.

    Args:
        line: its command line.
        folder: where its workers listen for deeds; it is in the environment of all its processes, and by
            that they are known.
        output: the file that takes what it prints.
        net: the hosts on the first of which it runs; None: this machine.
    """

    def __init__(self, line: Sequence[str], folder: Path, output: Path, net: Net | None = None) -> None:
        self._folder = folder
        self._lines = Lines(output, from_end=True)
        env = os.environ | {FOLDER_VARIABLE: str(folder)}
        with output.open("ab", buffering=0) as file:
            options: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": file, "stderr": subprocess.STDOUT}
            if net is not None:
                env["PATH"] = f"{net.bin}:{env.get('PATH', '')}"
                self._process = net.run(LAUNCHER, line, cwd=Path.cwd(), env=env, **options)
            else:
                self._process = subprocess.Popen(line, env=env, start_new_session=True, text=True, **options)

    def code(self) -> int | None:
        """Return the exit code; None while it runs."""
        return self._process.poll()

    def show(self) -> None:
        """Print what it has printed since."""
        for text in self._lines.new():
            print(text, flush=True)

    def launchers(self) -> list[int]:
        """Return the pids of the launchers that it has started and that are there."""
        with contextlib.suppress(psutil.Error):
            children = psutil.Process(self._process.pid).children()
            return [p.pid for p in children if any(_LAUNCHER.search(word) for word in p.cmdline())]
        return []

    def stop(self) -> None:
        """Tell it to finish its step, write a checkpoint and end."""
        self._process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End what is left of it and of its launchers; agents and workers end with them."""
        if self.code() is not None:
            return
        for pid in self.launchers():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.kill()
        self._process.wait()

    def clear(self) -> list[str]:
        """Wait for all its processes to end; end those that stay and return them in words."""
        until = time.monotonic() + GONE_S
        while (left := self._left()) and time.monotonic() < until:
            time.sleep(0.1)
        words = []
        for process in left:
            with contextlib.suppress(psutil.Error):
                words.append(f"pid {process.pid}: {' '.join(process.cmdline())[:120]}")
                process.kill()
        return words

    def _left(self) -> list[psutil.Process]:
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                alive = process.pid != os.getpid() and process.status() != psutil.STATUS_ZOMBIE
                if alive and process.environ().get(FOLDER_VARIABLE) == str(self._folder):
                    found.append(process)
        return found
