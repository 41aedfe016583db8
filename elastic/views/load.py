"""A run directory as the views see it: its facts, its configuration, what its slots last said."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from elastic import heartbeats
from elastic.errors import ConfigError
from elastic.eventlog import SCHEMA, files_of
from elastic.events import Record, Tail, read
from elastic.heartbeats import Heartbeat
from elastic.rundir import RunDir


@dataclass(frozen=True)
class Run:
    """What a run directory holds at a moment.

    Attributes:
        records: in the order of their time.
        beats: of the slots that have an agent, by host and slot.
        config: as resolved, in its plain form; empty where there is none.
        versions: of what it ran with, by name; empty where nothing tells.
    """

    directory: RunDir
    records: Sequence[Record]
    beats: Sequence[Heartbeat] = ()
    config: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)


def load(path: Path) -> Run:
    """Read a run directory, of a run that goes on, has ended, or was copied here.

    Raises:
        ConfigError: when it is none, or when its facts are of a newer schema.
    """
    directory = RunDir(path)
    check(directory)
    records = read(directory.events)
    check_schema(records)
    return Run(
        directory, records, heartbeats.read(directory.heartbeats), _config(directory), _versions(directory, records)
    )


class Following:
    """A run directory that is looked at again and again; each time only what is new is read.

    Of facts of progress older than `KEPT_S` the first and the last between two other facts are kept, so
    that a long run takes no longer to look at than a short one.

    Raises:
        ConfigError: when it is looked at and its facts are of a newer schema.
    """

    KEPT_S = 120.0

    def __init__(self, path: Path) -> None:
        self._directory = RunDir(path)
        self._tail = Tail(self._directory.events)
        self._records: list[Record] = []

    def look(self) -> Run:
        """Return the run as it is now, which may have no facts yet."""
        new = list(self._tail.new())
        check_schema(new)
        if new:
            self._records = thinned(sorted([*self._records, *new], key=lambda r: r.time), self.KEPT_S)
        directory = self._directory
        return Run(directory, self._records, heartbeats.read(directory.heartbeats), _config(directory))


def thinned(records: Sequence[Record], kept_s: float) -> list[Record]:
    """Return the records without facts of progress that stand between two others of the same world and are old."""
    if not records:
        return []
    before = records[-1].time - kept_s
    found: list[Record] = []
    for n, record in enumerate(records):
        inner = record.event == "Progressed" and record.time < before and 0 < n < len(records) - 1
        around = {(r.event, r.generation) for r in records[n - 1 : n + 2]} if inner else set()
        if len(around) != 1:
            found.append(record)
    return found


def check(directory: RunDir) -> None:
    """Raise a ConfigError unless this is a run directory."""
    if not any(file.is_file() for file in files_of(directory.events)):
        raise ConfigError(
            f"{directory.path}: no events.jsonl in it; expected the directory of a run, such as runs/NAME-DATE"
        )


def check_schema(records: Sequence[Record]) -> None:
    """Raise a ConfigError when facts were written by a newer version than this one can read."""
    newest = max((r.schema for r in records), default=SCHEMA)
    if newest > SCHEMA:
        what = f"the events are of schema {newest}, this version reads up to {SCHEMA}"
        raise ConfigError(f"{what}: install a newer elastic-keras to look at them")


def newest(runs: Path = Path("runs")) -> Path:
    """Return the run directory in `runs` whose facts are the most recent.

    Raises:
        ConfigError: when there is none.
    """
    found = [p for p in runs.glob("*/events*.jsonl") if p.is_file()]
    if not found:
        raise ConfigError(f"no run directory given, and none in {runs.resolve()}; expected RUN_DIR")
    return max(found, key=lambda p: p.stat().st_mtime).parent


def _config(directory: RunDir) -> dict[str, Any]:
    try:
        raw = yaml.safe_load(directory.config.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError):
        return {}
    return raw if isinstance(raw, dict) else {}


def _versions(directory: RunDir, records: Sequence[Record]) -> dict[str, str]:
    """Return what the launcher or else the newest checkpoint tells."""
    told = next((r.get("versions") for r in reversed(records) if r.event == "JobStarted" and r.get("versions")), None)
    if told:
        return dict(told)
    for manifest in sorted(directory.checkpoints.glob("*/manifest.json"), reverse=True):
        try:
            return dict(json.loads(manifest.read_text(encoding="utf-8"))["versions"])
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return {}
