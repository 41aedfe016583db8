"""Keras callbacks across resets and workers.

Most callbacks run on every worker and, since all see the same averaged logs, decide alike. Those
that write (logs, models, a bar) run on rank 0 alone, decided anew at each call: when rank 0
dies, the next one takes over, and there are never two writers. A worker that joins takes the
others' callback state, so that a reset is not a new training.
"""

from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

WRITERS: tuple[type, ...] = (
    keras.callbacks.BackupAndRestore,
    keras.callbacks.CSVLogger,
    keras.callbacks.ModelCheckpoint,
    keras.callbacks.ProgbarLogger,
    keras.callbacks.RemoteMonitor,
    keras.callbacks.TensorBoard,
)

_HOOKS = tuple(
    f"on_{name}"
    for name in (
        "train_begin",
        "train_end",
        "epoch_begin",
        "epoch_end",
        "train_batch_begin",
        "train_batch_end",
        "test_begin",
        "test_end",
        "test_batch_begin",
        "test_batch_end",
    )
)


class RankZero(keras.callbacks.Callback):
    """Runs another callback while this worker is rank 0.

    On taking over in mid-training it is set up as at the start of training, appending where it
    would truncate; on losing the role it is closed.
    """

    def __init__(self, inner: keras.callbacks.Callback) -> None:
        super().__init__()
        self.inner = inner
        self.is_rank_zero: Callable[[], bool] = lambda: True
        self._open = False
        self._resumed = False

    def open(self) -> bool:
        """Tell whether this worker has the role now, having set up or closed the inner callback."""
        mine = self.is_rank_zero()
        if mine and not self._open:
            if self._resumed and hasattr(self.inner, "append"):
                self.inner.append = True
            kept = capture(self.inner)
            self.inner.set_params(self.params)
            self.inner.set_model(self.model)
            self.inner.on_train_begin()
            if self._resumed:
                apply_state(self.inner, kept)
        elif not mine and self._open:
            self.inner.on_train_end()
        self._open = mine
        self._resumed = True
        return mine

    def resume(self) -> None:
        """Say that training has begun before this worker."""
        self._resumed = True

    def close(self, logs: Any = None) -> None:
        """End of training."""
        if self._open:
            self.inner.on_train_end(logs)
        self._open = False


def rank_zero(callback: keras.callbacks.Callback) -> keras.callbacks.Callback:
    """Run `callback` on rank 0 alone. Keras's own writers need no such wrapping."""
    return callback if isinstance(callback, RankZero) else RankZero(callback)


