"""Keras callbacks across resets and workers.

Most callbacks run on every worker and, since all see the same averaged logs, decide alike. Those
that write (logs, models, a bar) run on rank 0 alone, decided anew at each call: when rank 0
dies, the next one takes over, and there are never two writers. A worker that joins takes the
others' callback state, so that a reset is not a new training.

What a callback remembers are its plain attributes: numbers, texts, arrays. A writer also has
attributes that say how things stand between it and its file (open or not, header written); those
belong to one process, and only what it has learned of the training is remembered. Since it learns
on rank 0 alone, the training loop hands `writer_states` around before rank 0 can be missed.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import keras

from elastic.worker.callback_state import ALIEN, apply_state, capture, plain

State = tuple[str, dict[str, Any]]
"""The kind of a callback and what it remembers."""

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

    On taking over in mid-training it is set up as at the start of training (and of the epoch),
    appending where it would truncate, and knows what the one before had shared; on losing the role
    it is closed.
    """

    def __init__(self, inner: keras.callbacks.Callback) -> None:
        super().__init__()
        self.inner = inner
        self.is_rank_zero: Callable[[], bool] = lambda: True
        self._open = False
        self._resumed = False
        self._epoch: int | None = None  # in progress

    def open(self) -> bool:
        """Tell whether this worker has the role now, having set up or closed the inner callback."""
        mine = self.is_rank_zero()
        if mine and not self._open:
            if self._resumed and getattr(self.inner, "append", None) is False:
                self.inner.append = True
            learned = _learned(self.inner)
            self.inner.set_params(self.params)
            self.inner.set_model(self.model)
            self.inner.on_train_begin({})
            if self._resumed:
                _learn(self.inner, learned)
            if self._epoch is not None:
                self.inner.on_epoch_begin(self._epoch, {})
        elif not mine and self._open:
            self.inner.on_train_end({})
        self._open = mine
        self._resumed = True
        return mine

    def resume(self) -> None:
        """Say that training has begun before this worker."""
        self._resumed = True

    def close(self, logs: dict[str, Any]) -> None:
        """End of training."""
        if self._open:
            self.inner.on_train_end(logs)
        self._open = False

    def call(self, hook: str, *args: Any, **kwargs: Any) -> None:
        """Call a hook of the inner callback if this worker has the role."""
        if self.open():
            getattr(self.inner, hook)(*args, **kwargs)
        if hook == "on_epoch_begin":
            self._epoch = args[0]
        elif hook == "on_epoch_end":
            self._epoch = None

    def state(self) -> dict[str, Any]:
        """Return what the writer has learned, here or on the rank 0 that shared it last."""
        return {"epoch": self._epoch, "learned": _learned(self.inner)}

    def take(self, state: dict[str, Any]) -> None:
        """Take what another worker's writer has learned; the one that has the role knows better."""
        if not self._open:
            self._epoch = state["epoch"]
            _learn(self.inner, state["learned"])


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
                callback.on_train_begin({})
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
                callback.close(logs or {})
            else:
                callback.on_train_end(logs or {})

    def call(self, hook: str, *args: Any) -> None:
        """Call one hook of every callback that has it, as Keras calls it.

        Args:
            hook: its name, such as `on_epoch_end`.
            args: the epoch's or the batch's number, where the hook has one, then the logs, if any.
        """
        count = 1 if "_epoch_" in hook or "_batch_" in hook else 0
        number, (logs, *_) = args[:count], (*args[count:], {})
        for callback in self._table[hook]:
            function = partial(callback.call, hook) if isinstance(callback, RankZero) else getattr(callback, hook)
            if "_batch_" in hook:
                function(*number, logs=logs)
            else:
                function(*number, logs)

    def has(self, hook: str) -> bool:
        """Tell whether any callback has the hook; building logs for none is wasted."""
        return bool(self._table[hook])

    def capture(self) -> list[State]:
        """Return what the callbacks remember, as plain values."""
        return _states(self.all)

    def apply(self, states: Sequence[State]) -> None:
        """Remember what another worker's (or a checkpoint's) callbacks remember."""
        _take_states(self.all, states)

    def writer_states(self) -> list[State]:
        """Return what the writers have learned; rank 0's are for all others to take."""
        return _states(self._writers)

    def take_writer_states(self, states: Sequence[State]) -> None:
        """Know what rank 0's writers have learned, in case this worker is the next rank 0."""
        _take_states(self._writers, states)

    @property
    def _writers(self) -> list[RankZero]:
        return [c for c in self.all if isinstance(c, RankZero)]


def _kind(callback: keras.callbacks.Callback) -> str:
    if isinstance(callback, RankZero):
        return f"rank_zero({_kind(callback.inner)})"
    return type(callback).__name__


def _states(callbacks: Sequence[keras.callbacks.Callback]) -> list[State]:
    return [(_kind(c), c.state() if isinstance(c, RankZero) else capture(c)) for c in callbacks]


def _take_states(callbacks: Sequence[keras.callbacks.Callback], states: Sequence[State]) -> None:
    for callback, (kind, state) in zip(callbacks, states, strict=False):
        if _kind(callback) != kind:
            continue
        if isinstance(callback, RankZero):
            callback.take(state)
        else:
            apply_state(callback, state)


def _overrides(callback: keras.callbacks.Callback, hook: str) -> bool:
    if isinstance(callback, RankZero) and "_epoch_" in hook:
        return True  # it keeps track of the epoch
    inner = callback.inner if isinstance(callback, RankZero) else callback
    plain = keras.callbacks.Callback
    names = {hook, hook.replace("_train_batch_", "_batch_")}  # Keras 2's name calls through
    return any(n in vars(inner) or getattr(type(inner), n) is not getattr(plain, n) for n in names)


def _learned(writer: keras.callbacks.Callback) -> dict[str, Any]:
    """Return what a writer has learned; of a user's, every plain attribute that is set."""
    found = capture(writer)
    for kind, names in _LEARNED.items():
        if isinstance(writer, kind):
            return {k: v for k, v in found.items() if k in names}
    return {k: v for k, v in found.items() if v is not None}


def _learn(writer: keras.callbacks.Callback, learned: dict[str, Any]) -> None:
    """Give a writer what another has learned, but for what is a handle here."""
    handles = {name for name, value in vars(writer).items() if plain(value) is ALIEN}
    apply_state(writer, {k: v for k, v in learned.items() if k not in handles})


# The writers known here, and which of their attributes they have learned.
_LEARNED: dict[type, tuple[str, ...]] = {
    keras.callbacks.CSVLogger: ("keys",),
    keras.callbacks.ModelCheckpoint: ("best", "_batches_seen_since_last_saving", "_last_batch_seen"),
    keras.callbacks.ProgbarLogger: (),
    keras.callbacks.RemoteMonitor: (),
    keras.callbacks.TensorBoard: ("_global_train_batch", "_global_test_batch"),
}
WRITERS = tuple(_LEARNED)
