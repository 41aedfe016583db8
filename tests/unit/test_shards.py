"""Deterministic steps in a world of one, and in worlds of several that are played one after the other."""

from collections.abc import Iterator
from typing import Any

import horovod.tensorflow as hvd
import keras
import numpy as np
import pytest
import tensorflow as tf
from horovod.common.exceptions import HorovodInternalError

from elastic.errors import ConfigError
from elastic.worker.feed import Feed
from elastic.worker.optimizer import Reduction, Signal, distribute
from elastic.worker.order import cut
from elastic.worker.shards import ShardSteps
from elastic.worker.step import build
from tests.unit.test_step import BATCH, N, Twice, differences, network, source
from tests.unit.test_step import Bench as Plain

SHARDS = 4


@pytest.fixture(scope="module", autouse=True)
def world() -> Iterator[None]:
    hvd.init()
    yield
    hvd.shutdown()


def layers() -> list[Any]:
    return [keras.layers.BatchNormalization(), keras.layers.Dropout(0.5)]


class Bench:
    """A model and its deterministic steps, one of `shards`."""

    def __init__(self, model: keras.Model, shards: int = SHARDS, fed: Any = None, seed: int = 7) -> None:
        data = source()
        self.model, self.shards = model, shards
        build(model, data[np.zeros(1, np.int64)])
        self.reduction = Reduction()
        distribute(model.optimizer, reduction=self.reduction)
        self.steps = ShardSteps(model, self.reduction, fed, shards=shards, seed=seed)
        self.feed = Feed(data)

    def train(self, micro: int | None = None, epochs: int = 2, batch: int = BATCH) -> "Bench":
        at = 0
        for epoch in range(epochs):
            part = cut(N, 0, batch, 0, 1, shards=self.shards, micro=micro)
            pieces = self.feed.training(part, 1, epoch)
            for step in range(part.steps):
                self.logs, self.seen = self.steps.train(pieces, part.pieces(step), at)
                at += 1
        return self

    def validate(self, batch: int = 3) -> dict[str, float]:
        validation = self.steps.validation
        validation.begin(3)
        for run in validation.runs(N):
            batches = self.feed.validation(run.low, run.high, batch)
            validation.begin_run(run)
            for _ in range(-(-(run.high - run.low) // batch)):
                validation.batch(batches)
            validation.end_run(run)
        validation.join()
        return {name: float(value) for name, value in self.model.get_metrics_result().items()}

    def values(self) -> dict[str, Any]:
        variables = [*self.model.variables, *self.model.optimizer.variables, *self.model.metrics_variables]
        return {f"{i} {v.path}": v.numpy().copy() for i, v in enumerate(variables)}


def test_a_step_in_shards_is_the_step_as_a_whole() -> None:
    """With Adam, which squares gradients, there is a difference: Keras squares rows that occur twice one by one."""
    sgd = lambda: keras.optimizers.SGD(0.1, momentum=0.9)  # noqa: E731
    whole, shards = Plain(network(optimizer=sgd())).train(), Bench(network(optimizer=sgd())).train()
    for a, b in zip(whole.values().values(), shards.values().values(), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    assert {k: float(v) for k, v in shards.logs.items()} == {
        k: pytest.approx(float(v), abs=1e-6) for k, v in whole.logs.items()
    }


def test_training_again_gives_the_same_bits() -> None:
    one, other = Bench(network(*layers())).train(), Bench(network(*layers())).train()
    for a, b in zip(one.values().values(), other.values().values(), strict=True):
        assert a.tobytes() == b.tobytes()


@pytest.mark.parametrize("micro", [1, 3, None])
def test_a_small_last_step_has_empty_shards_that_leave_no_trace(micro: int | None) -> None:
    bench = Bench(network(*layers())).train(micro, epochs=1, batch=13)  # 40 = 13 + 13 + 13 + 1
    assert int(bench.model.optimizer.iterations.numpy()) == 4
    assert float(bench.model.metrics[0].count.numpy()) == N


def test_pieces_of_a_shard_come_close_to_the_whole_shard() -> None:
    one, other = Bench(network()).train(), Bench(network()).train(2)
    for a, b in zip(one.values().values(), other.values().values(), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


class Played:
    """Worlds of several workers, of which one process plays each in turn.

    A collective needs all workers at once. Here the workers of a world run one after the other, each
    up to what it would send; what the collective returns is worked out from all of theirs.
    """

    def __init__(self, bench: Bench, size: int) -> None:
        self.bench, self.size = bench, size

    def step(self, epoch: int, number: int, place: int) -> None:
        steps, at = self.bench.steps, tf.constant(place, tf.int64)
        shares = []
        for rank in range(self.size):
            part = cut(N, number * BATCH, BATCH, rank, self.size, shards=SHARDS)
            pieces = self.bench.feed.training(part, 1, epoch)
            if steps._moves is None:
                steps._piece.get_concrete_function(pieces, at)
            steps._begin()
            shares.append(steps._compute(pieces, part.pieces(0), at))
            steps._guard.put_back()
        largest = np.max([m.largest.numpy() for mine in shares for m in mine], axis=0)
        agreed, totals = tf.constant(largest), None
        for mine in shares:
            total = None
            for contribution in mine:
                total = steps._integers(contribution.terms, agreed, total)
            if total is not None:
                totals = total if totals is None else [a + b for a, b in zip(totals, total, strict=True)]
        steps._finish(totals, agreed, at)


@pytest.mark.parametrize("size", [2, 3, 4])
def test_a_world_of_any_size_computes_the_same_bits(size: int) -> None:
    alone = Bench(network(*layers())).train(epochs=1)
    together = Bench(network(*layers()))
    for number in range(3):
        Played(together, size).step(0, number, number)
    for a, b in zip(alone.values().values(), together.values().values(), strict=True):
        assert a.tobytes() == b.tobytes()


def test_seeds_depend_on_the_shard_and_on_the_step() -> None:
    """Two steps on the same samples, and shards of the same samples, drop different things."""
    drawn: list[Any] = []

    class Noted(keras.layers.Dropout):
        def call(self, inputs: Any, training: bool = False) -> Any:
            found = super().call(inputs, training=training)
            if training:
                kept = tf.cast(tf.not_equal(found, 0.0), tf.int32)
                tf.numpy_function(lambda k: drawn.append(k.tolist()) or np.int64(0), [kept[0]], tf.int64)
            return found

    bench = Bench(network(Noted(0.5)))
    bench.train(epochs=2, batch=N)
    assert len(drawn) == 2 * SHARDS
    assert len({tuple(k) for k in drawn}) == 2 * SHARDS
    again = list(drawn)
    drawn.clear()
    Bench(network(Noted(0.5))).train(epochs=2, batch=N)
    assert drawn == again
    drawn.clear()
    Bench(network(Noted(0.5)), seed=8).train(epochs=2, batch=N)
    assert drawn != again


def test_after_a_step_seeds_are_a_function_of_the_step_alone() -> None:
    found = []
    for shards in (2, 4):
        bench = Bench(network(*layers()), shards).train(epochs=1)
        found.append([v.numpy().tolist() for v in bench.model.variables if "seed" in v.path])
    assert found[0] != [[7, 0]]
    assert all(0 <= word < 2**32 for state in found[0] for word in state)


def test_metrics_and_logs_are_of_all_samples_after_each_step() -> None:
    bench = Bench(network()).train(epochs=1)
    assert float(bench.model.metrics[0].count.numpy()) == N
    assert set(bench.logs) == {"loss", "accuracy"}
    before = bench.values()
    bench.steps.join(iter(()))
    assert not differences(before, bench.values())


def test_batchnorm_moves_once_a_step_by_what_all_shards_saw() -> None:
    norm = keras.layers.BatchNormalization(momentum=0.5)
    bench = Bench(network(norm, optimizer=keras.optimizers.SGD(0.0))).train(epochs=1, batch=N)
    model = bench.model
    inner = keras.Model(model.inputs, norm.input)
    mean = inner.predict(source()[np.arange(N)][0], verbose=0).mean(axis=0)
    np.testing.assert_allclose(norm.moving_mean.numpy(), 0.5 * mean, atol=1e-6)


def test_signals_travel_with_a_step() -> None:
    bench = Bench(network())
    raised = [float(signal is Signal.DRAIN) for signal in Signal]
    bench.reduction.raised.assign(raised)
    bench.train(epochs=1)
    assert bench.seen.tolist() == raised


@pytest.mark.parametrize("lost", ["allreduce", "grouped_allreduce"])
def test_a_failed_step_leaves_everything_as_before_it(lost: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import elastic.worker.shards as module

    def fail(*_: Any, **__: Any) -> Any:
        raise HorovodInternalError("lost")

    def failing(value: Any, name: str) -> Any:
        tensors = value if isinstance(value, list) else [value]
        found = [tf.ensure_shape(tf.numpy_function(fail, [t], t.dtype), t.shape) for t in tensors]
        return found if isinstance(value, list) else found[0]

    expected = Bench(network(*layers())).train().values()
    bench = Bench(network(*layers())).train(epochs=1)
    before = bench.values()
    part = cut(N, 0, BATCH, 0, 1, shards=SHARDS)
    with monkeypatch.context() as patch:
        patch.setattr(module, "_MAX" if lost == "allreduce" else "_SUM", failing)
        bench.steps._agree = bench.steps._compiled(bench.steps._agree_on)
        bench.steps._finish = bench.steps._compiled(bench.steps._finish_step)
        with pytest.raises(Exception, match="lost"):
            bench.steps.train(bench.feed.training(part, 1, 1), part.pieces(0), 3)
    assert bench.steps.in_collective()
    bench.steps.take_back()
    assert not differences(before, bench.values())
    bench.steps._agree = bench.steps._compiled(bench.steps._agree_on)
    bench.steps._finish = bench.steps._compiled(bench.steps._finish_step)
    pieces = bench.feed.training(part, 1, 1)
    for step in range(part.steps):
        bench.steps.train(pieces, part.pieces(step), 3 + step)
    assert [a.tobytes() for a in bench.values().values()] == [a.tobytes() for a in expected.values()]


CHANGES = ("Assign", "ResourceApply", "ResourceScatter", "If", "StatelessIf", "PartitionedCall", "StatefulPartitioned")


def test_nothing_changes_before_the_sums_have_arrived() -> None:
    from tests.unit.test_optimizer import ancestors

    bench = Bench(network(*layers())).train(epochs=1)
    graph = bench.steps._finish._list_all_concrete_functions()[0].graph
    changes = [op for op in graph.get_operations() if op.type.startswith(CHANGES)]
    collectives = {op.name for op in graph.get_operations() if op.type.startswith("Horovod")}
    assert len(collectives) == 1
    assert all("elastic." in name for name in collectives)
    assert len(changes) > 10
    assert [op.name for op in changes if not collectives <= ancestors(op)] == []


class Infinite(keras.Model):
    """The loss of one sample is infinite."""

    def train_step(self, data: Any) -> Any:
        weights = tf.where(tf.range(tf.size(data[1])) == 0, np.float32(np.inf), 1.0)
        return super().train_step((data[0], data[1], weights))


def test_a_gradient_that_is_not_finite_becomes_nan_for_everyone() -> None:
    bench = Bench(network(kind=Infinite)).train(epochs=1, batch=N)
    assert np.isnan(bench.model.trainable_variables[1].numpy()).all()


def test_a_loss_scale_is_halved_by_what_is_not_finite_and_weights_stay() -> None:
    optimizer = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1), initial_scale=4.0)
    bench = Bench(network(kind=Infinite, optimizer=optimizer))
    before = bench.model.trainable_variables[1].numpy()
    bench.train(epochs=1, batch=N)
    assert float(optimizer.dynamic_scale.numpy()) == 2.0
    np.testing.assert_array_equal(bench.model.trainable_variables[1].numpy(), before)


def test_mixed_precision_trains() -> None:
    usual = keras.config.dtype_policy()
    keras.config.set_dtype_policy("mixed_float16")
    try:
        model = network()
    finally:
        keras.config.set_dtype_policy(usual)
    bench = Bench(model).train(epochs=1)
    assert np.isfinite(float(bench.logs["loss"]))


class Counting(keras.layers.Layer):
    """Counts in an integer: its calls, or the samples that it saw."""

    def __init__(self, samples: bool) -> None:
        super().__init__()
        self.samples = samples

    def build(self, shape: Any) -> None:
        self.seen = self.add_weight(name="seen", shape=(), dtype="int32", initializer="zeros", trainable=False)

    def call(self, x: Any) -> Any:
        self.seen.assign_add(tf.shape(x)[0] if self.samples else 1)
        return x


def test_an_integer_that_moves_alike_everywhere_moves_once_a_step() -> None:
    counting = Counting(samples=False)
    Bench(network(counting)).train(epochs=1)
    assert int(counting.seen.numpy()) == 3


def test_an_integer_that_does_not_is_refused() -> None:
    with pytest.raises(ConfigError, match="seen changed otherwise for some samples than for others"):
        Bench(network(Counting(samples=True))).train(epochs=1, batch=15)


class Hidden(keras.layers.Layer):
    def call(self, x: Any, training: bool = False) -> Any:
        return x + tf.random.normal(tf.shape(x), seed=3) if training else x


class Everyones(keras.layers.Layer):
    def call(self, x: Any, training: bool = False) -> Any:
        return x + keras.random.normal((20,)) if training else x


class Outside(keras.layers.Layer):
    def call(self, x: Any) -> Any:
        COUNTER.assign_add(1.0)
        return x


COUNTER = tf.Variable(0.0)


class Nothing(keras.Model):
    def train_step(self, data: Any) -> Any:
        return {"loss": self.compute_loss(y=data[1], y_pred=self(data[0]))}


class Direct(keras.Model):
    def train_step(self, data: Any) -> Any:
        self.trainable_variables[0].assign_add(tf.ones_like(self.trainable_variables[0]))
        return super().train_step(data)


class Sometimes(keras.Model):
    def train_step(self, data: Any) -> Any:
        (x, words), y = data
        with tf.GradientTape() as tape:
            loss = self.compute_loss(y=y, y_pred=self([x, words], training=True))
        grads = [tf.convert_to_tensor(g) for g in tape.gradient(loss, self.trainable_variables)]
        tf.cond(loss > 0.0, lambda: self.optimizer.apply(grads, self.trainable_variables), lambda: None)
        return {"loss": loss}


@pytest.mark.filterwarnings("ignore:Converting sparse IndexedSlices")
@pytest.mark.parametrize(
    ("layer", "kind", "message"),
    [
        (Hidden, keras.Model, "found the random op RandomStandardNormal, which hides its state"),
        (Outside, keras.Model, "changes a variable that is not the model's"),
        (None, Nothing, "does not apply gradients with the optimizer"),
        (None, Direct, "changes .*embeddings"),
        (None, Twice, "applies gradients more than once a step"),
        (None, Sometimes, "applies gradients in a conditional or a loop"),
    ],
)
def test_what_would_depend_on_the_world_is_refused(layer: Any, kind: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Bench(network(*([layer()] if layer else []), kind=kind)).train(epochs=1)


def test_a_model_that_runs_eagerly_is_refused() -> None:
    with pytest.raises(ConfigError, match="run_eagerly"):
        Bench(network(run_eagerly=True))


def test_random_numbers_without_a_generator_of_their_own_are_set_too() -> None:
    one, other = (Bench(network(Everyones())).train(epochs=1).values() for _ in range(2))
    assert [a.tobytes() for a in one.values()] == [a.tobytes() for a in other.values()]


def test_a_frozen_backbone_costs_nothing() -> None:
    backbone = keras.layers.Dense(300)
    backbone.trainable = False
    bench = Bench(network(backbone)).train(epochs=1)
    assert backbone.kernel.value.ref() not in {live.ref() for live, _ in bench.steps._guard.pairs}
    assert len(bench.steps._types) == len(bench.model.trainable_variables) + len(bench.model.metrics_variables)


def test_every_piece_is_told_before_the_collectives() -> None:
    told: list[tuple[list[int], int]] = []
    bench = Bench(network(), fed=lambda i: told.append((i.tolist(), int(bench.reduction.arrived.numpy()))))
    bench.train(2, epochs=1)
    assert sorted(i for indices, _ in told for i in indices) == list(range(N))
    assert max(len(indices) for indices, _ in told) <= 2
    assert {arrived for _, arrived in told} == {0, 1, 2}


def test_validation_is_of_all_samples_and_leaves_the_state_of_training() -> None:
    bench = Bench(network(*layers())).train(epochs=1)
    before = {n: v for n, v in bench.values().items() if not n.endswith(("total", "count"))}
    found = bench.validate()
    after = {n: v for n, v in bench.values().items() if n in before}
    assert not differences(before, after)
    x, y = source()[np.arange(N)]
    plain = bench.model.evaluate(list(x), y, verbose=0, batch_size=N, return_dict=True)
    assert found == {name: pytest.approx(value, abs=1e-5) for name, value in plain.items()}


def test_a_validation_done_again_gives_the_same_bits() -> None:
    bench = Bench(network(*layers())).train(epochs=1)
    assert bench.validate() == bench.validate()


def test_there_are_shards_of_validation_without_samples() -> None:
    bench = Bench(network(), shards=64).train(epochs=1)
    assert len(bench.steps.validation.runs(N)) == 64
    bench.validate()
    assert float(bench.model.metrics[0].count.numpy()) == N


def test_nothing_is_traced_twice() -> None:
    bench = Bench(network()).train()
    functions = [bench.steps._begin, bench.steps._piece, bench.steps._agree, bench.steps._finish]
    assert [f.experimental_get_tracing_count() for f in functions] == [1, 1, 1, 1]
