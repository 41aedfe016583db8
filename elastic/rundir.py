"""The run directory: what a job leaves behind, and what it goes on from.

config.yaml     the configuration as resolved
events.jsonl    one typed fact a line
checkpoints/    durable state, newest last
tensorboard/    scalars
audit/          with `audit: true`, one file a worker process: what it fed into which step
logs/           one file a worker, one for the launcher
summary.json    the outcome
result.pkl      what a function that `elastic.ray.run` was given has returned
"""

import os
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from elastic.errors import ConfigError


@dataclass(frozen=True, slots=True)
class RunDir:
    """Paths of one run."""

    path: Path

    @property
    def config(self) -> Path:
        return self.path / "config.yaml"

    @property
    def events(self) -> Path:
        return self.path / "events.jsonl"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def tensorboard(self) -> Path:
        return self.path / "tensorboard"

    @property
    def audit(self) -> Path:
        return self.path / "audit"

    @property
    def logs(self) -> Path:
        return self.path / "logs"

    @property
    def summary(self) -> Path:
        return self.path / "summary.json"

    @property
    def result(self) -> Path:
        return self.path / "result.pkl"

    def create(self) -> "RunDir":
        """Make the directory and its parts where they are missing.

        Raises:
            ConfigError: when it cannot be made or written.
        """
        try:
            for folder in (self.path, self.checkpoints, self.logs):
                folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"run directory {self.path}: {error.strerror}; choose another with --run-dir") from None
        if not os.access(self.path, os.W_OK):
            raise ConfigError(f"run directory {self.path}: not writable; choose another with --run-dir")
        return self


def fresh(name: str, now: datetime) -> RunDir:
    """Return a run directory that does not exist yet, named after the job and the time."""
    stem = Path("runs") / f"{name}-{now:%Y%m%d-%H%M%S}"
    path, n = stem, 1
    while path.exists():
        n += 1
        path = stem.with_name(f"{stem.name}-{n}")
    return RunDir(path.resolve())
