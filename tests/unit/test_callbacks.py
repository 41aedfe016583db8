import csv
import pickle
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras.callbacks import Callback, CSVLogger, EarlyStopping, History, ModelCheckpoint, ReduceLROnPlateau

from elastic.worker.callback_state import apply_state, capture
from elastic.worker.callbacks import Callbacks, RankZero, rank_zero

# Keras asks NumPy for a copy of a variable in a way that NumPy deprecates.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")


def compiled() -> keras.Model:
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(1.0), "mse")
    return model


@dataclass
class Worker:
    """A worker's callbacks, its model and its role."""

    own: Sequence[Callback]
    rank: int = 0
    model: keras.Model = field(default_factory=compiled)

    def __post_init__(self) -> None:
        self.callbacks = Callbacks(self.own, self.model, {"epochs": 9, "verbose": 0}, lambda: self.rank == 0)

    def start(self, state: Any = None) -> "Worker":
        """Enter the first world, or one that trains already and hands over its state."""
        self.callbacks.begin(resumed=state is not None)
        if state is not None:
            self.callbacks.apply(state)
        self.callbacks.settle()
        return self

    def epoch(self, epoch: int, **logs: float) -> None:
        self.callbacks.call("on_epoch_begin", epoch)
        self.callbacks.call("on_epoch_end", epoch, logs)


class Recorder(Callback):
    """Says which of its hooks are called; what it says it to is no state of its own."""

    def __init__(self, say: Callable[[str], None] = print) -> None:
        super().__init__()
        self.say = say

    def on_train_begin(self, logs: Any = None) -> None:
        self.say("begin")

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.say(f"epoch {epoch}")

    def on_train_end(self, logs: Any = None) -> None:
        self.say("end")


@pytest.fixture
def logger(tmp_path: Path) -> Iterator[Callable[..., Worker]]:
    """Make workers that log to one file; what they leave open is closed in the end."""
    made: list[Worker] = []

    def make(rank: int, state: Any = None) -> Worker:
        made.append(Worker([CSVLogger(tmp_path / "log.csv")], rank).start(state))
        return made[-1]

    yield make
    for worker in made:
        worker.own[0].on_train_end()


def rows(path: Path) -> list[list[str]]:
    with path.open(newline="") as file:
        return [row[:2] for row in csv.reader(file)]


def test_callbacks_run_on_every_worker() -> None:
    for rank in (0, 1):
        heard: list[str] = []
        worker = Worker([Recorder(heard.append)], rank).start()
        worker.epoch(0)
        worker.callbacks.settle()  # another world
        worker.epoch(1)
        worker.callbacks.end({})
        assert heard == ["begin", "epoch 0", "epoch 1", "end"]


def test_what_is_for_rank_zero_runs_there_alone() -> None:
    for rank, expected in ((0, ["begin", "epoch 0", "end"]), (1, [])):
        heard: list[str] = []
        worker = Worker([rank_zero(Recorder(heard.append))], rank).start()
        worker.epoch(0)
        worker.callbacks.end({})
        assert heard == expected


def test_the_next_worker_takes_over_and_the_old_one_is_closed() -> None:
    heard: list[str] = []
    worker = Worker([rank_zero(Recorder(heard.append))], 1).start()
    worker.epoch(0)
    worker.rank = 0
    worker.callbacks.settle()
    worker.epoch(1)
    worker.rank = 1
    worker.callbacks.settle()
    worker.epoch(2)
    worker.callbacks.end({})
    assert heard == ["begin", "epoch 1", "end"]


def test_the_role_is_asked_for_at_each_call() -> None:
    heard: list[str] = []
    worker = Worker([rank_zero(Recorder(heard.append))], 1).start()
    worker.rank = 0
    worker.epoch(1)
    assert heard == ["begin", "epoch 1"]


def test_for_rank_zero_twice_is_once() -> None:
    wrapped = rank_zero(Recorder())
    assert rank_zero(wrapped) is wrapped


