"""How a host is looked at: does its sshd answer, does ssh work, does it have what a worker needs?"""

import json
import shlex
import socket
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from discovery import probe
from discovery.gate import Look
from discovery.hosts import SourceError
from discovery.source import output_of

PROBE = Path(probe.__file__)


@dataclass(frozen=True, slots=True)
class Looker:
    """Looks at hosts; each method returns what is wrong, or an empty text.

    Args:
        check: `tcp` or `ssh`: how much is looked at before a host is listed.
        port: of sshd.
        timeout_s: for a whole look.
        identity: the ssh key; by default what ssh itself finds.
        disk_bytes: what must be free at `folder`.
        folder: where a worker writes on each host.
        command: run on the host through ssh; must succeed.
        python: on each host.
        pulse_s: for a look at a host that is listed.
    """

    check: str = "ssh"
    port: int = 22
    timeout_s: float = 5.0
    identity: str | None = None
    disk_bytes: int = 0
    folder: str = "/tmp"  # noqa: S108 - where Python and TensorFlow put their own files
    command: str | None = None
    python: str = sys.executable
    pulse_s: float = 2.0

    def look(self, host: str, how: Look) -> str:
        """Return what is wrong with a host."""
        if how is Look.PULSE:
            return self.knock(host, self.pulse_s)
        return self.knock(host, self.timeout_s) or ("" if self.check == "tcp" else self.visit(host))

    def knock(self, host: str, within_s: float) -> str:
        """Connect to sshd and hear its greeting."""
        ends = time.monotonic() + within_s
        try:
            with socket.create_connection((host, self.port), timeout=within_s) as connection:
                connection.settimeout(max(0.1, ends - time.monotonic()))
                greeting = connection.recv(64)
        except OSError as error:
            return f"no connection to its port {self.port}: {error.strerror or error}"
        if not greeting.startswith(b"SSH-"):
            return f"what answers on port {self.port} is no sshd: {greeting[:20]!r}"
        return ""

    def visit(self, host: str) -> str:
        """Run the probe there."""
        line = ["ssh", "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=no", "-o", "LogLevel=ERROR"]
        line += ["-o", f"ConnectTimeout={max(1, round(self.timeout_s))}", "-p", str(self.port)]
        line += ["-i", self.identity] if self.identity else []
        remote = f"{shlex.quote(self.python)} - {shlex.quote(self.folder)}"
        if self.command:
            remote = f"({self.command}) </dev/null >/dev/null && {remote}"
        try:
            said = output_of([*line, host, remote], self.timeout_s, text=PROBE.read_bytes())
            there = json.loads(said.strip().splitlines()[-1])
        except SourceError as error:
            return f"it cannot run a worker: {error}"
        except (ValueError, IndexError):
            return "it cannot run a worker: its Python gave no answer"
        return wrong(there, probe.facts(self.folder, resolves=False), self.disk_bytes)


def wrong(there: Mapping[str, Any], here: Mapping[str, Any], disk_bytes: int) -> str:
    """Return what is wrong with a host that has said this of itself, compared with this one."""
    for name in ("python", *probe.PACKAGES):
        if here.get(name) is not None and there.get(name) != here[name]:
            return f"it has {name} {there.get(name) or 'not at all'}, here it is {here[name]}; install the same there"
    free = int(there.get("disk_free_bytes", 0))
    if free < disk_bytes:
        return f"its disk has less than {disk_bytes >> 20} MiB free"
    address = there.get("address")
    if address is None and there.get("only_6"):
        return (
            f"its own name, {there.get('hostname')}, has no IPv4 address there, and Horovod speaks nothing else; "
            "give it one, in DNS or in its /etc/hosts"
        )
    if address is None:
        return f"its own name, {there.get('hostname')}, does not resolve there; add it to its /etc/hosts"
    if str(address).startswith("127."):
        return (
            f"its own name, {there.get('hostname')}, is {address} there, where other hosts cannot reach it; "
            "let it be the host's own address in its /etc/hosts"
        )
    return ""
