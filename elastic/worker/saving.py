"""Rank 0's durable checkpoints, written beside training."""

import platform
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path

import horovod.tensorflow as hvd

from elastic.config import Checkpoint
from elastic.events import CheckpointFailed, CheckpointWritten, Event
from elastic.progress import Progress
from elastic.worker.checkpoint import CheckpointStore, Snapshot
from elastic.worker.training_state import TrainingState


class Saver:
    """Copies the state on the training thread and writes it on another.

    A commit that comes while the last one is still being written is not written: the next is. A
    disk that refuses is reported and does not stop training.

    Args:
        store: where to; None keeps nothing.
        options: which commits.
        emit: takes the facts.
    """

    def __init__(self, store: CheckpointStore | None, options: Checkpoint, emit: Callable[[Event], None]) -> None:
        self._store = store if options.enabled else None
        self._every = options.every_commits
        self._emit = emit
        self._commits = 0
        self._written: Progress | None = None
        self._pending: Future[None] | None = None
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")

    def save(self, state: TrainingState) -> None:
        """Write a checkpoint if one is due and none is under way."""
        self._commits += 1
        due = self._commits % self._every == 0 or state.at.consumed == 0
        if self._store is not None and due and (self._pending is None or self._pending.done()):
            self._pending = self._pool.submit(self._write, self._snapshot(state))

    def save_now(self, state: TrainingState) -> None:
        """Write a checkpoint of this very state, and wait until it is durable (or refused)."""
        if self._pending is not None:
            self._pending.result()
        if self._store is not None and self._written != state.at:
            self._write(self._snapshot(state))

    @staticmethod
    def _snapshot(state: TrainingState) -> Snapshot:
        return state.snapshot(hvd.size(), versions())

    def _write(self, snapshot: Snapshot) -> None:
        assert self._store is not None
        began = time.monotonic()
        try:
            path, size = self._store.write(snapshot)
        except OSError as error:
            self._emit(CheckpointFailed(snapshot.progress.step, str(error)))
            return
        self._written = snapshot.progress
        self._emit(CheckpointWritten(snapshot.progress.step, _short(path), size, round(time.monotonic() - began, 6)))


def _short(path: Path) -> str:
    return f"{path.parent.name}/{path.name}"


def versions() -> dict[str, str]:
    """Return the versions that a checkpoint or a bug report should name."""
    named = ("elastic-keras", "tensorflow", "keras", "horovod", "numpy")
    return {"python": platform.python_version()} | {name: version(name) for name in named}
