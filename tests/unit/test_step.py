"""Steps in a world of one: what a step in pieces comes to, what a failed one leaves behind."""

import re
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import horovod.tensorflow as hvd
import keras
import numpy as np
import pytest
import tensorflow as tf
from horovod.common.exceptions import HorovodInternalError

from elastic.errors import ConfigError
from elastic.worker.data import Arrays
from elastic.worker.feed import Feed
from elastic.worker.optimizer import Reduction, distribute
from elastic.worker.order import Cut, cut
from elastic.worker.step import Steps, build

N, BATCH = 40, 16


@pytest.fixture(scope="module", autouse=True)
def world() -> Iterator[None]:
    hvd.init()
    yield
    hvd.shutdown()


def source() -> Arrays:
    rng = np.random.default_rng(0)
    x, words = rng.normal(size=(N, 6)).astype(np.float32), rng.integers(0, 50, (N, 4))
    return Arrays(((x, words), rng.integers(0, 3, N)))


def network(*more: Any, kind: type[keras.Model] = keras.Model, **compiled: Any) -> keras.Model:
    """Return a small classifier with a dense and a sparse gradient, and any layers more."""
    keras.utils.set_random_seed(1)
    x, words = keras.Input((6,)), keras.Input((4,), dtype="int64")
    table = keras.layers.Flatten()(keras.layers.Embedding(50, 3)(words))
    found = keras.layers.Concatenate()([keras.layers.Dense(8, "relu")(x), table])
    for layer in more:
        found = layer(found)
    model = kind([x, words], keras.layers.Dense(3, "softmax")(found))
    compiled = {"optimizer": keras.optimizers.Adam(0.01), "jit_compile": False, "metrics": ["accuracy"], **compiled}
    model.compile(loss="sparse_categorical_crossentropy", **compiled)
    return model


class Bench:
    """A model, its steps and its feed, with what tests look at."""

    def __init__(self, model: keras.Model, fed: Any = None, fp16: bool = False) -> None:
        data = source()
        self.model = model
        build(model, data[np.zeros(1, np.int64)])
        self.reduction = Reduction(fp16=fp16)
        distribute(model.optimizer, reduction=self.reduction)
        self.steps = Steps(model, self.reduction, fed)
        self.feed = Feed(data)

    def train(self, micro: int | None = None, epochs: int = 2, steps: int | None = None) -> "Bench":
        for epoch in range(epochs):
            part = cut(N, 0, BATCH, 0, 1, micro=micro)
            pieces = self.feed.training(part, 1, epoch)
            for step in islice(range(part.steps), steps):
                self.logs, self.seen = self.steps.train(pieces, part.pieces(step))
        return self

    def values(self) -> dict[str, Any]:
        variables = [*self.model.variables, *self.model.optimizer.variables, *self.model.metrics_variables]
        return {f"{i} {re.sub(r'_[0-9]+', '', v.path)}": v.numpy().copy() for i, v in enumerate(variables)}


def close(one: dict[str, Any], other: dict[str, Any], by: float = 1e-6) -> bool:
    """Tell whether all variables are equal to so many of themselves (or of 1, where they are smaller)."""
    return all(np.abs(one[n] - other[n]).max() <= by * max(1.0, np.abs(one[n]).max()) for n in one)


def differences(one: dict[str, Any], other: dict[str, Any]) -> dict[str, float]:
    """Return by how much variables differ, those that do."""
    apart = {name: float(np.abs(one[name].astype(float) - other[name].astype(float)).max()) for name in one}
    return {name: value for name, value in apart.items() if value > 0}


OPTIMIZERS: dict[str, Callable[[], keras.optimizers.Optimizer]] = {
    "adam": lambda: keras.optimizers.Adam(0.01, clipnorm=0.5),
    "decay": lambda: keras.optimizers.AdamW(0.01, weight_decay=0.1),
    "average": lambda: keras.optimizers.SGD(0.1, momentum=0.9, use_ema=True),
    "accumulation": lambda: keras.optimizers.SGD(0.1, gradient_accumulation_steps=2),
    "loss scale": lambda: keras.optimizers.LossScaleOptimizer(keras.optimizers.Adam(0.01), initial_scale=4.0),
}


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_a_step_in_pieces_is_the_step_as_a_whole(kind: str) -> None:
    whole = Bench(network(optimizer=OPTIMIZERS[kind]())).train()
    pieces = Bench(network(optimizer=OPTIMIZERS[kind]())).train(micro=5)
    assert close(whole.values(), pieces.values())
    assert {k: pytest.approx(float(v), abs=1e-5) for k, v in whole.logs.items()} == {
        k: float(v) for k, v in pieces.logs.items()
    }


