"""The stock `horovodrun`, as `elastic run` starts it: nothing patched, only arguments."""

import importlib.util
import os
import shutil
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from elastic.config import Config
from elastic.errors import ConfigError
from elastic.launch.discovering import SCRIPT
from elastic.route import ELSEWHERE, address_towards, interface_of, interfaces

MAIN = Path(__file__).with_name("horovodrun_main.py")
BIN = Path(__file__).with_name("bin")  # what the launcher finds before the programs of the same names


def hosts_of(config: Config) -> tuple[str, ...]:
    """Return the `host:slots` lines of a job that names no other source; this machine by default."""
    return config.hosts or (f"localhost:{config.workers.max}",)


def is_local(hosts: Sequence[str]) -> bool:
    """Tell whether all hosts are this machine."""
    return not any(remote(hosts))


def remote(hosts: Sequence[str]) -> tuple[str, ...]:
    """Return the names of those hosts that are not this machine."""
    own = {"localhost", "127.0.0.1", "::1", socket.gethostname()}
    names = (line if line in own else line.rpartition(":")[0] or line for line in hosts)
    return tuple(name for name in names if name not in own)


def to_come(config: Config, hosts: Sequence[str]) -> tuple[str, ...] | None:
    """Return the `host:slots` lines of hosts that are there or named; None where a source may name any others.

    This machine is listed at once, others only when they have been looked at.

    Args:
        hosts: those that discovery lists by now.
    """
    if config.discovery is not None and config.discovery.sources:
        return None if is_local(hosts) else tuple(hosts)
    return (*hosts, *hosts_of(config))


def leading_to(hosts: Sequence[str] | None) -> str | None:
    """Return the interface on which these hosts can reach this one; None if the routes do not tell.

    The launcher's address is that of the interface. Workers find their own by their way to the
    launcher, as interfaces may have other names on their hosts.

    Args:
        hosts: as `host:slots` lines; None, not known yet: the way to anywhere counts.

    Raises:
        ConfigError: when a host can only be reached by IPv6.
    """
    if hosts is not None and is_local(hosts):
        return "lo"
    here = interfaces()
    for name in (*remote(hosts or ()), ELSEWHERE):
        try:
            address = address_towards(name)
        except OSError:
            if _has_only_6(name):
                raise ConfigError(
                    f"{name} has no IPv4 address, and Horovod's launcher and rendezvous speak nothing else; "
                    "give each host one, in DNS or in /etc/hosts"
                ) from None
            continue  # a name that only ssh knows
        if address is not None and not address.startswith("127."):
            return interface_of(address, here)
    return "lo" if hosts is None else None


def _has_only_6(name: str) -> bool:
    try:
        return bool(socket.getaddrinfo(name, None, socket.AF_INET6, socket.SOCK_STREAM))
    except OSError:
        return False


def command(
    config: Config, job: Path, run_dir: Path, sets: Sequence[str], extra: Path | None, hosts: Sequence[str]
) -> list[str]:
    """Return the command line of the launcher.

    Args:
        config, job, run_dir, sets, extra: the job as it was given.
        hosts: the `host:slots` lines that it begins with.

    Raises:
        ConfigError: when horovodrun is not installed beside this Python, or hosts cannot be reached by IPv4.
    """
    if importlib.util.find_spec("horovod") is None:
        raise ConfigError("horovodrun is not installed beside this Python; `elastic doctor` says more")
    workers, network = config.workers, config.network
    line = [
        sys.executable,
        str(MAIN),
        "-np",
        str(workers.first),
        "--min-np",
        str(workers.min),
        "--max-np",
        str(workers.max),
    ]
    line += ["--host-discovery-script", str(SCRIPT)]
    line += ["--elastic-timeout", str(network.start_timeout_s)]
    line += ["--blacklist-cooldown-range", *(str(s) for s in network.cooldown_s)]
    if chosen := network.interfaces or leading_to(to_come(config, hosts)):
        line += ["--network-interfaces", chosen]
    line += [sys.executable, "-m", "elastic", "worker", str(job.resolve()), "--run-dir", str(run_dir)]
    for pair in sets:
        line += ["--set", pair]
    return line + (["--config", str(extra.resolve())] if extra else [])


def environment(config: Config, discovering: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of the launcher, which it passes on to all workers; `discovering`: of its script."""
    path = os.environ.get("PATH", os.defpath)
    ssh = {"ELASTIC_SSH": found} if (found := shutil.which("ssh")) is not None else {}
    return os.environ | {
        **discovering,
        **ssh,
        "ELASTIC_SSH_SILENT_S": str(config.network.gloo_timeout_s),
        "PATH": f"{BIN}{os.pathsep}{path}",
        "ELASTIC_LAUNCHER": "elastic run",
        "PYTHONUNBUFFERED": "1",
    }
