"""The state of `fit`: the live variables are the last completed step.

A step is atomic (see `optimizer` and `guard`), so after a lost collective nothing has to be copied
back: `restore` takes back the half-done forward pass, and `sync` brings everyone to the most
advanced survivor. Only when no worker holds a state does the newest valid checkpoint count.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any

import horovod.tensorflow as hvd
import keras
import numpy as np

from elastic.events import CheckpointLoaded, CheckpointRejected, Event
from elastic.progress import Progress
from elastic.worker import checkpoint
from elastic.worker.callbacks import Callbacks
from elastic.worker.checkpoint import CheckpointStore, Snapshot
from elastic.worker.collective import broadcast_object, broadcast_variables, collectives, gather
from elastic.worker.state import KerasState, assign_all, most_advanced
from elastic.worker.step import Steps


class Stage(IntEnum):
    """How far the epoch in progress is, beside its steps."""

    NEW = 0  # callbacks have not been told of it
    BEGUN = 1
    TRAINED = 2  # all steps done, their metrics averaged; validation is next


@dataclass(frozen=True, slots=True, order=True)
class Standing:
    """What a worker brings to a sync; ordered by how much it is worth."""

    holds_state: bool
    progress: Progress
    stage: Stage
    generation: int


@dataclass(frozen=True, slots=True)
class Agreement:
    """What a sync came to."""

    root: int
    generation: int
    resumed: bool  # training had begun before this world


class TrainingState(KerasState):
    """Model, optimizer, progress and callback state of one `fit`.

    Attributes:
        at: the last completed step.
        stage: of the epoch in progress.
        epoch_logs: metrics of its steps, once they are all done.
        last_logs: all metrics of the last whole epoch.
        remembered: callback state that the last sync brought.
        generation: number of the world, agreed by its members; 0 before the first.
        hosts_changed: set (from Horovod's notification thread) when the launcher has news.
    """

    def __init__(
        self,
        model: keras.Model,
        steps: Steps,
        callbacks: Callbacks,
        store: CheckpointStore | None,
        emit: Callable[[Event], None],
    ) -> None:
        self.at = Progress()
        self.stage = Stage.NEW
        self.epoch_logs: dict[str, Any] = {}
        self.last_logs: dict[str, Any] = {}
        self.remembered: list[Any] = []
        self.generation = 0
        self.hosts_changed = False
        self.holds_state = False
        self.callbacks = callbacks
        self.agreement = Agreement(root=0, generation=0, resumed=False)
        self.sync_s = 0.0
        self._steps = steps
        self._store = store
        self._emit = emit
        super().__init__(model)

    def save(self) -> None:
        """Nothing to copy: the live variables are the last completed step."""

    def restore(self) -> None:
        """Undo what a half-done step's forward pass changed."""
        self._steps.take_back()

    def on_hosts_updated(self, timestamp: int, update_res: Any) -> None:
        """Note the launcher's news; the next step tells all workers."""
        self.hosts_changed = True

    def on_reset(self) -> None:
        """Nothing is stale: `hosts_changed` was cleared before the rendezvous, not after it."""

    def commit(self) -> None:
        """Nothing to copy, and host changes travel with every step."""

    def check_host_updates(self) -> None:
        """Host changes travel with every step."""

    def sync(self) -> None:
        """Agree on the most advanced worker, or else on a checkpoint, and take its state."""
        began = time.monotonic()
        with collectives():
            mine = Standing(self.holds_state, self.at, self.stage, self.generation)
            standings: list[Standing] = gather(mine, "elastic.standing")
            root = most_advanced(standings)
            held = standings[root].holds_state
            found = root if held else self._agree_on_checkpoint()
            root, resumed = (0, False) if found is None else (found, True)
            if not (held and all(s == standings[root] for s in standings)):
                self._take_from(root)
        self.holds_state = True
        self.generation = max(s.generation for s in standings) + 1
        self.agreement = Agreement(root, self.generation, resumed)
        self.sync_s = time.monotonic() - began

    def _take_from(self, root: int) -> None:
        broadcast_variables(self.variables(), root)
        at, objects = broadcast_object((self.at, self._objects()), root, "elastic.training")
        if at != self.at or not self.holds_state:
            self._take_objects(objects)
            self.at = at
        self.stage = Stage(objects["stage"])

    def _objects(self) -> dict[str, Any]:
        return {
            "callbacks": self.callbacks.capture(),
            "stage": int(self.stage),
            "epoch_logs": self.epoch_logs,
            "last_logs": self.last_logs,
            "stop_training": bool(self.model.stop_training),
        }

    def _take_objects(self, objects: dict[str, Any]) -> None:
        self.remembered = objects["callbacks"]
        self.callbacks.apply(self.remembered)
        self.stage = Stage(objects["stage"])
        self.epoch_logs = objects["epoch_logs"]
        self.last_logs = objects["last_logs"]
        self.model.stop_training = objects["stop_training"]

    def _agree_on_checkpoint(self) -> int | None:
        """Load the newest checkpoint that any rank can read, on that rank; return the rank."""
        path = self._newest_checkpoint()
        steps = gather(-1 if path is None else checkpoint.step_of(path), "elastic.checkpoints")
        root = most_advanced(steps)
        if steps[root] < 0:
            return None
        if path is not None and hvd.rank() == root:
            self._load(path)
        return root

    def _newest_checkpoint(self) -> Path | None:
        if self._store is None:
            return None
        return self._store.newest_valid(lambda path, why: self._emit(CheckpointRejected(str(path), why)))

    def _load(self, path: Path) -> None:
        found = checkpoint.read(path)
        assign_all(self.variables(), found.arrays)
        self.at = found.progress
        self._take_objects(found.objects)
        self._emit(CheckpointLoaded(self.at.step, str(path)))

    def snapshot(self, world_size: int, versions: dict[str, str]) -> Snapshot:
        """Copy the state to host memory."""
        variables = self.variables()
        return Snapshot(
            progress=self.at,
            names=tuple(v.name for v in variables),
            arrays=tuple(np.array(v.numpy()) for v in variables),
            objects=self._objects(),
            world_size=world_size,
            versions=versions,
        )

    def _save_model(self) -> None:
        """No copy is kept in memory."""