@pytest.mark.parametrize("micro", [1, 3, 16, 100])
def test_any_size_of_pieces_gives_the_same(micro: int) -> None:
    assert close(Bench(network()).train().values(), Bench(network()).train(micro).values())


def test_a_model_that_runs_eagerly_does_the_same() -> None:
    traced, eager = Bench(network()).train(5, 1), Bench(network(run_eagerly=True)).train(5, 1)
    assert close(traced.values(), eager.values())


def test_weights_do_not_move_before_the_last_piece() -> None:
    bench = Bench(network())
    part = cut(N, 0, BATCH, 0, 1, micro=5)
    pieces = bench.feed.training(part, 1, 0)
    before = bench.values()
    bench.steps._part.get_concrete_function(pieces)
    bench.steps._begin()
    for _ in range(part.pieces(0) - 1):
        bench.steps._part(pieces)
    assert {name.split("/")[0].split()[1] for name in differences(before, bench.values())} <= {"loss", "accuracy"}
    assert int(bench.reduction.arrived.numpy()) == 0
    bench.steps._last(pieces)
    assert int(bench.model.optimizer.iterations.numpy()) == 1
    assert int(bench.reduction.arrived.numpy()) == 1


class Mixed(keras.Model):
    """A train step of the user's own, with half-precision gradients and one that there is not."""

    def train_step(self, data: Any) -> Any:
        (x, words), y = data
        with tf.GradientTape() as tape:
            loss = self.compute_loss(y=y, y_pred=self([x, words], training=True))
        grads = tape.gradient(loss, self.trainable_variables)
        grads = [tf.cast(g, tf.bfloat16) if isinstance(g, tf.Tensor) else g for g in grads]
        self.optimizer.apply([*grads[:-1], None], self.trainable_variables)
        return {"loss": loss}


@pytest.mark.filterwarnings("ignore:Gradients do not exist")
def test_a_train_step_of_the_users_own_works_in_pieces() -> None:
    make = lambda: network(kind=Mixed, optimizer=keras.optimizers.SGD(0.1))  # noqa: E731
    assert close(Bench(make()).train().values(), Bench(make()).train(4).values(), 2e-3)  # what half precision leaves


class Twice(keras.Model):
    def train_step(self, data: Any) -> Any:
        logs = super().train_step(data)
        super().train_step(data)
        return logs


def test_a_train_step_that_applies_twice_is_refused_in_pieces_alone() -> None:
    bench = Bench(network(kind=Twice)).train(epochs=1)
    assert int(bench.model.optimizer.iterations.numpy()) == 6
    with pytest.raises(ConfigError, match="applies gradients more than once a step"):
        bench.train(micro=4)


