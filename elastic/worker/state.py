"""The state of a Keras 3 model that workers commit, restore and bring into agreement.

Horovod's `TensorFlowKerasState` fails on Keras 3 (`optimizer.variables` is a property there) and
broadcasts from rank 0, which may be a newcomer: the launcher gives a restarted process the rank
of the one that died. This subclass reads Keras 3's variables, and its `sync` agrees on the most
advanced rank and takes that one's state.
"""

from collections.abc import Sequence
from typing import Any

import horovod.tensorflow as hvd
import keras
import tensorflow as tf
from horovod.common.elastic import ObjectState
from horovod.tensorflow.elastic import TensorFlowKerasState

from elastic.worker.collective import broadcast_object, broadcast_variables, collectives, gather


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

    def progress(self) -> Any:
        """Return a value that is larger the further this worker has trained."""
        return int(self.optimizer.iterations.numpy())

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
        with collectives():
            root = most_advanced(gather(self.progress(), "elastic.progress"))
            broadcast_variables(self.variables(), root)
            mine = {name: getattr(self, name) for name in self._saved_state}
            self._saved_state = broadcast_object(mine, root, "elastic.attributes")
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
