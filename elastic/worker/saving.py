"""Rank 0's durable checkpoints, written beside training."""

import platform
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import horovod.tensorflow as hvd
from numpy.typing import NDArray

from elastic.config import Checkpoint
from elastic.events import CheckpointFailed, CheckpointWritten, Event
from elastic.progress import Progress
from elastic.worker.checkpoint import CheckpointStore
from elastic.worker.training_state import HeldState, TrainingState


class Saver:
    """Takes hold of the state on the training thread and copies and writes it on another.

    What comes while the last one is still being written is not written: the next is. A disk that
    refuses is reported and does not stop training.

    Args:
        store: where to; None keeps nothing.
        options: when.
        emit: takes the facts.
        now: seconds, monotonic.
    """

    def __init__(
        self,
        store: CheckpointStore | None,
        options: Checkpoint,
        emit: Callable[[Event], None],
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store if options.enabled else None
        self._options = options
        self._emit = emit
        self._now = now
        self._commits = 0
        self._last = (now(), 0)  # when, and at which step, one was begun
        self._written: Progress | None = None
        self._pending: Future[None] | None = None
        self._room: Sequence[NDArray[Any]] = ()  # of the last copy; one is written at a time
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")

    def after_commit(self, state: TrainingState) -> None:
        """Write a checkpoint if this commit is one to be written."""
        self._commits += 1
        if self._commits % self._options.every_commits == 0 or state.at.consumed == 0:
            self._begin(state)

    def after_step(self, state: TrainingState) -> None:
        """Write a checkpoint if time or steps say so."""
        since, step = self._last
        every = self._options.every_steps
        if self._now() - since >= self._options.every_s or (every is not None and state.at.step - step >= every):
            self._begin(state)

    def save_now(self, state: TrainingState) -> None:
        """Write a checkpoint of this very state, for now the last one, and wait until it is durable (or refused)."""
        if self._pending is not None:
            self._pending.result()
        if self._store is None:
            return
        if self._written != state.at:
            self._write(state.held(), hvd.size(), self._now(), None)
        self._store.tidy()

    def _begin(self, state: TrainingState) -> None:
        if self._store is None or (self._pending is not None and not self._pending.done()):
            return
        began = self._now()
        self._last = (began, state.at.step)
        self._pending = self._pool.submit(self._write, state.held(), hvd.size(), began, self._now() - began)

    def _write(self, held: HeldState, world_size: int, began: float, blocked_s: float | None) -> None:
        """Write a checkpoint; training stands still for `blocked_s` of it, or (None) for all of it."""
        assert self._store is not None
        step = held.progress.step
        snapshot = held.copied(world_size, versions(), self._room)
        self._room = snapshot.arrays
        try:
            path, size = self._store.write(snapshot)
        except OSError as error:
            self._emit(CheckpointFailed(step, str(error)))
            return
        self._written = held.progress
        took = round(self._now() - began, 6)
        self._emit(
            CheckpointWritten(step, _short(path), size, took, took if blocked_s is None else round(blocked_s, 6))
        )


def _short(path: Path) -> str:
    return f"{path.parent.name}/{path.name}"


@cache
def versions() -> dict[str, str]:
    """Return the versions that a checkpoint or a bug report should name."""
    named = ("elastic-keras", "tensorflow", "keras", "horovod", "numpy")
    return {"python": platform.python_version()} | {name: version(name) for name in named}
