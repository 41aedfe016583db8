"""Several hosts on one machine: a network namespace each, joined by a wire, with sshd and a name of its own.

Each host has its own hostname (a UTS namespace), its own `/etc/hosts` (`/etc/netns/NAME/hosts`) and its
own sshd; all share the file system. Needs root, `ip`, `unshare` and Debian's openssh-server.
"""

import contextlib
import itertools
import os
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from elastic.chaos.net.wires import Bridge, Switched, Wire, ip, sweep_bridges

SSHD = "/usr/sbin/sshd"
SUBNET, SUBNET_6 = "10.77.0", "fd77:"
DOCKER = "172.17.0.1/16"  # what every host with Docker calls its own
UP_S = 10.0
_nets = itertools.count()
_SPACE = re.compile(r"el(?P<pid>\d+)[a-z]-\d+")


def missing() -> str:
    """Return what keeps hosts from being built here, an empty text if nothing does."""
    if os.geteuid() != 0:
        return "hosts in network namespaces need root"
    for program in ("ip", "unshare", "ssh-keygen", SSHD):
        if shutil.which(program) is None:
            return f"{program} is not installed: apt-get install iproute2 openssh-server"
    probe = f"elprobe{os.getpid()}"
    made = subprocess.run(["ip", "netns", "add", probe], capture_output=True, text=True, check=False)
    if made.returncode != 0:
        return f"the kernel allows no network namespaces here: {made.stderr.strip()}"
    try:
        peer = ["ip", "link", "add", f"ep{os.getpid()}", "type", "veth", "peer", "name", "eth0", "netns", probe]
        linked = subprocess.run(peer, capture_output=True, text=True, check=False)
        return "" if linked.returncode == 0 else f"the kernel has no veth devices: {linked.stderr.strip()}"
    finally:
        subprocess.run(["ip", "netns", "del", probe], check=False)


def missing_switch() -> str:
    """Return what keeps hosts from being joined by the switch here, beyond `missing`; an empty text if nothing does."""
    return "" if Path("/dev/net/tun").exists() else "the kernel has no TAP devices here: /dev/net/tun is missing"


@dataclass(frozen=True, slots=True)
class HostInNet:
    """One host."""

    name: str
    space: str
    interface: str
    address: str
    mac: str


