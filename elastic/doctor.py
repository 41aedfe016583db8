"""`elastic doctor`: what this machine can do, what is wrong with it, what to do about it.

Whatever can be known without importing TensorFlow is found from files, so that a run can ask the
same questions before it starts.
"""

import importlib.util
import json
import platform
import shutil
import socket
import subprocess
import sys
from dataclasses import dataclass
from enum import StrEnum
from importlib.metadata import PackageNotFoundError, version
from ipaddress import IPv6Address, ip_address
from pathlib import Path

import psutil
from rich.console import Console
from rich.table import Table

from elastic.errors import ExitCode
from elastic.route import interfaces

REINSTALL = "build it again: `uv cache clean horovod && uv sync --reinstall-package horovod`"


class Level(StrEnum):
    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the examination."""

    level: Level
    what: str
    found: str
    advice: str = ""


def blocking() -> list[str]:
    """Return what must be mended before any run can start, in a few milliseconds."""
    return [f"{f.what}: {f.found}; {f.advice}" for f in _builds() if f.level is Level.PROBLEM]


def examine() -> list[Finding]:
    """Return everything there is to say about this machine."""
    return [*_versions(), *_builds(), *_loads(), *_network(), *_resources(), *_workers()]


def show(findings: list[Finding]) -> int:
    """Print the findings; return 1 if one of them is a problem."""
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    colours = {Level.OK: "green", Level.WARNING: "yellow", Level.PROBLEM: "red"}
    for f in findings:
        text = f.found + (f"\n-> {f.advice}" if f.advice else "")
        table.add_row(f"[{colours[f.level]}]{f.level}[/]", f.what, text)
    Console(soft_wrap=True).print(table)
    return ExitCode.FAILED if any(f.level is Level.PROBLEM for f in findings) else ExitCode.GOAL_REACHED


PACKAGES = ("elastic-keras", "tensorflow", "keras", "horovod", "ray", "numpy")


def versions() -> dict[str, str]:
    """Return the versions that a run should name."""
    found = {name: installed for name in PACKAGES if (installed := _version(name)) is not None}
    return {"python": platform.python_version()} | found


def _versions() -> list[Finding]:
    found = [Finding(Level.OK, "python", f"{platform.python_version()} ({sys.executable})")]
    for name in PACKAGES:
        if (installed := _version(name)) is not None:
            found.append(Finding(Level.OK, name, installed))
        else:
            found.append(Finding(Level.PROBLEM, name, "not installed", "install the project: `uv sync`"))
    return found


def _builds() -> list[Finding]:
    """Look at Horovod's files: is the TensorFlow binding there?"""
    spec = importlib.util.find_spec("horovod")
    if spec is None or spec.origin is None:
        return [Finding(Level.PROBLEM, "horovod", "not installed", "install the project: `uv sync`")]
    binding = list((Path(spec.origin).parent / "tensorflow").glob("mpi_lib*.so"))
    if not binding:
        return [Finding(Level.PROBLEM, "horovod", "built without TensorFlow", REINSTALL)]
    built, here = _built_for(Path(spec.origin).parent / "metadata.json"), _version("tensorflow")
    if built is not None and built != here:
        found = f"built against TensorFlow {built}, but {here} is installed"
        return [Finding(Level.PROBLEM, "horovod", found, REINSTALL)]
    return [Finding(Level.OK, "horovod's binding", binding[0].name)]


def _built_for(metadata: Path) -> str | None:
    """Return the TensorFlow that Horovod's build has noted, if it has."""
    try:
        return str(json.loads(metadata.read_text(encoding="utf-8"))["tensorflow"])
    except (OSError, ValueError, KeyError):
        return None


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


_PROBE = """
import horovod.tensorflow as hvd
print(hvd.gloo_built(), hvd.nccl_built(), hvd.mpi_built())
"""


