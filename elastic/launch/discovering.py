"""Discovery, as a job under `elastic run` has it: its configuration, its daemon, its first answer."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from subprocess import DEVNULL
from types import TracebackType
from typing import Self

import yaml

import discovery
from discovery.config import Discovery, SourceSection
from discovery.place import Place, PlaceError
from elastic.config import Config
from elastic.errors import ConfigError
from elastic.rundir import RunDir

SCRIPT = Path(discovery.__file__).with_name("discover_hosts.sh")
ASK_S = 1.0
END_S = 2.0
POLL_S = 0.02


def settings_of(config: Config, directory: RunDir) -> Discovery:
    """Return where a job's hosts come from: the `hosts` file of its run directory, if nothing else is said."""
    told = config.discovery or Discovery()
    sources = told.sources or (SourceSection(file=directory.hosts),)
    here = told.from_folder(Path.cwd())
    return here.model_copy(
        update={
            "sources": here.sources if told.sources else sources,
            "notices": here.notices or directory.notices,
        }
    )


class Discovering:
    """A job's discovery from before its first launcher to after its last one.

    Args:
        config: the job.
        directory: its run directory.
        hosts: the lines of the `hosts` file, to begin with.
    """

    def __init__(self, config: Config, directory: RunDir, hosts: tuple[str, ...]) -> None:
        self._settings = settings_of(config, directory)
        self._directory = directory
        self._hosts = hosts
        self._place = Place.of(directory.discovery)

    @property
    def env(self) -> dict[str, str]:
        """What the script needs in its environment."""
        return {
            "ELASTIC_DISCOVERY": str(self._directory.discovery),
            "ELASTIC_DISCOVERY_LOG": str(self._directory.decisions),
            "ELASTIC_PYTHON": sys.executable,
        }

    def __enter__(self) -> Self:
        """Write it down and start it.

        Raises:
            ConfigError: when something must be changed first.
        """
        self._directory.hosts.write_text("".join(f"{line}\n" for line in self._hosts), encoding="utf-8")
        plain = self._settings.model_dump(mode="json", exclude_none=True)
        self._directory.discovery.write_text(yaml.safe_dump(plain, sort_keys=False), encoding="utf-8")
        self._place.end_daemon()
        try:
            self._place.create()
        except PlaceError as error:
            raise ConfigError(f"discovery: {error}") from None
        for left in (self._place.problem, self._place.answer, self._place.path / "tried"):
            left.unlink(missing_ok=True)
        self._ask()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        ends = time.monotonic() + END_S
        self._place.end_daemon()
        while self._place.daemon() is not None and time.monotonic() < ends:
            time.sleep(POLL_S)
        shutil.rmtree(self._place.path, ignore_errors=True)

    def first(self, within_s: float) -> tuple[str, ...]:
        """Return the `host:slots` lines of the first answer that names any; none if there is no such in time.

        Raises:
            ConfigError: when discovery cannot start.
        """
        ends = time.monotonic() + within_s
        asked_at = time.monotonic()
        while time.monotonic() < ends:
            lines = self._place.read_answer()
            if lines:
                return lines
            if lines is None and self._place.problem.exists():
                raise ConfigError(f"discovery: {self.problem}")
            if time.monotonic() - asked_at > ASK_S:
                asked_at = time.monotonic()
                self._ask()
            time.sleep(POLL_S)
        return ()

    @property
    def problem(self) -> str:
        """Why there is no host, as far as discovery has said."""
        try:
            return self._place.problem.read_text(encoding="utf-8").strip()
        except OSError:
            return "no hosts yet: no source has answered"

    def _ask(self) -> None:
        """Ask as a launcher does: the daemon ends when nobody does."""
        subprocess.run([str(SCRIPT)], env=os.environ | self.env, stdout=DEVNULL, stderr=DEVNULL, check=False)