class Net:
    """Hosts `h0`, `h1`, ...; by custom the launcher runs on `h0`.

    Args:
        folder: for keys, logs and settings.
        count: how many hosts.
        ssh_alive: seconds between two signs of life of an ssh session, and how many may be missed; None: ssh
            asks for none.
        switched: joined by the switch in user space, not by a bridge.
        interfaces: names of their interfaces, by host, where it is not `eth0`.
        docker: each host has a `docker0` with the same address, which leads nowhere.
        only_6: hosts have IPv6 addresses and no others.
    """

    def __init__(
        self,
        folder: Path,
        count: int,
        ssh_alive: tuple[int, int] | None = (1, 3),
        *,
        switched: bool = False,
        interfaces: Mapping[str, str] | None = None,
        docker: bool = False,
        only_6: bool = False,
    ) -> None:
        self.folder = folder
        self._ssh_alive = ssh_alive
        self._docker = docker
        self._only_6 = only_6
        self._daemons: list[subprocess.Popen[str]] = []
        mark = f"el{os.getpid()}{chr(ord('a') + next(_nets) % 26)}"  # a device's name has 15 characters at most
        self.switch = Switched(mark) if switched else None
        self._wire: Wire = self.switch or Bridge(mark)
        named = interfaces or {}
        self.hosts = [
            HostInNet(
                name := f"h{i}",
                f"{mark}-{i}",
                named.get(name, "eth0"),
                f"{SUBNET_6}:{10 + i}" if only_6 else f"{SUBNET}.{10 + i}",
                f"02:00:00:00:00:{i:02x}",
            )
            for i in range(count)
        ]

    def __getitem__(self, name: str) -> HostInNet:
        return next(h for h in self.hosts if h.name == name)

    @property
    def bin(self) -> Path:
        """Where an `ssh` lies that knows the way to these hosts; for the front of PATH."""
        return self.folder / "bin"

    def open(self, without_sshd: Sequence[str] = (), more_names: str = "") -> None:
        """Build it; all sshds answer when this returns.

        Args:
            without_sshd: hosts that take no ssh sessions until `start_sshd`.
            more_names: further lines of every host's `/etc/hosts`, before the others.
        """
        sweep()
        self.folder.mkdir(parents=True, exist_ok=True)
        self._write_settings()
        names = "".join(f"{h.address} {h.name}\n" for h in self.hosts)
        self._wire.open([h.name for h in self.hosts])
        for host in self.hosts:
            ip("netns", "add", host.space)
            self._wire.plug(host.name, host.space, host.interface)
            self._configure(host)
            view = Path("/etc/netns") / host.space
            view.mkdir(parents=True, exist_ok=True)
            (view / "hosts").write_text(f"127.0.0.1 localhost\n{more_names}{names}")
        for host in self.hosts[1:]:
            if host.name not in without_sshd:
                self.start_sshd(host.name)

    def start_sshd(self, name: str, env: Mapping[str, str] | None = None, mounts: Sequence[str] = ()) -> None:
        """Let a host take ssh sessions.

        Args:
            env: set in each session.
            mounts: folders in which sessions find a small file system of the host's own, which is full.
        """
        log = (self.folder / f"sshd-{name}.log").open("ab")
        settings = " ".join(f"{key}={value}" for key, value in (env or {}).items())
        first = "; ".join(f"mount -t tmpfs -o size=64k full {m} && head -c 1m /dev/zero >{m}/full" for m in mounts)
        with log:
            line = [SSHD, "-D", "-e", "-f", str(self.folder / "sshd_config")]
            line += ["-o", f"SetEnv={settings}"] if settings else []
            self._daemons.append(self.run(name, line, first, stdout=log, stderr=log))
        ends = time.monotonic() + UP_S
        while not self._greets(name):
            if time.monotonic() > ends:
                raise RuntimeError(f"the sshd of {name} does not answer; see {self.folder / f'sshd-{name}.log'}")
            time.sleep(0.02)

    def run(self, name: str, line: Sequence[str], first: str = "", **options: object) -> "subprocess.Popen[str]":
        """Start a process on a host, in a view of the file system of its own; `first` is a script to begin with."""
        script = f'hostname "$0"; {first}\nexec "$@"'
        enter = ["ip", "netns", "exec", self[name].space, "unshare", "--uts", "sh", "-c", script, name]
        return subprocess.Popen([*enter, *line], text=True, start_new_session=True, **options)  # type: ignore[call-overload, no-any-return]

    def call_itself(self, name: str, address: str) -> None:
        """Let a host's own name be another address for itself, as Debian's installer does."""
        others = "".join(f"{h.address} {h.name}\n" for h in self.hosts if h.name != name)
        (Path("/etc/netns") / self[name].space / "hosts").write_text(f"127.0.0.1 localhost\n{address} {name}\n{others}")

    def pids(self, name: str) -> list[int]:
        """Return all processes of a host."""
        return _pids(self[name].space)

    def cut(self, name: str) -> None:
        """Let no packet pass from or to a host, and tell nobody."""
        self._wire.cut(name)

    def mend(self, name: str) -> None:
        """Let everything pass again."""
        self._wire.mend(name)

    def unplug(self, name: str) -> None:
        """Take a host's own interface down: what runs there is told at once."""
        ip("-n", self[name].space, "link", "set", self[name].interface, "down")

    def plug_in(self, name: str) -> None:
        """Bring it up again."""
        host = self[name]
        self._batch(host, [f"link set {host.interface} up", *self._neighbours(host)])

    def know_names(self, known: bool) -> None:
        """Let every host resolve the others' names, or its own alone."""
        for host in self.hosts:
            names = "".join(f"{h.address} {h.name}\n" for h in (self.hosts if known else [host]))
            (Path("/etc/netns") / host.space / "hosts").write_text(f"127.0.0.1 localhost\n{names}")

    def power_off(self, name: str) -> None:
        """Cut a host off and end all that runs there, so that its peers get no reset."""
        self.cut(name)
        for pid in self.pids(name):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def close(self) -> None:
        """Leave nothing behind."""
        for host in self.hosts:
            _remove(host.space)
        for daemon in self._daemons:
            daemon.wait(UP_S)
        self._wire.close()

    def _configure(self, host: HostInNet) -> None:
        """Give a host its addresses; over the switch it knows those of others, so that what is lost is only lost."""
        bits = "64 dev {} nodad" if self._only_6 else "24 dev {}"
        lines = [
            f"link set {host.interface} address {host.mac} up",
            f"addr add {host.address}/{bits.format(host.interface)}",
            "link set lo up",
            *self._neighbours(host),
        ]
        if self._docker:
            lines += ["link add docker0 type veth peer name container", "link set container up"]
            lines += [f"addr add {DOCKER} dev docker0", "link set docker0 up"]
        self._batch(host, lines)

    def _neighbours(self, host: HostInNet) -> list[str]:
        if self.switch is None:
            return []
        others = (other for other in self.hosts if other is not host)
        return [f"neigh replace {o.address} lladdr {o.mac} dev {host.interface} nud permanent" for o in others]

    @staticmethod
    def _batch(host: HostInNet, lines: Sequence[str]) -> None:
        subprocess.run(["ip", "-n", host.space, "-batch", "-"], input="\n".join(lines), text=True, check=True)

    def _greets(self, name: str) -> bool:
        """Tell whether a host's sshd answers, as seen on that host."""
        knock = f"exec 3<>/dev/tcp/{self[name].address}/22 && head -c 4 <&3"
        line = ["ip", "netns", "exec", self[name].space, "timeout", "1", "bash", "-c", knock]
        return subprocess.run(line, capture_output=True, text=True, check=False).stdout == "SSH-"

    def _write_settings(self) -> None:
        Path("/run/sshd").mkdir(exist_ok=True)
        for key in ("id", "host"):
            line = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.folder / key)]
            subprocess.run(line, check=True)
        (self.folder / "sshd_config").write_text(
            f"HostKey {self.folder}/host\nAuthorizedKeysFile {self.folder}/id.pub\nStrictModes no\nUsePAM no\n"
            "PermitRootLogin yes\nPidFile none\nMaxStartups 100\n"
        )
        period, missed = self._ssh_alive or (0, 3)
        (self.folder / "ssh_config").write_text(
            f"IdentityFile {self.folder}/id\nUserKnownHostsFile /dev/null\nStrictHostKeyChecking no\nLogLevel ERROR\n"
            f"ServerAliveInterval {period}\nServerAliveCountMax {missed}\nConnectTimeout 5\n"
        )
        self.bin.mkdir()
        ssh = self.bin / "ssh"
        ssh.write_text(f'#!/bin/sh\nexec /usr/bin/ssh -F {self.folder}/ssh_config "$@"\n')
        ssh.chmod(0o755)


def _pids(space: str) -> list[int]:
    done = subprocess.run(["ip", "netns", "pids", space], capture_output=True, text=True, check=False)
    return [int(word) for word in done.stdout.split()]


def _remove(space: str) -> None:
    """End what runs in a network namespace, and remove it."""
    ends = time.monotonic() + UP_S
    while (pids := _pids(space)) and time.monotonic() < ends:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)
    subprocess.run(["ip", "netns", "del", space], capture_output=True, check=False)
    shutil.rmtree(Path("/etc/netns") / space, ignore_errors=True)


def sweep() -> None:
    """Remove the hosts of nets whose process was killed before it could."""
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=False).stdout
    for space in (line.partition(" ")[0] for line in listed.splitlines()):
        if (found := _SPACE.fullmatch(space)) and not Path("/proc", found["pid"]).exists():
            _remove(space)
    sweep_bridges()


def hostname_here() -> str:
    """Return this machine's own name, which no host in a net may change."""
    return socket.gethostname()
