"""The run directory: what a job leaves behind, and what it goes on from.

config.yaml     the configuration as resolved
events.jsonl    one typed fact a line (on a shared file system also events-MACHINE.jsonl, one a machine)
checkpoints/    durable state, newest last
tensorboard/    scalars
stash/          what a slot's last worker had put by when its agent ended, until training goes on
audit/          with `audit: true`, one file a worker process: what it fed into which step
discovery.yaml  where hosts come from, for `elastic-discover --config`
decisions.jsonl who was listed and who was not, and why: one decision of discovery a line
launcher.json   where the launcher's rendezvous is, for `elastic warm`
notices/        hosts that will be taken away
logs/           one file a worker, one for the launcher
heartbeats/     while it runs, one file a slot: what its worker does just now
summary.json    the outcome
report.html     what `elastic report` makes of it all
chaos.json      after `elastic chaos`: the faults, and how the job lived through them
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
    def stash(self) -> Path:
        return self.path / "stash"

    @property
    def hosts(self) -> Path:
        return self.path / "hosts"

    @property
    def discovery(self) -> Path:
        return self.path / "discovery.yaml"

    @property
    def decisions(self) -> Path:
        return self.path / "decisions.jsonl"

    @property
    def launched(self) -> Path:
        return self.path / "launcher.json"

    @property
    def notices(self) -> Path:
        return self.path / "notices"

    @property
    def logs(self) -> Path:
        return self.path / "logs"

    @property
    def heartbeats(self) -> Path:
        return self.path / "heartbeats"

    @property
    def report(self) -> Path:
        return self.path / "report.html"

    @property
    def summary(self) -> Path:
        return self.path / "summary.json"

    @property
    def chaos(self) -> Path:
        return self.path / "chaos.json"

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
