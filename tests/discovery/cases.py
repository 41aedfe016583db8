"""Every source that can be run here, each with the world that it asks, which a test changes."""

import os
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import pytest

from discovery.command import Command
from discovery.file import File
from discovery.hosts import Hosts, SourceError
from discovery.slurm import Slurm
from discovery.source import Source
from tests.discovery.cluster import PODS, SLICES, ApiServer, endpoints, pod

WITHIN_S = 10.0


class Case(Protocol):
    """A source, and what it asks. Hosts are numbered; `name(n)` is what the source calls the n-th."""

    source: Source

    def show(self, *numbers: int) -> None:
        """Let these hosts be there, and no others."""

    def fail(self) -> None:
        """Let the next questions fail."""

    def hang(self) -> None:
        """Let the next questions get no answer."""

    def recover(self) -> None:
        """Let questions be answered again."""

    def name(self, number: int) -> str: ...

    def close(self) -> None: ...


class FileCase:
    def __init__(self, folder: Path) -> None:
        self._path = folder / "hosts"
        self.source = File(self._path)
        self._hidden = folder / "hidden"

    def show(self, *numbers: int) -> None:
        new = self._path.with_name("new")
        new.write_text("".join(f"{self.name(n)}:2\n" for n in numbers))
        new.replace(self._path)

    def fail(self) -> None:
        self._path.replace(self._hidden)

    def hang(self) -> None:
        """A pipe that nobody writes to: opening it waits, as a dead file system does."""
        self._path.replace(self._hidden)
        os.mkfifo(self._path)

    def recover(self) -> None:
        if self._path.exists() and stat.S_ISFIFO(self._path.stat().st_mode):
            os.close(os.open(self._path, os.O_WRONLY))  # the reader that waits reads an end
        self._hidden.replace(self._path)

    def name(self, number: int) -> str:
        return f"host{number}"

    def close(self) -> None:
        self.source.close()


class Programs:
    """Executables of a folder, which read what to say from files beside them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)
        (folder / "mode").write_text("ok")

    def add(self, name: str, body: str) -> Path:
        """Make one; `$here` is the folder."""
        path = self.folder / name
        modes = 'case $(cat "$here/mode") in fail) echo "it is broken" >&2; exit 3;; '
        modes += 'hang) echo $$ >> "$here/pids"; sleep 600; exit 0;; esac'
        path.write_text(f'#!/bin/sh\nhere={self.folder}\necho "{name} $*" >> "$here/calls"\n{modes}\n{body}\n')
        path.chmod(0o755)
        return path

    def mode(self, mode: str) -> None:
        (self.folder / "mode").write_text(mode)

    def close(self) -> None:
        """See that none is left."""
        pids = self.folder / "pids"
        for pid in pids.read_text().split() if pids.exists() else ():
            with pytest.raises(ProcessLookupError):
                os.kill(int(pid), 0)


class CommandCase:
    def __init__(self, folder: Path) -> None:
        self._programs = Programs(folder / "programs")
        self.source = Command([str(self._programs.add("find-hosts", 'cat "$here/hosts"'))])

    def show(self, *numbers: int) -> None:
        (self._programs.folder / "hosts").write_text("".join(f"{self.name(n)} slots=2\n" for n in numbers))

    def fail(self) -> None:
        self._programs.mode("fail")

    def hang(self) -> None:
        self._programs.mode("hang")

    def recover(self) -> None:
        self._programs.mode("ok")

    def name(self, number: int) -> str:
        return f"host{number}"

    def close(self) -> None:
        self.source.close()
        self._programs.close()


class SlurmCase:
    """A job on numbered nodes, by executables in the place of Slurm's."""

    def __init__(self, folder: Path) -> None:
        self.programs = Programs(folder / "slurm")
        self.programs.add("squeue", 'cat "$here/squeue.txt"')
        show = 'case "$2" in hostnames) cat "$here/names.txt";; node) cat "$here/nodes.txt";; esac'
        self.programs.add("scontrol", show)
        env = {"PATH": f"{self.programs.folder}:{os.environ['PATH']}", "SLURM_JOB_ID": "7"}
        self.source = Slurm(env=env)

    def show(self, *numbers: int, state: str = "ALLOCATED", job: str = "RUNNING", gres: str = "gres/gpu:2") -> None:
        names = [self.name(n) for n in numbers]
        nodes = f"n[{','.join(map(str, numbers))}]" if numbers else ""
        self.tell("squeue.txt", f"{job}|{nodes}|{gres}\n" if names else "")
        self.tell("names.txt", "".join(f"{name}\n" for name in names))
        self.tell("nodes.txt", "".join(f"NodeName={n} Arch=x86_64 State={state} Reason=none\n" for n in names))

    def tell(self, file: str, text: str) -> None:
        (self.programs.folder / file).write_text(text)

    def fail(self) -> None:
        self.programs.mode("fail")

    def hang(self) -> None:
        self.programs.mode("hang")

    def recover(self) -> None:
        self.programs.mode("ok")

    def name(self, number: int) -> str:
        return f"n{number}"

    def close(self) -> None:
        self.source.close()
        self.programs.close()


