"""What this worker feeds into the steps, written down for `elastic audit` (see `views.audit`)."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elastic.progress import Progress


class AuditLog:
    """One file of JSON lines a process; each line is with the kernel before the worker goes on.

    Args:
        folder: made when missing.
        name: of the file, unlike any other worker's.

    Raises:
        OSError: when the file cannot be made or written: an audit with holes is none.
    """

    def __init__(self, folder: Path, name: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._fd = os.open(folder / f"{name}.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self._generation = 0
        self._at = Progress()

    def world(self, generation: int, at: Progress) -> None:
        """A world formed; it goes on from `at`."""
        self._generation, self._at = generation, at
        self._write(world=generation, epoch=at.epoch, step=at.step)

    def fed(self, indices: NDArray[np.int64]) -> None:
        """These samples go into the step that follows the last completed one; called before its collective."""
        if len(indices):
            at = self._at
            self._write(fed=self._generation, epoch=at.epoch, step=at.step + 1, indices=indices.tolist())

    def done(self, at: Progress) -> None:
        """A step is complete."""
        self._at = at
        self._write(done=self._generation, step=at.step)

    def ended(self, at: Progress, samples: int, owed: int) -> None:
        """An epoch has had its last step: `owed` of the source's `samples` are used."""
        self._write(ended=self._generation, epoch=at.epoch, samples=samples, owed=owed)

    def epoch(self, at: Progress) -> None:
        """The next epoch begins."""
        self._at = at

    def _write(self, **line: Any) -> None:
        data = json.dumps(line).encode() + b"\n"
        if os.write(self._fd, data) != len(data):
            raise OSError(f"the audit's file took only a part of {len(data)} bytes: is the disk full?")
