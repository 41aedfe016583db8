"""The actor of a slot: it starts the agent as its child, and speaks for it to the driver.

Ray sees a small process that holds the slot's resources. It ends with the agent; when the driver
is gone it tells the agent to leave, and when it is killed itself, the agent sees its parent gone
and leaves within a few seconds.
"""

import base64
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import IO

import psutil
import ray

from elastic.agent.loop import Loop
from elastic.channel import Channel, Drain
from elastic.errors import ExitCode
from elastic.filesystem import write_whole
from elastic.launch.ray.forward import Forwarder
from elastic.launch.ray.link import Begin, Ended, Facts, Hello, Printed, Started, join
from elastic.rundir import RunDir

FORWARD_S = 0.2
DRIVER_GONE_S = 6.0  # what the agent gets to leave when nobody waits for it any more
CHUNK = 1 << 16


@dataclass(frozen=True, slots=True)
class Spec:
    """A slot as its actor must know it.

    Attributes:
        name: of the slot, for people.
        driver, token, key: where to say hello, and as whom.
        job, extra: the job's file and the configuration beside it, as the driver sees them.
        files: by the driver's path, what is in them, for hosts that do not see them.
        options: further words of the agent's command line.
        cwd: the driver's working directory.
        run_dir: where the agent keeps its files.
        mark: a file that the driver has put there, by which a shared directory is known.
        replaces: the agent that this slot had before, if its actor was lost.
    """

    name: str
    driver: tuple[str, int]
    token: str
    key: str
    job: str
    extra: str | None
    options: tuple[str, ...]
    cwd: str
    run_dir: str
    mark: str
    files: dict[str, bytes] = field(default_factory=dict)
    replaces: int = 0


class Slot:
    """One slot; see the module's head."""

    def __init__(self, spec: Spec) -> None:
        self._spec = spec
        self._run_dir = RunDir(Path(spec.run_dir))
        self._loop = Loop()
        self._kill_at: float | None = None

    def __repr__(self) -> str:
        return self._spec.name

    def serve(self) -> int:
        """Run the slot's agent to its end; return its exit code."""
        spec = self._spec
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # ignored, as raylets have it, exit codes would be lost
        with contextlib.suppress(PermissionError):
            os.setpriority(os.PRIO_PROCESS, 0, 0)  # Ray starts processes at 15, and whoever is not root stays there
        gpus = [str(id_) for id_ in ray.get_runtime_context().get_accelerator_ids().get("GPU", [])]
        shared = self._shared = (self._run_dir.path / spec.mark).exists()
        self._channel = join(spec.driver, Hello(spec.token, spec.key, os.getpid(), gpus, shared))
        begin = self._channel.expect(Begin)
        if begin is None:
            return ExitCode.TERMINATED
        self._forwarder = None if shared else Forwarder(self._run_dir.create().events)
        see_gone(spec.replaces, spec.run_dir)
        self._agent = self._start(begin.env)
        self._channel.send(Started(self._agent.pid))
        self._streams = [Stream(name, getattr(self._agent, name), self._print) for name in ("stdout", "stderr")]
        for stream in self._streams:
            self._loop.watch(stream.file, partial(self._pump, stream))
        self._loop.watch(os.pidfd_open(self._agent.pid), self._end)
        self._loop.watch(self._channel.sock, lambda: self._hear(self._channel))
        self._loop.every(FORWARD_S, self._tick)
        return self._loop.run()

    def _start(self, env: dict[str, str]) -> "subprocess.Popen[bytes]":
        spec = self._spec
        cwd = Path(spec.cwd) if Path(spec.cwd).is_dir() else Path.cwd()
        line = [sys.executable, "-m", "elastic", "worker", str(self._local(spec.job)), "--run-dir", spec.run_dir]
        if spec.extra is not None:
            line += ["--config", str(self._local(spec.extra))]
        return subprocess.Popen(
            [*line, *spec.options],
            cwd=cwd,
            env=os.environ | {"HOROVOD_GLOO_IFACE": interface_of(ray.util.get_node_ip_address())} | env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
        )

    def _local(self, path: str) -> Path:
        """Return where a file of the driver's is on this host; one that is not here is written."""
        found = Path(path)
        if found.exists():
            return found
        folder = self._run_dir.create().path / "files"
        folder.mkdir(exist_ok=True)
        for name, content in self._spec.files.items():  # all, for one may name another beside it
            write_whole(folder / Path(name).name, content)
        return folder / found.name

    def _hear(self, channel: Channel) -> None:
        messages = channel.receive()
        if messages is None:
            self._loop.unwatch(channel.sock)
            self._agent.send_signal(signal.SIGTERM)
            self._kill_at = self._loop.now() + DRIVER_GONE_S
        elif any(isinstance(message, Drain) for message in messages):
            self._agent.send_signal(signal.SIGTERM)

    def _pump(self, stream: "Stream") -> None:
        if stream.read() is None:
            self._loop.unwatch(stream.file)

    def _print(self, line: str, name: str) -> None:
        print(f"{self._spec.name} {line}", file=getattr(sys, name), flush=True)  # for Ray's own logs and its dashboard
        self._channel.send(Printed(line, name))

    def _tick(self) -> None:
        if self._forwarder is not None and (lines := self._forwarder.new()):
            self._channel.send(Facts(lines))
        if self._kill_at is not None and self._loop.now() >= self._kill_at:
            self._agent.kill()

    def _end(self) -> None:
        for stream in self._streams:
            stream.finish()
        self._tick()
        code = self._agent.wait()
        self._channel.send(Ended(code, "" if self._shared else self._result()))
        self._loop.end(code)

    def _result(self) -> str:
        with contextlib.suppress(FileNotFoundError):
            return base64.b64encode(self._run_dir.result.read_bytes()).decode()
        return ""


class Stream:
    """What a child prints, by the line.

    Args:
        name: "stdout" or "stderr".
        file: the reading end of a pipe.
        say: takes a line and the name.
    """

    def __init__(self, name: str, file: IO[bytes], say: Callable[[str, str], None]) -> None:
        self.file = file
        self._name = name
        self._say = say
        self._rest = b""
        os.set_blocking(file.fileno(), False)

    def read(self) -> int | None:
        """Pass on what there is now; return how much that was, None at the end."""
        try:
            data = os.read(self.file.fileno(), CHUNK)
        except BlockingIOError:
            return 0
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._say(line.decode("utf-8", "replace"), self._name)
        return len(data) or None

    def finish(self) -> None:
        """Pass on what an ended child has left, and wait for no grandchild that holds the pipe open."""
        while self.read():
            pass
        if self._rest:
            self._say(self._rest.decode("utf-8", "replace"), self._name)
            self._rest = b""


def see_gone(agent: int, run_dir: str, within_s: float = DRIVER_GONE_S) -> None:
    """Wait for an agent whose parent was lost to leave, and end it if it stays."""
    try:
        process = psutil.Process(agent) if agent else None
        if process is None or run_dir not in process.cmdline():  # the pid may have been given anew
            return
        deadline = time.monotonic() + within_s
        while process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
            if time.monotonic() > deadline:
                process.kill()
            time.sleep(0.02)
    except psutil.NoSuchProcess:
        return


def interface_of(address: str) -> str:
    """Return the name of the network interface that has an address; the loopback's if none has."""
    for name, addresses in psutil.net_if_addrs().items():
        if any(a.address == address for a in addresses):
            return name
    return "lo"
