"""Fixtures: the script that launchers run, in a place of its own."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import discovery
from discovery.place import Place

SCRIPT = Path(discovery.__file__).with_name("discover_hosts.sh")
WITHIN_S = 20.0


@dataclass(frozen=True, slots=True)
class Said:
    """What the script has said."""

    code: int
    hosts: tuple[str, ...]
    problem: str
    took_s: float


@dataclass
class Asker:
    """Runs the script as a launcher does."""

    folder: Path
    env: dict[str, str] = field(default_factory=dict)

    def at(self, **env: str) -> "Asker":
        """Return one with other variables."""
        return Asker(self.folder, self.env | env)

    @property
    def whole_env(self) -> dict[str, str]:
        mine = {"XDG_RUNTIME_DIR": str(self.folder / "runtime"), "ELASTIC_PYTHON": sys.executable}
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("ELASTIC_")}
        return inherited | mine | {"PWD": str(self.folder)} | self.env

    @property
    def place(self) -> Place:
        config = self.env.get("ELASTIC_DISCOVERY") or self.env["ELASTIC_HOSTS_FILE"]
        return Place.of(config, self.whole_env)

    def ask(self) -> Said:
        began = time.perf_counter()
        done = subprocess.run(
            [str(SCRIPT)], env=self.whole_env, cwd=self.folder, capture_output=True, text=True, check=False
        )
        took_s = time.perf_counter() - began
        return Said(done.returncode, tuple(done.stdout.split()), done.stderr, took_s)

    def wait(self, fits: Callable[[Said], bool], within_s: float = WITHIN_S) -> Said:
        """Ask until the answer fits."""
        ends = time.monotonic() + within_s
        while not fits(said := self.ask()):
            assert time.monotonic() < ends, f"the last answer was {said}; {self.log()}"
            time.sleep(0.02)
        return said

    def wait_hosts(self, *lines: str) -> Said:
        return self.wait(lambda said: said.hosts == lines)

    def daemon(self) -> int:
        """Return the daemon's pid."""
        ends = time.monotonic() + WITHIN_S
        while (pid := self.place.daemon()) is None:
            assert time.monotonic() < ends, f"there is no daemon; {self.log()}"
            time.sleep(0.02)
        return pid

    def grow_old(self, seconds: int = 20) -> None:
        """Let the answer be as old as if the daemon had been gone for so long."""
        header, _, rest = self.place.answer.read_text().partition("\n")
        written, keep = map(int, header.split())
        self.place.answer.write_text(f"{written - seconds} {keep}\n{rest}")
        (self.place.path / "tried").unlink(missing_ok=True)

    def log(self) -> str:
        return self.place.log.read_text() if self.place.log.exists() else "it has not been started"

    def close(self) -> None:
        for lock in (self.folder / "runtime").rglob("lock"):
            place = Place(lock.parent)
            while (pid := place.daemon()) is not None:
                os.kill(pid, signal.SIGKILL)
                time.sleep(0.02)


@pytest.fixture
def asker(tmp_path: Path) -> Iterator[Asker]:
    (tmp_path / "runtime").mkdir()
    asker = Asker(tmp_path)
    yield asker
    asker.close()


@pytest.fixture
def hosts_file(tmp_path: Path) -> Path:
    return tmp_path / "hosts"


@pytest.fixture
def by_file(asker: Asker, hosts_file: Path) -> Asker:
    """One that asks for the hosts of a file."""
    return asker.at(ELASTIC_HOSTS_FILE=str(hosts_file))
