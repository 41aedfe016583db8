"""What each agent last knew of its slot's worker: one small file a slot, for whoever watches the run.

Events tell what has happened; this tells how things are. An agent overwrites its own file about
once a second, whole or not at all, and removes it when its slot ends. An agent that was killed leaves its
file behind: how old it is shows that. A disk that is full keeps the old one.
"""

import contextlib
import json
import os
from dataclasses import asdict, dataclass, fields
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A slot at a moment.

    Attributes:
        time: when its agent wrote this, in seconds since 1970.
        worker_pid: 0 while there is no worker.
        rank, generation: in the world that the worker is in, or was last; rank -1: none yet.
        phase: what the worker does (`channel.Phase`), for `since_s` now.
        silent_s: since its last sign of life.
        step_s: a recent step, median; 0: unknown.
        own_s: what the worker itself needed of a recent step, without waiting for its peers, median; 0: unknown.
        standbys, warming: processes of the host's pool, if this agent keeps it.
    """

    time: float
    host: str
    slot: int
    agent_pid: int
    worker_pid: int = 0
    rank: int = -1
    generation: int = 0
    phase: str = ""
    since_s: float = 0.0
    silent_s: float = 0.0
    step: int = 0
    step_s: float = 0.0
    own_s: float = 0.0
    standbys: int = 0
    warming: int = 0


def path_of(folder: Path, host: str, slot: int) -> Path:
    """Return a slot's file."""
    return folder / f"{host}-{slot}.json"


def write(folder: Path, beat: Heartbeat) -> None:
    """Leave a slot's heartbeat in `folder`; what cannot be written is left out."""
    path = path_of(folder, beat.host, beat.slot)
    temporary = path.with_suffix(".new")
    try:
        folder.mkdir(exist_ok=True)
        temporary.write_text(json.dumps(asdict(beat)), encoding="utf-8")
        os.replace(temporary, path)  # noqa: PTH105 - a plain call, once a second
    except OSError:
        remove(temporary)


def remove(path: Path) -> None:
    """Remove a file that may not be there."""
    with contextlib.suppress(OSError):
        path.unlink()


def read(folder: Path) -> list[Heartbeat]:
    """Return the slots' heartbeats by host and slot; a file that is no heartbeat is left out."""
    known = {f.name for f in fields(Heartbeat)}
    found = []
    for path in sorted(folder.glob("*.json")):
        try:
            raw = json.loads(path.read_text(encoding="utf-8"))
            found.append(Heartbeat(**{k: v for k, v in raw.items() if k in known}))
        except (OSError, ValueError, TypeError, AttributeError):
            continue
    return sorted(found, key=lambda beat: (beat.host, beat.slot))