def test_keras_writers_are_for_rank_zero_without_asking(tmp_path: Path) -> None:
    writers = [CSVLogger(tmp_path / "log.csv"), ModelCheckpoint(tmp_path / "m.keras"), keras.callbacks.ProgbarLogger()]
    made = Worker([*writers, EarlyStopping()], 1).callbacks.all
    assert [isinstance(c, RankZero) for c in made] == [True, True, True, False, False]


def test_a_log_has_one_writer(tmp_path: Path) -> None:
    paths = [tmp_path / "0.csv", tmp_path / "1.csv"]
    for rank, path in enumerate(paths):
        worker = Worker([CSVLogger(path)], rank).start()
        worker.epoch(0, loss=1.0)
        worker.callbacks.end({})
    assert rows(paths[0]) == [["epoch", "loss"], ["0", "1.0"]]
    assert not paths[1].exists()


WHOLE = [["epoch", "loss"], *([str(epoch), f"{epoch}.5"] for epoch in range(4))]


def test_a_survivor_goes_on_with_the_log_of_a_lost_rank_zero(logger: Callable[..., Worker], tmp_path: Path) -> None:
    lost, survivor = logger(0), logger(1)
    for worker in (lost, survivor):
        worker.epoch(0, loss=0.5)
        worker.epoch(1, loss=1.5)
    survivor.rank = 0
    survivor.callbacks.settle()
    survivor.epoch(2, loss=2.5)
    survivor.epoch(3, loss=3.5)
    assert rows(tmp_path / "log.csv") == WHOLE


def test_a_newcomer_as_rank_zero_goes_on_with_the_log(logger: Callable[..., Worker], tmp_path: Path) -> None:
    lost, survivor = logger(0), logger(1)
    for worker in (lost, survivor):
        worker.epoch(0, loss=0.5)
        worker.epoch(1, loss=1.5)
    newcomer = logger(0, survivor.callbacks.capture())
    newcomer.epoch(2, loss=2.5)
    newcomer.epoch(3, loss=3.5)
    assert rows(tmp_path / "log.csv") == WHOLE


def test_an_open_log_stays_open_when_another_workers_state_is_taken(
    logger: Callable[..., Worker], tmp_path: Path
) -> None:
    behind, ahead = logger(0), logger(1)
    behind.epoch(0, loss=0.5)
    behind.callbacks.apply(ahead.callbacks.capture())
    behind.epoch(1, loss=1.5)
    assert rows(tmp_path / "log.csv") == WHOLE[:3]


class Truncating(Callback):
    """A writer that says how it opens its file."""

    def __init__(self, say: Callable[[bool], None]) -> None:
        super().__init__()
        self.append = False
        self.say = say

    def on_train_begin(self, logs: Any = None) -> None:
        self.say(self.append)


@pytest.mark.parametrize(("rank", "state"), [(1, None), (0, [])], ids=["a survivor", "a newcomer"])
def test_who_takes_over_a_file_appends(rank: int, state: Any) -> None:
    appended: list[bool] = []
    worker = Worker([rank_zero(Truncating(appended.append))], rank).start(state)
    worker.rank = 0
    worker.callbacks.settle()
    assert appended == [True]