class Callbacks:
    """The callbacks of a training, called as Keras calls them.

    Args:
        callbacks: the user's; a `History` is added where there is none.
        model: given to each.
        params: as Keras gives them (epochs, steps, verbose).
        is_rank_zero: asked whenever a writer is called.
    """

    def __init__(
        self,
        callbacks: Sequence[keras.callbacks.Callback],
        model: keras.Model,
        params: dict[str, Any],
        is_rank_zero: Callable[[], bool],
    ) -> None:
        self.all = [rank_zero(c) if isinstance(c, WRITERS) else c for c in callbacks]
        self.history = next((c for c in self.all if isinstance(c, keras.callbacks.History)), None)
        if self.history is None:
            self.history = keras.callbacks.History()
            self.all.append(self.history)
        model.history = self.history
        for callback in self.all:
            callback.set_params(params)
            callback.set_model(model)
            if isinstance(callback, RankZero):
                callback.is_rank_zero = is_rank_zero
        self._table = {hook: [c for c in self.all if _overrides(c, hook)] for hook in _HOOKS}

    def begin(self, resumed: bool) -> None:
        """Start of training in this process; `resumed` when it began before."""
        for callback in self.all:
            if not isinstance(callback, RankZero):
                callback.on_train_begin()
            elif resumed:
                callback.resume()

    def settle(self) -> None:
        """After a world formed: let writers open or close as their role is now."""
        for callback in self.all:
            if isinstance(callback, RankZero):
                callback.open()

    def end(self, logs: dict[str, float] | None) -> None:
        """End of training."""
        for callback in self.all:
            if isinstance(callback, RankZero):
                callback.close(logs)
            else:
                callback.on_train_end(logs)

    def call(self, hook: str, *args: Any) -> None:
        """Call one hook of every callback that has it."""
        for callback in self._table[hook]:
            if isinstance(callback, RankZero):
                if callback.open():
                    getattr(callback.inner, hook)(*args)
            else:
                getattr(callback, hook)(*args)

    def has(self, hook: str) -> bool:
        """Tell whether any callback has the hook; building logs for none is wasted."""
        return bool(self._table[hook])

    def capture(self) -> list[tuple[str, dict[str, Any]]]:
        """Return what the callbacks remember, as plain values."""
        inner = [c.inner if isinstance(c, RankZero) else c for c in self.all]
        return [(type(c).__name__, capture(c)) for c in inner]

    def apply(self, states: Sequence[tuple[str, dict[str, Any]]]) -> None:
        """Remember what another worker's (or a checkpoint's) callbacks remember."""
        for callback, (name, state) in zip(self.all, states, strict=False):
            inner = callback.inner if isinstance(callback, RankZero) else callback
            if type(inner).__name__ == name:
                apply_state(inner, state)


def _overrides(callback: keras.callbacks.Callback, hook: str) -> bool:
    inner = callback.inner if isinstance(callback, RankZero) else callback
    plain = keras.callbacks.Callback
    names = {hook, hook.replace("_train_batch_", "_batch_")}  # Keras 2's name calls through
    return any(getattr(type(inner), n) is not getattr(plain, n) for n in names)


_PLAIN = (bool, int, float, str, bytes, type(None), np.ndarray, np.generic)


def capture(callback: Any) -> dict[str, Any]:
    """Return the attributes of a callback that are plain values: numbers, texts, arrays, nests of them."""
    hidden = {"params", "_model"}
    found = {k: _plain(v) for k, v in vars(callback).items() if k not in hidden}
    return {k: v for k, v in found.items() if v is not _ALIEN}


def apply_state(callback: Any, state: dict[str, Any]) -> None:
    """Give a callback the attributes that `capture` returned."""
    for name, value in state.items():
        object.__setattr__(callback, name, value)


_ALIEN = object()


def _plain(value: Any) -> Any:
    if isinstance(value, tf.Tensor):
        return value.numpy()
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, dict):
        items = {k: _plain(v) for k, v in value.items()}
        return _ALIEN if any(v is _ALIEN for v in items.values()) else items
    if isinstance(value, (list, tuple, set)):
        parts = [_plain(v) for v in value]
        return _ALIEN if any(p is _ALIEN for p in parts) else type(value)(parts)
    return _ALIEN


# What `tf.summary.scalar` writes; that one needs TensorBoard installed, this does not.
_SCALARS = tf.compat.v1.SummaryMetadata(
    plugin_data=tf.compat.v1.SummaryMetadata.PluginData(plugin_name="scalars"),
    data_class=1,  # DATA_CLASS_SCALAR
)


class Scalars(keras.callbacks.Callback):
    """Writes the metrics of each epoch for TensorBoard, against the epoch's number from 1."""

    def __init__(self, folder: str) -> None:
        super().__init__()
        self._folder = folder
        self._writer: Any = None

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        if self._writer is None:
            self._writer = tf.summary.create_file_writer(self._folder)
        with self._writer.as_default():
            for name, value in (logs or {}).items():
                if isinstance(value, float):
                    tf.summary.write(name, value, step=epoch + 1, metadata=_SCALARS)
        self._writer.flush()

    def on_train_end(self, logs: Any = None) -> None:
        if self._writer is not None:
            self._writer.close()
        self._writer = None
