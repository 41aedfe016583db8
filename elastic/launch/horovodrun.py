"""The stock `horovodrun`, as `elastic run` starts it: nothing patched, only arguments."""

import importlib.util
import os
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from elastic.config import Config
from elastic.errors import ConfigError
from elastic.launch.discovering import SCRIPT

MAIN = Path(__file__).with_name("horovodrun_main.py")


def hosts_of(config: Config) -> tuple[str, ...]:
    """Return the `host:slots` lines of a job that names no other source; this machine by default."""
    return config.hosts or (f"localhost:{config.workers.max}",)


def is_local(hosts: Sequence[str]) -> bool:
    """Tell whether all hosts are this machine."""
    own = {"localhost", "127.0.0.1", "::1", socket.gethostname()}
    return all(line.rpartition(":")[0] in own or line in own for line in hosts)


def command(
    config: Config, job: Path, run_dir: Path, sets: Sequence[str], extra: Path | None, hosts: Sequence[str]
) -> list[str]:
    """Return the command line of the launcher.

    Args:
        config, job, run_dir, sets, extra: the job as it was given.
        hosts: the `host:slots` lines that it begins with.

    Raises:
        ConfigError: when horovodrun is not installed beside this Python.
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
    interfaces = network.interfaces or ("lo" if hosts and is_local(hosts) else None)
    if interfaces:
        line += ["--network-interfaces", interfaces]
    line += [sys.executable, "-m", "elastic", "worker", str(job.resolve()), "--run-dir", str(run_dir)]
    for pair in sets:
        line += ["--set", pair]
    return line + (["--config", str(extra.resolve())] if extra else [])


def environment(discovering: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of the launcher, which it passes on to all workers; `discovering`: of its script."""
    return os.environ | {
        **discovering,
        "ELASTIC_LAUNCHER": "elastic run",
        "PYTHONUNBUFFERED": "1",
    }