def test_a_log_starts_anew_with_a_new_training(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("of another training\n")
    worker = Worker([CSVLogger(path)], 0).start()
    worker.epoch(0, loss=0.5)
    worker.callbacks.end({})
    assert rows(path) == WHOLE[:2]


def test_the_columns_of_a_log_survive_rank_zero(logger: Callable[..., Worker], tmp_path: Path) -> None:
    lost, survivor = logger(0), logger(1)
    for worker in (lost, survivor):
        worker.epoch(0, loss=0.5)
    survivor.callbacks.take_writer_states(lost.callbacks.writer_states())
    survivor.rank = 0
    survivor.epoch(1, another=7.0, loss=1.5)
    assert rows(tmp_path / "log.csv") == WHOLE[:3]


class Collecting(Callback):
    """A user's writer, with a file of its own and something that it learns."""

    def __init__(self) -> None:
        super().__init__()
        self.file: Any = None
        self.best: float | None = None

    def on_train_begin(self, logs: Any = None) -> None:
        self.file, self.best = object(), None

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.best = min(logs["loss"], self.best or np.inf)


def test_a_users_writer_keeps_its_file_and_what_it_learned() -> None:
    lost, survivor = (Worker([rank_zero(Collecting())], rank).start() for rank in (0, 1))
    for worker in (lost, survivor):
        worker.epoch(0, loss=0.5)
    survivor.callbacks.take_writer_states(lost.callbacks.writer_states())
    newcomer = Worker([rank_zero(Collecting())]).start(survivor.callbacks.capture())
    survivor.rank = 0
    survivor.callbacks.settle()
    for worker in (survivor, newcomer):
        inner = worker.callbacks.all[0].inner
        assert (inner.best, inner.file is None) == (0.5, False)


def test_the_writer_of_a_file_knows_better_than_those_that_do_not() -> None:
    writer, other = (Worker([rank_zero(Collecting())], rank).start() for rank in (0, 1))
    writer.epoch(0, loss=0.5)
    other.callbacks.take_writer_states(writer.callbacks.writer_states())
    writer.epoch(1, loss=0.25)
    writer.callbacks.apply(other.callbacks.capture())
    writer.callbacks.take_writer_states(other.callbacks.writer_states())
    assert writer.callbacks.all[0].inner.best == 0.25


class Telling(Callback):
    """A writer that needs to know which epoch it is in."""

    def __init__(self, say: Callable[[int], None]) -> None:
        super().__init__()
        self.say = say

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.say(epoch)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        pass


@pytest.mark.parametrize("newcomer", [False, True])
def test_who_takes_over_in_mid_epoch_is_told_of_the_epoch(newcomer: bool) -> None:
    heard: list[int] = []
    worker = Worker([rank_zero(Telling(heard.append))], 1).start()
    worker.epoch(2)
    worker.callbacks.call("on_epoch_begin", 3)
    if newcomer:
        worker = Worker([rank_zero(Telling(heard.append))], 0).start(worker.callbacks.capture())
    worker.rank = 0
    worker.callbacks.call("on_train_batch_end", 7, {})
    worker.epoch(4)
    assert heard == [3, 4]


def test_who_takes_over_between_epochs_is_told_of_each_once() -> None:
    heard: list[int] = []
    worker = Worker([rank_zero(Telling(heard.append))], 1).start()
    worker.epoch(2)
    worker.rank = 0
    worker.epoch(3)
    assert heard == [3]


def test_the_best_model_survives_rank_zero(tmp_path: Path) -> None:
    path = tmp_path / "best.weights.h5"

    def best() -> ModelCheckpoint:
        return ModelCheckpoint(path, monitor="loss", mode="min", save_best_only=True, save_weights_only=True)

    lost, survivor = Worker([best()], 0).start(), Worker([best()], 1).start()
    for worker in (lost, survivor):
        worker.epoch(0, loss=0.1)
    survivor.callbacks.take_writer_states(pickle.loads(pickle.dumps(lost.callbacks.writer_states())))
    written = path.read_bytes()
    survivor.model.set_weights([np.full((1, 1), 9.0), np.zeros(1)])
    survivor.rank = 0
    survivor.callbacks.settle()
    survivor.epoch(1, loss=5.0)
    assert path.read_bytes() == written


def test_only_hooks_that_somebody_has_are_called() -> None:
    quiet = Worker([EarlyStopping(monitor="loss", mode="min")]).callbacks
    assert quiet.has("on_epoch_end")
    assert not any(quiet.has(f"on_{name}") for name in ("train_batch_begin", "train_batch_end", "test_begin"))


@pytest.mark.parametrize("name", ["on_train_batch_end", "on_batch_end"])  # Keras 2's name works in Keras 3
def test_a_hook_is_called_by_either_of_its_names(name: str) -> None:
    heard: list[Any] = []
    kind = type("OnBatch", (Callback,), {name: lambda self, batch, logs=None: heard.append((batch, logs))})
    for callback in (kind(), rank_zero(kind())):
        callbacks = Worker([callback]).start().callbacks
        assert callbacks.has("on_train_batch_end")
        callbacks.call("on_train_batch_end", 3, {"loss": 1.0})
    assert heard == [(3, {"loss": 1.0})] * 2


@pytest.mark.parametrize("wrap", [lambda callback: callback, rank_zero], ids=["everywhere", "on rank 0"])
def test_functions_given_to_a_lambda_callback_are_called_as_keras_calls_them(wrap: Callable[..., Callback]) -> None:
    heard: list[Any] = []
    given = keras.callbacks.LambdaCallback(
        on_train_begin=lambda logs: heard.append(("train", logs)),
        on_epoch_begin=lambda epoch, logs: heard.append((epoch, logs)),
        on_train_batch_begin=lambda batch, logs: heard.append((batch, logs)),
        on_test_begin=lambda logs: heard.append(("test", logs)),
        on_epoch_end=lambda epoch, logs: heard.append((epoch, logs)),
        on_train_end=lambda logs: heard.append(("end", logs)),
    )
    callbacks = Worker([wrap(given)]).start().callbacks
    assert callbacks.has("on_train_batch_begin")
    callbacks.call("on_epoch_begin", 4)
    callbacks.call("on_train_batch_begin", 7)
    callbacks.call("on_test_begin")
    callbacks.call("on_epoch_end", 4, {"loss": 1.0})
    callbacks.end(None)
    assert heard == [("train", {}), (4, {}), (7, {}), ("test", {}), (4, {"loss": 1.0}), ("end", {})]


def test_a_history_is_kept_with_or_without_asking() -> None:
    own = History()
    for worker in (Worker([]).start(), Worker([own]).start()):
        worker.epoch(0, loss=2.0)
        worker.epoch(1, loss=1.0)
        assert worker.model.history.history == {"loss": [2.0, 1.0]}
        assert sum(isinstance(c, History) for c in worker.callbacks.all) == 1
    assert own.history == {"loss": [2.0, 1.0]}


def stopper(min_delta: float = 0.0) -> EarlyStopping:
    return EarlyStopping(monitor="loss", mode="min", patience=3, min_delta=min_delta, restore_best_weights=True)


def test_a_newcomer_stops_when_the_others_do() -> None:
    incumbent = Worker([stopper()]).start()
    for epoch, loss in enumerate([2.0, 1.0, 1.5]):
        incumbent.epoch(epoch, loss=loss)
    newcomer = Worker([stopper()], 1).start(incumbent.callbacks.capture())
    stopped = []
    for epoch, loss in enumerate([1.4, 1.3], start=3):
        for worker in (incumbent, newcomer):
            worker.epoch(epoch, loss=loss)
        stopped.append((incumbent.model.stop_training, newcomer.model.stop_training))
    assert stopped == [(False, False), (True, True)]


def test_a_newcomer_takes_the_best_weights() -> None:
    incumbent = Worker([stopper()]).start()
    incumbent.model.set_weights([np.full((1, 1), 7.0), np.zeros(1)])
    incumbent.epoch(0, loss=1.0)
    newcomer = Worker([stopper()], 1).start(pickle.loads(pickle.dumps(incumbent.callbacks.capture())))
    newcomer.callbacks.end({})
    assert newcomer.model.get_weights()[0] == 7.0


def test_a_newcomer_lowers_the_learning_rate_when_the_others_do() -> None:
    def plateau() -> ReduceLROnPlateau:
        return ReduceLROnPlateau(monitor="loss", mode="min", factor=0.5, patience=2, cooldown=2, min_delta=0.0)

    incumbent = Worker([plateau()]).start()
    for epoch, loss in enumerate([1.0, 1.5]):
        incumbent.epoch(epoch, loss=loss)
    newcomer = Worker([plateau()], 1).start(incumbent.callbacks.capture())
    rates = []
    for epoch in range(2, 8):
        for worker in (incumbent, newcomer):
            worker.epoch(epoch, loss=1.5)
        rates.append(tuple(float(w.model.optimizer.learning_rate) for w in (incumbent, newcomer)))
    assert rates == [(0.5, 0.5)] * 3 + [(0.25, 0.25)] * 3


def test_a_newcomer_takes_the_smallest_change_that_counts() -> None:
    incumbent = Worker([stopper(min_delta=0.1)]).start()
    incumbent.epoch(0, loss=1.0)
    newcomer = Worker([stopper(min_delta=0.1)], 1).start(incumbent.callbacks.capture())
    for worker in (incumbent, newcomer):
        worker.epoch(1, loss=1.05)  # worse
    assert [w.own[0].wait for w in (incumbent, newcomer)] == [1, 1]


def test_state_goes_to_callbacks_of_the_same_kind_alone() -> None:
    states = Worker([stopper(), Recorder()]).start().callbacks.capture()
    other = Worker([Recorder(), stopper()]).start()
    before = [dict(vars(c)) for c in other.own]
    other.callbacks.apply(states)
    assert [vars(c) for c in other.own] == before


def test_plain_values_are_remembered_and_nothing_else() -> None:
    callback = Callback()
    kept = {"n": 1, "text": "a", "none": None, "array": np.ones(2), "nest": {"a": [1, (2, {3})]}, "f": np.float32(1)}
    vars(callback).update(kept)
    vars(callback).update(function=print, nested_function=[print], lock={"a": object()}, tensor=tf.constant([1, 2]))
    found = pickle.loads(pickle.dumps(capture(callback)))
    assert set(found) == {*kept, "tensor"}
    assert found["nest"] == kept["nest"]
    assert found["tensor"].tolist() == [1, 2]


def test_what_was_captured_does_not_change_any_more() -> None:
    callback = History()
    callback.history = {"loss": [1.0]}
    callback.sums = np.zeros(2)
    state = capture(callback)
    callback.history["loss"].append(2.0)
    callback.sums += 1
    assert state["history"] == {"loss": [1.0]}
    assert state["sums"].tolist() == [0.0, 0.0]


class Best(NamedTuple):
    epoch: int
    loss: float


class Row(list[int]):
    """A list that needs more than its items to be made."""

    def __init__(self, items: Sequence[int], unit: str) -> None:
        super().__init__(items)
        self.unit = unit


@pytest.mark.parametrize(
    ("value", "known"),
    [
        (Best(3, 0.5), True),
        (defaultdict(list, a=[1]), True),
        (Counter(a=2), True),
        (OrderedDict(b=1, a=2), True),
        (Row([1], "m"), False),
        ({object(): 1}, False),
        (np.array([object()]), False),
    ],
    ids=["namedtuple", "defaultdict", "counter", "ordered", "a list of the user's", "an object as key", "objects"],
)
def test_a_value_keeps_its_kind_or_is_not_remembered(value: Any, known: bool) -> None:
    one, other = Callback(), Callback()
    one.value, other.value = value, None
    apply_state(other, pickle.loads(pickle.dumps(capture(one))))
    assert other.value == (value if known else None)
    assert type(other.value) is (type(value) if known else type(None))


def test_a_dictionary_that_makes_its_values_goes_on_making_them() -> None:
    one, other = Callback(), Callback()
    one.value = defaultdict(list)
    apply_state(other, capture(one))
    other.value["a"].append(1)
    assert (one.value, other.value) == ({}, {"a": [1]})