class PodsCase:
    def __init__(self, folder: Path) -> None:
        pytest.importorskip("kubernetes", reason="the Kubernetes client is not installed: uv sync")
        from discovery.kubernetes import Cluster, Slots, of_pods

        self.server = ApiServer()
        cluster = Cluster("train", None, self.server.kubeconfig(folder))
        self.source = of_pods("app=worker", cluster, Slots())

    def show(self, *numbers: int) -> None:
        for name in set(self.server.objects[PODS]) - {f"pod-{n}" for n in numbers}:
            self.server.delete(PODS, name)
        for n in numbers:
            if f"pod-{n}" not in self.server.objects[PODS]:
                self.server.put(PODS, pod(f"pod-{n}", self.name(n), slots=2))

    def fail(self) -> None:
        self.server.refuse = 503
        self.server.drop_watches()

    def hang(self) -> None:
        self.server.hanging.set()
        self.server.drop_watches()

    def recover(self) -> None:
        self.server.refuse = 0
        self.server.hanging.clear()

    def name(self, number: int) -> str:
        return f"10.0.0.{number}"

    def close(self) -> None:
        self.source.close()
        self.server.close()


class ServiceCase(PodsCase):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        from discovery.kubernetes import Cluster, of_service

        self.source = of_service("workers", Cluster("train", None, self.server.kubeconfig(folder)), 2)

    def show(self, *numbers: int) -> None:
        self.server.put(SLICES, endpoints("workers-1", *((self.name(n), True, False) for n in numbers)))


CASES: dict[str, Callable[[Path], Case]] = {
    "file": FileCase,
    "command": CommandCase,
    "slurm": SlurmCase,
    "pods": PodsCase,
    "service": ServiceCase,
}


def wait_found(source: Source, found: Callable[[Hosts], bool]) -> Hosts:
    """Ask until the answer is the one that is waited for."""
    ends = time.monotonic() + WITHIN_S
    last: Hosts | SourceError
    while True:
        try:
            last = source.find(1.0)
            if found(last):
                return last
        except SourceError as error:
            last = error
        assert time.monotonic() < ends, f"the last answer was {last!r}"
        time.sleep(0.02)


def wait_fails(source: Source, timeout_s: float) -> tuple[str, float]:
    """Ask until it fails; return why, and how long that question took."""
    ends = time.monotonic() + WITHIN_S
    while time.monotonic() < ends:
        began = time.monotonic()
        try:
            source.find(timeout_s)
        except SourceError as error:
            return str(error), time.monotonic() - began
        time.sleep(0.02)
    raise AssertionError("it did not fail")