def lose(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the collective of the next step that is traced fail as a lost peer makes it fail."""

    def lost(*_: Any, **__: Any) -> None:
        raise HorovodInternalError("lost")

    def failing(tensors: list[tf.Tensor], name: str, **_: Any) -> list[tf.Tensor]:
        return [tf.ensure_shape(tf.numpy_function(lost, [t], t.dtype), t.shape) for t in tensors]

    monkeypatch.setattr(hvd, "grouped_allreduce", failing)


@pytest.mark.parametrize("micro", [None, 5])
def test_a_failed_step_leaves_everything_as_before_it(micro: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    layers = lambda: (keras.layers.BatchNormalization(), keras.layers.Dropout(0.5, seed=3))  # noqa: E731
    expected = Bench(network(*layers())).train(micro, epochs=1).values()
    bench = Bench(network(*layers())).train(micro, epochs=1, steps=2)
    before = bench.values()
    bench.steps._compile()
    with monkeypatch.context() as patch:
        lose(bench, patch)
        part = cut(N, 32, BATCH, 0, 1, micro=micro)
        pieces = bench.feed.training(part, 1, 0)
        with pytest.raises(Exception, match="lost"):
            bench.steps.train(pieces, part.pieces(0))
        assert bench.steps.in_collective()
    assert differences(before, bench.values())
    bench.steps.take_back()
    assert not differences(before, bench.values())
    bench.steps._compile()
    bench.steps.train(bench.feed.training(part, 1, 0), part.pieces(0))  # done again, it is what it would have been
    assert not differences(expected, bench.values())


def test_a_worker_that_comes_after_the_last_step_joins_the_epoch_all_the_same() -> None:
    worked, late = (Bench(network(keras.layers.BatchNormalization())) for _ in range(2))
    worked.train(epochs=1)
    before = late.values()
    late.steps.join(late.feed.training(cut(N, N, BATCH, 0, 1), 1, 0))
    assert late.steps._guard.statistics
    assert len(late.steps._guard.statistics) == len(worked.steps._guard.statistics)
    assert not differences(before, late.values())


def test_taking_back_after_a_step_that_was_done_does_nothing() -> None:
    bench = Bench(network(keras.layers.BatchNormalization())).train(5)
    before = bench.values()
    bench.steps.take_back()
    assert not differences(before, bench.values())
    assert not bench.steps.in_collective()


def test_a_step_of_one_piece_and_one_of_several_follow_each_other() -> None:
    bench, whole = Bench(network()), Bench(network()).train(epochs=3)
    for epoch, micro in enumerate((None, 5, None)):
        part = cut(N, 0, BATCH, 0, 1, micro=micro)
        pieces = bench.feed.training(part, 1, epoch)
        for step in range(part.steps):
            bench.steps.train(pieces, part.pieces(step))
    assert close(whole.values(), bench.values())
    assert (bench.steps.traced(1), bench.steps.traced(4)) == (True, True)


def test_a_stand_in_leaves_no_trace() -> None:
    bench = Bench(network(keras.layers.BatchNormalization(), keras.layers.Dropout(0.5)))
    part = cut(N, 0, 1, 0, 2)  # the one sample of each step is the other rank's
    before = bench.values()
    bench.steps.train(bench.feed.training(part, 1, 0), part.pieces(0))
    apart = differences(before, bench.values())
    assert all("adam" in name for name in apart)  # one optimizer step with a gradient of zero


@pytest.mark.parametrize("micro", [None, 5])
def test_which_samples_are_computed_is_told_before_the_collective_can_begin(micro: int | None) -> None:
    told: list[tuple[list[int], int]] = []

    def fed(indices: Any) -> None:
        tf.numpy_function(lambda: None, [], [])  # some time passes
        told.append((indices.tolist(), int(bench.reduction.arrived.numpy())))

    bench = Bench(network(), fed)
    bench.train(micro, epochs=1)
    assert sorted(i for indices, _ in told for i in indices) == list(range(N))
    assert max(len(indices) for indices, _ in told) <= (micro or BATCH)
    steps = [arrived for _, arrived in told]
    assert steps == sorted(steps)
    assert set(steps) == {0, 1, 2}  # collectives begun at that time: those of earlier steps


def test_nobody_to_tell_costs_nothing() -> None:
    bench = Bench(network())
    graph = bench.steps._whole.get_concrete_function(bench.feed.training(cut(N, 0, BATCH, 0, 1), 1, 0)).graph
    assert "PyFunc" not in {op.type for op in graph.get_operations()}


def held(bench: Bench, part: Cut) -> list[tf.Variable]:
    bench.steps.train(bench.feed.training(part, 1, 0), part.pieces(0))
    return bench.steps._held.sums


def test_gradients_of_a_table_stay_sparse_while_they_are_held() -> None:
    sums = held(Bench(network()), cut(N, 0, BATCH, 0, 1, micro=5))
    values, indices = next(pair for pair in sums if isinstance(pair, tuple))
    assert values.shape.as_list() == [None, 3]
    assert indices.numpy().shape == (3 * 4 * 4,)  # three pieces of four samples with four words each


def test_steps_are_traced_once(monkeypatch: pytest.MonkeyPatch) -> None:
    traces: list[int] = []

    class Traced(keras.Model):
        def train_step(self, data: Any) -> Any:
            traces.append(1)
            return super().train_step(data)

    bench = Bench(network(kind=Traced)).train(5)
    assert len(traces) == 2  # all pieces but the last, the last; the short step at the end fits in pieces too
    bench.train(epochs=1)
    assert len(traces) == 3  # a step of one piece
    bench.train(5).train()
    assert len(traces) == 3
