"""The state of a Keras 3 model that workers commit, restore and bring into agreement.

Horovod's `TensorFlowKerasState` fails on Keras 3 (`optimizer.variables` is a property there) and
broadcasts from rank 0, which may be a newcomer: the launcher gives a restarted process the rank
of the one that died. This subclass reads Keras 3's variables, and its `sync` agrees on the most
advanced rank and takes that one's state.
"""

import hashlib
from collections.abc import Sequence
from typing import Any

import horovod.tensorflow as hvd
import keras
import numpy as np
import tensorflow as tf
from horovod.common.elastic import ObjectState
from horovod.tensorflow.elastic import TensorFlowKerasState

from elastic.worker.collective import broadcast_bytes, collectives, dumps, gather_rows, loads
from elastic.worker.stash import assign_bytes


class KerasState(TensorFlowKerasState):
    """Model, optimizer and any keyword attributes, as `hvd.elastic` handles them.

    Args:
        model: a built Keras 3 model.
        optimizer: by default the one the model was compiled with; it is built here if it is not.
        attributes: further values (epoch, batch, ...), attributes of the state from here on.

    Raises:
        ValueError: when the model is not built or has no optimizer.
    """

    def __init__(self, model: keras.Model, optimizer: Any = None, **attributes: Any) -> None:
        if not model.built:
            raise ValueError("the model is not built: call it on a batch or give it an Input first")
        self.model = model
        self.optimizer = optimizer if optimizer is not None else model.optimizer
        if self.optimizer is None:
            raise ValueError("the model has no optimizer: call model.compile(optimizer=...) first")
        if not self.optimizer.built:
            self.optimizer.build(model.trainable_variables)
        self.backend = None
        self._saved_state: dict[str, Any]
        ObjectState.__init__(self, bcast_object=hvd.broadcast_object, get_rank=hvd.rank, **attributes)
        self._saved: list[Any] = []
        self._save_model()

    def variables(self) -> list[Any]:
        """Return what is saved and synced, as tf.Variable, each once, in a stable order."""
        seen: set[int] = set()
        found = []
        for variable in [*self.model.variables, *self.optimizer.variables]:
            value = variable.value if isinstance(variable, keras.Variable) else variable
            if id(value) not in seen:
                seen.add(id(value))
                found.append(value)
        return found

    def progress(self) -> tuple[int, ...]:
        """Return numbers that are larger, from left to right, the further this worker has trained."""
        return (int(self.optimizer.iterations.numpy()),)

    def save(self) -> None:
        """Keep a copy of everything in memory."""
        self._save_model()
        ObjectState.save(self)

    def restore(self) -> None:
        """Go back to the last copy."""
        self._load_model()
        ObjectState.restore(self)

    def sync(self) -> None:
        """Take the state of the most advanced worker (of the lowest rank among equals)."""
        mine = {name: getattr(self, name) for name in self._saved_state}
        with collectives():
            _, _, packed = exchange(self.progress(), self.variables(), dumps(mine), "state")
        self._saved_state = loads(packed)
        self._set_attrs()
        self._save_model()

    def commit(self) -> None:
        """Keep a copy, and raise `HostsUpdatedInterrupt` when the set of hosts has changed."""
        with collectives():
            super().commit()

    def check_host_updates(self) -> None:
        with collectives():
            super().check_host_updates()

    def _save_model(self) -> None:
        self._saved = [tf.identity(v) for v in self.variables()]

    def _load_model(self) -> None:
        assign_all(self.variables(), self._saved)


def exchange(
    standing: Sequence[int], variables: Sequence[Any], objects: bytes, name: str
) -> tuple[int, list[tuple[int, ...]], bytes]:
    """Give every worker the variables and objects of the one that stands highest, in two collectives.

    Args:
        standing: compared from left to right; the lowest rank wins among equals.
        variables: tf.Variable, overwritten with the root's on all other ranks.
        objects: serialised.
        name: of the collectives.

    Returns:
        The root's rank, every rank's standing, and the root's objects.

    Raises:
        ValueError: on every rank, when the ranks do not hold the same variables.
    """
    shapes = fingerprint(variables)
    rows = gather_rows([*standing, shapes, len(objects)], f"{name}.standing")
    if any(row[-2] != shapes for row in rows):
        others = [rank for rank, row in enumerate(rows) if row[-2] != shapes]
        raise ValueError(f"ranks {others} hold other variables than rank {hvd.rank()}: not the same model")
    standings = [row[:-2] for row in rows]
    root = most_advanced(standings)
    packed = broadcast_state(variables, objects, rows[root][-1], root, name)
    return root, standings, packed


def broadcast_state(variables: Sequence[Any], objects: bytes, objects_size: int, root: int, name: str) -> bytes:
    """Overwrite `variables` with the root's and return the root's objects, in one collective."""
    size = sum(v.dtype.size * int(np.prod(v.shape)) for v in variables)
    mine = b"".join([*(v.numpy().tobytes() for v in variables), objects]) if hvd.rank() == root else b""
    data = broadcast_bytes(mine, size + objects_size, root, f"{name}.values")
    if hvd.rank() != root:
        assign_bytes(variables, data[:size])
    return data[size:]


def fingerprint(variables: Sequence[Any]) -> int:
    """Return a number that two workers share only if their variables have the same shapes and types."""
    text = repr([(tuple(v.shape), v.dtype.name) for v in variables])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:7])


def most_advanced(progress: Sequence[Any]) -> int:
    """Return the rank with the largest progress; the lowest among equals."""
    return max(range(len(progress)), key=lambda rank: (progress[rank], -rank))


def assign_all(variables: Sequence[Any], values: Sequence[Any]) -> None:
    """Assign values to variables one to one.

    Raises:
        ValueError: on a different count or shape; nothing is assigned then.
    """
    if len(variables) != len(values):
        raise ValueError(f"found {len(values)} values for {len(variables)} variables: not the same model")
    for i, (variable, value) in enumerate(zip(variables, values, strict=True)):
        if tuple(variable.shape) != tuple(value.shape):
            raise ValueError(f"variable {i} ({variable.name}) is {tuple(variable.shape)}, found {tuple(value.shape)}")
    for variable, value in zip(variables, values, strict=True):
        variable.assign(value)
