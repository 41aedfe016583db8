"""One worker process, as its agent holds it."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import BinaryIO

from elastic.channel import Channel, Message, Pulse

TAIL_LINES = 40


@dataclass
class WorkerProcess:
    """A running worker: its channel, its pulse and its output.

    `pidfd` becomes readable at its death, whatever its own children still hold open.
    """

    process: subprocess.Popen[bytes]
    channel: Channel
    pulse: Pulse
    pidfd: int
    source: str = "cold"
    started: float = field(default_factory=time.monotonic)
    tail: deque[str] = field(default_factory=lambda: deque(maxlen=TAIL_LINES))

    @property
    def pid(self) -> int:
        return self.process.pid

    def send(self, message: Message) -> bool:
        return self.channel.send(message)

    def kill(self) -> None:
        """End it and whatever is in its process group, at once."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)

    def reap(self) -> int:
        """Return the exit code of the ended process (minus the signal), and free what it held."""
        code = self.process.wait()
        self.kill()  # children that outlived it
        self.channel.close()
        self.pulse.close()
        os.close(self.pidfd)
        return code

    def outputs(self) -> list[tuple[BinaryIO, BinaryIO]]:
        """Return the pipes to pump, each with where it goes besides the log."""
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        return [(self.process.stdout, sys.stdout.buffer), (self.process.stderr, sys.stderr.buffer)]  # type: ignore[list-item]


def spawn(env: Mapping[str, str]) -> WorkerProcess:
    """Start a worker process that waits to be told what to prepare."""
    channel, theirs = Channel.pair()
    pulse = Pulse.create()
    command = [sys.executable, "-m", "elastic.worker.main", str(theirs.fileno()), str(pulse.fd), str(os.getpid())]
    process = subprocess.Popen(
        command,
        env=dict(env),
        pass_fds=(theirs.fileno(), pulse.fd),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        process_group=0,
        bufsize=0,
    )
    theirs.close()
    return WorkerProcess(process, channel, pulse, os.pidfd_open(process.pid))
