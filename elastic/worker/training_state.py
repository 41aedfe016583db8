"""The state of `fit`: the live variables are the last completed step.

A step is atomic (see `optimizer` and `guard`), so after a lost collective nothing has to be copied
back: `restore` takes back the half-done forward pass, and `sync` brings everyone to the most
advanced survivor. Only when no worker holds a state does the newest valid checkpoint count.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import horovod.tensorflow as hvd
import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from elastic.events import CheckpointLoaded, CheckpointRejected, Event, StashLoaded
from elastic.progress import Progress
from elastic.worker import checkpoint
from elastic.worker.callbacks import Callbacks
from elastic.worker.checkpoint import CheckpointStore, Snapshot
from elastic.worker.collective import collectives, dumps, gather_rows, loads
from elastic.worker.next_world import HostNews
from elastic.worker.same_data import refuse_other_data
from elastic.worker.stash import Remains, Stash, assign_bytes
from elastic.worker.state import KerasState, assign_all, exchange
from elastic.worker.step import Steps

_REMOVED = 1  # of Horovod's HostUpdateResult
_NOTHING = (0, 0, 0, 0, 0, 0)  # the standing of a worker that has only just begun


class Stage(IntEnum):
    """How far the epoch in progress is, beside its steps."""

    NEW = 0  # callbacks have not been told of it
    BEGUN = 1
    TRAINED = 2  # all steps done, their metrics averaged; validation is next


@dataclass(slots=True)
class HeldState:
    """The state of one step, in buffers that training may still share."""

    progress: Progress
    names: tuple[str, ...]
    values: list[Any]
    objects: dict[str, Any]

    def copied(self, world_size: int, versions: dict[str, str], room: Sequence[NDArray[Any]] = ()) -> Snapshot:
        """Copy to memory of its own, letting go of each buffer at once: whoever writes to one still held copies it.

        Args:
            room: arrays of an earlier copy that nobody needs any more. They are written over where they fit:
                fresh memory takes several times as long to fill as memory that was used before.
        """
        arrays = []
        self.values.reverse()
        for old in chain(room, repeat(None)):
            if not self.values:
                break
            arrays.append(_copied(self.values.pop().numpy(), old))
        return Snapshot(self.progress, self.names, tuple(arrays), self.objects, world_size, versions)


@dataclass(frozen=True, slots=True)
class Agreement:
    """What a sync came to."""

    root: int
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
        stash: where to put the state by between two worlds, if there is an agent.
        remains: what has been put by, here and in slots that are no more.
        hosts: what the launcher has told of changes of the set of hosts.
        samples: how many this worker sees, for training and for validation.
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
        self.hosts = HostNews()
        self.samples = (0, 0)
        self.stash: Stash | None = None
        self.remains = Remains(None, None)
        self.holds_state = False
        self.callbacks = callbacks
        self.agreement = Agreement(root=0, resumed=False)
        self._steps = steps
        self._store = store
        self._emit = emit
        super().__init__(model)

    def variables(self) -> list[Any]:
        """Return what is synced and written: metrics too, where they are of all workers' samples after each step."""
        more = self.model.metrics_variables if self._steps.joint_metrics else []
        return [*super().variables(), *(v.value for v in more)]

    def save(self) -> None:
        """Nothing to copy: the live variables are the last completed step."""

    def restore(self) -> None:
        """Undo what a half-done step's forward pass changed."""
        self._steps.take_back()

    def on_hosts_updated(self, timestamp: int, update_res: Any) -> None:
        """Note the launcher's news (on Horovod's notification thread); the next step tells all workers."""
        self.hosts.hear(bool(int(update_res or 0) & _REMOVED))

    def on_reset(self) -> None:
        """Nothing is stale: the news was settled before the rendezvous, not after it."""

    def commit(self) -> None:
        """Nothing to copy, and host changes travel with every step."""

    def check_host_updates(self) -> None:
        """Host changes travel with every step."""

    def sync(self) -> None:
        """Agree on the most advanced worker, or else on a checkpoint, and take its state.

        Raises:
            ConfigError: when this worker sees other data than those that train, or than rank 0.
        """
        with collectives():
            rows = gather_rows([int(self.holds_state), *self.samples, self.generation], "generation")
            refuse_other_data([row[:-1] for row in rows], hvd.rank())
            if not any(row[0] for row in rows):
                self._load_what_is_left()
            root, standings, packed = exchange(self._standing(), self.variables(), dumps(self._objects()), "training")
        if standings[root] != self._standing() or not self.holds_state:
            self._take_objects(loads(packed))
        self.holds_state = True
        self.generation = max(row[-1] for row in rows) + 1
        self.agreement = Agreement(root, resumed=standings[root] > _NOTHING)

    def _standing(self) -> tuple[int, ...]:
        """Return what this worker brings to a sync, as numbers to compare from left to right."""
        at = self.at
        return at.epoch, at.consumed, at.epoch_step, at.step, at.samples, int(self.stage)

    def put_by(self) -> None:
        """Leave the state with the agent, in case this process does not live to see the next world."""
        if self.stash is not None and self.holds_state:
            self.stash.save(dumps(self._objects()), self.variables())

    def _load_what_is_left(self) -> None:
        """Where no worker holds a state: let the rank with the best remains take them up.

        Those are what a slot's last worker put by with its agent, or else the newest checkpoint.
        """
        kept = [(loads(objects), variables) for objects, variables in self.remains.load()]
        kept.sort(key=lambda found: _reached(found[0]))
        stashed = _reached(kept[-1][0]) if kept else (-1, -1)
        path = self._newest_checkpoint()
        written = checkpoint.step_and_epoch(path) if path is not None else (-1, -1)
        rows = gather_rows([*max(stashed, written)], "remains")
        if max(rows) < (0, 0) or rows.index(max(rows)) != hvd.rank():
            return
        if kept and stashed >= written:
            objects, variables = kept[-1]
            assign_bytes(self.variables(), variables)
            self._take_objects(objects)
            self._emit(StashLoaded(self.at.step))
        elif path is not None:
            self._load(path)

    def _objects(self) -> dict[str, Any]:
        return {
            "callbacks": self.callbacks.capture(),
            "at": self.at,
            "stage": int(self.stage),
            "epoch_logs": self.epoch_logs,
            "last_logs": self.last_logs,
            "stop_training": bool(self.model.stop_training),
        }

    def _take_objects(self, objects: dict[str, Any]) -> None:
        self.remembered = objects["callbacks"]
        self.callbacks.apply(self.remembered)
        self.at = objects["at"]
        self.stage = Stage(objects["stage"])
        self.epoch_logs = objects["epoch_logs"]
        self.last_logs = objects["last_logs"]
        self.model.stop_training = objects["stop_training"]

    def _newest_checkpoint(self) -> Path | None:
        if self._store is None:
            return None
        return self._store.newest_valid(lambda path, why: self._emit(CheckpointRejected(str(path), why)))

    def _load(self, path: Path) -> None:
        found = checkpoint.read(path)
        assign_all(self.variables(), found.arrays)
        self._take_objects(found.objects)
        self._emit(CheckpointLoaded(self.at.step, str(path)))

    def held(self) -> HeldState:
        """Hold on to the state as it is now, without copying it; takes a fraction of a millisecond.

        A held value shares the variable's buffer. TensorFlow copies a buffer that is shared before
        it writes to it, so that training can go on at once.
        """
        variables = self.variables()
        return HeldState(self.at, tuple(v.name for v in variables), [_shared(v) for v in variables], self._objects())

    def _save_model(self) -> None:
        """No copy is kept in memory."""


def _shared(variable: tf.Variable) -> tf.Tensor:
    """Return the variable's value in its own buffer; `read_value` does the same in ten times the time."""
    return tf.raw_ops.ReadVariableOp(resource=variable.handle, dtype=variable.dtype)


def _copied(value: NDArray[Any], room: NDArray[Any] | None) -> NDArray[Any]:
    if room is None or (room.shape, room.dtype) != (value.shape, value.dtype):
        return np.array(value)
    np.copyto(room, value)
    return room


def _reached(objects: dict[str, Any]) -> tuple[int, int]:
    """Return the step and epoch of a state's objects, to compare with those of checkpoints."""
    return objects["at"].step, objects["at"].epoch
