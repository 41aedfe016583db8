"""Where a run's launcher is: its agents leave word in the run directory for hosts that have no slot yet."""

import contextlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path

from elastic.agent.slot import Slot
from elastic.filesystem import write_whole
from elastic.rundir import RunDir


@dataclass(frozen=True, slots=True)
class Launched:
    """A run's launcher, as its agents leave it in the run directory.

    Attributes:
        address, port: of its rendezvous.
        launcher: what it is called.
        job: the file that is trained.
    """

    address: str
    port: int
    launcher: str
    job: str


def leave_word(run_dir: RunDir, slot: Slot, job: Path) -> None:
    """Let other hosts find the launcher of a slot."""
    if slot.rendezvous is None:
        return
    text = json.dumps(asdict(Launched(*slot.rendezvous, slot.launcher, str(job)))).encode()
    with contextlib.suppress(OSError):  # a full disk keeps nobody from training
        if not run_dir.launched.exists() or run_dir.launched.read_bytes() != text:
            write_whole(run_dir.launched, text)


def read_word(run_dir: RunDir) -> Launched | None:
    """Return the launcher that agents have last told of; None while there is none."""
    try:
        return Launched(**json.loads(run_dir.launched.read_bytes()))
    except (OSError, ValueError, TypeError):
        return None
