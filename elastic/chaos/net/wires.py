"""What joins hosts: a bridge, which is fast and can be unplugged, or the switch, which can do worse."""

import re
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from elastic.chaos.net.control import Counts, Remote, Ways
from elastic.chaos.net.way import CLEAR, CUT

END_S = 10.0
_BRIDGE = re.compile(r"el(?P<pid>\d+)[a-z]b")


def ip(*words: str) -> None:
    """Run `ip`.

    Raises:
        RuntimeError: with what it said, when it fails.
    """
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"ip {' '.join(words)}: {done.stderr.strip()}")


def sweep_bridges() -> None:
    """Remove bridges whose process was killed before it could; all else goes with its hosts or its process."""
    for _, name in socket.if_nameindex():
        if (found := _BRIDGE.fullmatch(name)) and not Path("/proc", found["pid"]).exists():
            subprocess.run(["ip", "link", "del", name], capture_output=True, check=False)


class Wire(Protocol):
    """Joins hosts, each known by its name, with an interface in its network namespace."""

    def open(self, hosts: Sequence[str]) -> None:
        """Get ready for these hosts."""

    def plug(self, host: str, space: str, interface: str) -> None:
        """Give a host its interface."""

    def cut(self, host: str) -> None:
        """Let nothing pass from or to a host, and tell nobody."""

    def mend(self, host: str) -> None:
        """Let everything pass again."""

    def close(self) -> None:
        """Leave nothing behind."""


class Bridge:
    """The kernel's bridge, and a pair of veth devices for each host. A host sees that its link is down.

    Args:
        mark: in the names of its devices.
    """

    def __init__(self, mark: str) -> None:
        self._mark = mark
        self._name = f"{mark}b"
        self._ends: dict[str, str] = {}

    def open(self, hosts: Sequence[str]) -> None:
        self._ends = {host: f"{self._mark}v{number}" for number, host in enumerate(hosts)}
        ip("link", "add", self._name, "type", "bridge")
        ip("link", "set", self._name, "up")

    def plug(self, host: str, space: str, interface: str) -> None:
        ip("link", "add", self._ends[host], "type", "veth", "peer", "name", interface, "netns", space)
        ip("link", "set", self._ends[host], "master", self._name, "up")

    def cut(self, host: str) -> None:
        ip("link", "set", self._ends[host], "down")

    def mend(self, host: str) -> None:
        ip("link", "set", self._ends[host], "up")

    def close(self) -> None:
        for name in (*self._ends.values(), self._name):
            subprocess.run(["ip", "link", "del", name], capture_output=True, check=False)


class Switched:
    """The switch in user space, in a process of its own. No host sees what is done to its link.

    Args:
        mark: in the names of its devices.
    """

    def __init__(self, mark: str) -> None:
        self._mark = mark
        self._devices: dict[str, str] = {}
        self._process: subprocess.Popen[bytes] | None = None
        self._remote: Remote | None = None

    def open(self, hosts: Sequence[str]) -> None:
        self._devices = {host: f"{self._mark}t{number}" for number, host in enumerate(hosts)}
        ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        line = [sys.executable, "-m", "elastic.chaos.net.switch", *(f"{h}={d}" for h, d in self._devices.items())]
        with its:
            self._process = subprocess.Popen(line, stdin=its.fileno(), start_new_session=True)
        self._remote = Remote(ours)
        self.counts()

    def plug(self, host: str, space: str, interface: str) -> None:
        ip("link", "set", self._devices[host], "netns", space, "name", interface)

    def set(self, host: str, ways: Ways) -> None:
        """Change what a host's link does."""
        assert self._remote is not None
        self._remote.set({host: ways})

    def counts(self) -> Counts:
        """Return how many frames had which fate, by host and direction."""
        assert self._remote is not None
        return self._remote.counts()

    def cut(self, host: str) -> None:
        self.set(host, Ways(CUT, CUT))

    def mend(self, host: str) -> None:
        self.set(host, Ways(CLEAR, CLEAR))

    def close(self) -> None:
        if self._remote is not None:
            self._remote.close()
        if self._process is not None:
            self._process.wait(END_S)
