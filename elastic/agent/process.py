"""One worker process, as an agent holds it: its channel, its pulse, its output, its death."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from elastic.channel import Channel, Message, Pulse

WORKER = "elastic.worker.main"


@dataclass
class WorkerProcess:
    """A running worker.

    Attributes:
        pidfd: becomes readable at its death, whatever its own children still hold open.
        outputs: where its standard output and standard error can be read.
        exit_code: asked once, after its death; minus the number of a signal.
        source: "cold" or "standby".
    """

    pid: int
    channel: Channel
    pulse: Pulse
    pidfd: int
    outputs: tuple[int, int]
    exit_code: Callable[[], int]
    source: str = "cold"

    def send(self, message: Message) -> bool:
        """Send it a message; False when it is gone."""
        return self.channel.send(message)

    def signal(self, number: int) -> None:
        """Send a signal to the process itself, if it is there."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.pidfd, number)

    def kill(self) -> None:
        """End it and whatever is in its process group, at once."""
        self.signal(signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)

    def reap(self) -> int:
        """Return the exit code of the ended process, end its own children, free what it held."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        code = self.exit_code()
        self.release()
        return code

    def let_go(self) -> None:
        """Close everything but the pidfd: another process holds the rest now."""
        self.channel.close()
        self.pulse.close()
        for fd in self.outputs:
            os.close(fd)

    def release(self) -> None:
        """Close this process's hold on it."""
        self.let_go()
        os.close(self.pidfd)

    def is_stopped(self) -> bool:
        """Tell whether the kernel has stopped it (SIGSTOP): it cannot even be asked for its stacks."""
        try:
            with open(f"/proc/{self.pid}/stat", "rb") as file:  # noqa: PTH123 - a plain call
                return file.read().rpartition(b") ")[2][:1] in (b"T", b"t")
        except OSError:
            return False


def spawn(env: Mapping[str, str], module: str = WORKER) -> WorkerProcess:
    """Start a worker process that waits to be told what to prepare.

    It leads a process group of its own in this session and dies with this process.

    Args:
        env: its environment.
        module: what it runs; it is told its channel, its pulse and this process's id.
    """
    channel, theirs = Channel.pair()
    pulse = Pulse.create()
    command = [sys.executable, "-m", module, str(theirs.fileno()), str(pulse.fd), str(os.getpid())]
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
    assert process.stdout is not None
    assert process.stderr is not None
    outputs = (os.dup(process.stdout.fileno()), os.dup(process.stderr.fileno()))
    process.stdout.close()
    process.stderr.close()
    for fd in outputs:
        os.set_blocking(fd, False)
    return WorkerProcess(process.pid, channel, pulse, os.pidfd_open(process.pid), outputs, process.wait)


def adopt(pid: int, fds: list[int], exit_code: Callable[[], int]) -> WorkerProcess:
    """Hold a process that another agent of this host started; see `fds_of`."""
    channel, pulse, pidfd, out, err = fds
    sock = socket.socket(fileno=channel)
    return WorkerProcess(pid, Channel(sock), Pulse(pulse), pidfd, (out, err), exit_code, source="standby")


def fds_of(worker: WorkerProcess) -> list[int]:
    """Return what must be handed over for another process to `adopt` a worker."""
    return [worker.channel.sock.fileno(), worker.pulse.fd, worker.pidfd, *worker.outputs]