def _loads() -> list[Finding]:
    """Load the binding in a process of its own: a wrong build can end in a crash."""
    probe = subprocess.run([sys.executable, "-c", _PROBE], capture_output=True, text=True, timeout=120, check=False)
    if probe.returncode != 0:
        lines = [line for line in probe.stderr.splitlines() if line.strip()]
        cause = lines[-1] if lines else f"exit code {probe.returncode}"
        built = "undefined symbol" in probe.stderr
        text = "built against another TensorFlow" if built else "does not load"
        return [Finding(Level.PROBLEM, "horovod", f"{text}: {cause}", REINSTALL)]
    gloo, nccl, _ = probe.stdout.split()[-3:]
    if gloo != "True":
        return [Finding(Level.PROBLEM, "horovod", "built without Gloo, which elastic training needs", REINSTALL)]
    return [Finding(Level.OK, "horovod's collectives", "Gloo" + (", NCCL" if nccl not in ("0", "False") else ""))]


def own_name() -> Finding:
    """Look at what this host calls itself: Horovod's workers listen on what that resolves to."""
    name = socket.gethostname()
    advice = f"for jobs on several hosts, let {name} resolve to this host's own IPv4 address in /etc/hosts"
    try:
        address = socket.gethostbyname(name)
    except OSError as error:
        return Finding(Level.WARNING, "hostname", f"{name} does not resolve to an IPv4 address: {error}", advice)
    if address.startswith("127.") and any(nic != "lo" for nic in interfaces()):
        return Finding(Level.WARNING, "hostname", f"{name} is {address}: other hosts cannot reach it", advice)
    return Finding(Level.OK, "hostname", f"{name} is {address}")


def _network() -> list[Finding]:
    found = []
    stats = psutil.net_if_stats()
    up = {nic: addresses for nic, addresses in psutil.net_if_addrs().items() if stats[nic].isup}
    text = {nic: " ".join(a.address for a in addresses if a.family in _IP) for nic, addresses in up.items()}
    found.append(
        Finding(Level.OK, "network interfaces", ", ".join(f"{nic} {a}" for nic, a in text.items() if a) or "none")
    )
    outward = [a for nic, addresses in up.items() if nic != "lo" for a in addresses]
    if any(_is_global_6(a.address) for a in outward) and not any(a.family == socket.AF_INET for a in outward):
        what = "this host has IPv6 addresses and no IPv4 address; Horovod's launcher and rendezvous speak IPv4 alone"
        advice = "give each host of a job an IPv4 address; on this machine alone jobs run as they are"
        found.append(Finding(Level.PROBLEM, "IPv6", what, advice))
    with socket.socket() as probe:
        probe.bind(("", 0))
        found.append(Finding(Level.OK, "ports", f"can listen, such as on {probe.getsockname()[1]}"))
    return [*found, own_name()]


_IP = (socket.AF_INET, socket.AF_INET6)


def _is_global_6(address: str) -> bool:
    try:
        return isinstance(found := ip_address(address), IPv6Address) and not (found.is_link_local or found.is_loopback)
    except ValueError:
        return False  # of the link layer, or with a zone, which is local to the link


def _workers() -> list[Finding]:
    """Tell what the workers and standbys of this machine hold; a standby is one that waits."""
    found = []
    for process in psutil.process_iter():
        try:
            if "elastic.worker.main" in process.cmdline():
                found.append(process.memory_info().rss / 2**20)
        except psutil.Error:
            continue
    if not found:
        return [Finding(Level.OK, "workers, standbys", "none runs here now")]
    return [Finding(Level.OK, "workers, standbys", f"{len(found)} run here now, {sum(found):.0f} MiB in all")]


def _resources() -> list[Finding]:
    disk, memory = shutil.disk_usage(Path.cwd()), psutil.virtual_memory()
    cores = psutil.cpu_count() or 1
    found = [
        Finding(
            Level.OK, "cores, memory", f"{cores}, {memory.available / 2**30:.1f} of {memory.total / 2**30:.1f} GiB free"
        )
    ]
    level = Level.WARNING if disk.free < 2**30 else Level.OK
    advice = "checkpoints may fail; free some space or choose another --run-dir" if level is Level.WARNING else ""
    found.append(Finding(level, "disk here", f"{disk.free / 2**30:.1f} GiB free", advice))
    if shutil.which("nvidia-smi") is None:
        return [*found, Finding(Level.OK, "GPU", "none: workers train on the CPU")]
    probe = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=30, check=False)
    return [*found, Finding(Level.OK, "GPU", probe.stdout.strip() or probe.stderr.strip())]
