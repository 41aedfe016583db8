"""The optimizer in a world of one: Horovod is real, and its sums are over this process alone."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import horovod.tensorflow as hvd
import keras
import numpy as np
import pytest
import tensorflow as tf

from elastic.worker.optimizer import Reduction, Signal, distribute, reduction_of


@pytest.fixture(scope="module", autouse=True)
def world() -> Iterator[None]:
    hvd.init()
    yield
    hvd.shutdown()


def variable(*values: float, dtype: str = "float32") -> keras.Variable:
    return keras.Variable(list(values), dtype=dtype)


def step(optimizer: Any, grads: list[Any], variables: list[keras.Variable]) -> list[list[float]]:
    optimizer.apply([g if g is None or tf.is_tensor(g) else tf.constant(g) for g in grads], variables)
    return [tf.cast(v.value, tf.float32).numpy().tolist() for v in variables]


def shared(share: float, **kwargs: Any) -> Reduction:
    reduction = Reduction(**kwargs)
    reduction.share.assign(share)
    return reduction


def test_an_optimizer_is_distributed_in_place_and_stays_what_it_is() -> None:
    optimizer = keras.optimizers.SGD(0.1)
    assert distribute(optimizer) is optimizer
    assert type(optimizer) is keras.optimizers.SGD


def test_distributing_twice_reduces_once() -> None:
    reduction = shared(0.5)
    optimizer = distribute(distribute(keras.optimizers.SGD(1.0), reduction=reduction), reduction=shared(0.5))
    assert reduction_of(optimizer) is reduction
    assert step(optimizer, [[1.0]], [variable(0.0)]) == [[-0.5]]


@pytest.mark.parametrize("wrong", ["sgd", None, keras.optimizers.SGD, tf.compat.v1.train.GradientDescentOptimizer(0.1)])
def test_what_is_no_keras_optimizer_is_refused(wrong: Any) -> None:
    with pytest.raises(TypeError, match=r"expected a keras\.optimizers\.Optimizer"):
        distribute(wrong)


OPTIMIZERS: dict[str, Callable[[], keras.optimizers.Optimizer]] = {
    "momentum": lambda: keras.optimizers.SGD(0.1, momentum=0.9),
    "adam": lambda: keras.optimizers.Adam(0.1, clipnorm=1.0),
    "decay": lambda: keras.optimizers.AdamW(0.1, weight_decay=0.1),
    "average": lambda: keras.optimizers.RMSprop(0.1, use_ema=True),
    "accumulation": lambda: keras.optimizers.SGD(0.1, gradient_accumulation_steps=2),
    "loss scale": lambda: keras.optimizers.LossScaleOptimizer(keras.optimizers.Adam(0.1), initial_scale=4.0),
    "schedule": lambda: keras.optimizers.SGD(keras.optimizers.schedules.ExponentialDecay(0.1, 1, 0.5)),
}


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_one_worker_trains_as_with_the_plain_optimizer(kind: str) -> None:
    plain, ours = OPTIMIZERS[kind](), distribute(OPTIMIZERS[kind]())
    weights = [[variable(1.0, -2.0), variable(3.0)] for _ in range(2)]
    for grads in ([[3.0, 4.0], [-1.0]], [[0.5, 0.0], [2.0]], [[-1.0, 1.0], [0.1]]):
        expected, found = step(plain, list(grads), weights[0]), step(ours, list(grads), weights[1])
        assert found == [pytest.approx(values) for values in expected]
    for a, b in zip(plain.variables, ours.variables, strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-6)


def test_a_gradient_counts_with_this_workers_share_of_the_samples() -> None:
    optimizer = distribute(keras.optimizers.SGD(1.0), reduction=shared(0.25))
    assert step(optimizer, [[4.0], [8.0]], [variable(0.0), variable(1.0)]) == [[-1.0], [-1.0]]


def test_gradients_are_clipped_after_they_are_reduced() -> None:
    optimizer = distribute(keras.optimizers.SGD(1.0, clipvalue=1.0), reduction=shared(0.5))
    assert step(optimizer, [[4.0]], [variable(0.0)]) == [[-1.0]]  # clipped before, it would move by 0.5


def test_the_rate_is_scaled_while_a_step_is_applied_and_reads_as_set() -> None:
    optimizer = distribute(keras.optimizers.SGD(0.5), reduction=shared(1.0))
    reduction_of(optimizer).scale.assign(2.0)
    weight = variable(0.0)
    assert step(optimizer, [[1.0]], [weight]) == [[-1.0]]
    assert float(optimizer.learning_rate) == 0.5
    optimizer.learning_rate = 0.25
    reduction_of(optimizer).scale.assign(4.0)
    assert step(optimizer, [[1.0]], [weight]) == [[-2.0]]
    assert float(optimizer.learning_rate) == 0.25


@pytest.mark.parametrize("kind", ["schedule", "loss scale"])
def test_the_scale_reaches_schedules_and_inner_optimizers(kind: str) -> None:
    moves = []
    for scale in (1.0, 3.0):
        optimizer = distribute(OPTIMIZERS[kind]())
        reduction_of(optimizer).scale.assign(scale)
        moves += step(optimizer, [[4.0]], [variable(0.0)])
    assert moves[1] == pytest.approx([3 * moves[0][0]])


def test_the_rate_reads_unscaled_after_a_step_that_failed() -> None:
    optimizer = distribute(keras.optimizers.SGD(0.5))
    reduction_of(optimizer).scale.assign(2.0)
    with pytest.raises(Exception, match=r"shape|dimension|Incompatible"):
        step(optimizer, [[1.0, 2.0, 3.0]], [variable(0.0)])
    assert float(optimizer.learning_rate) == 0.5


def test_a_traced_step_follows_share_and_scale() -> None:
    optimizer, weight = distribute(keras.optimizers.SGD(1.0), reduction=shared(1.0)), variable(0.0)
    optimizer.build([weight])
    traced = tf.function(lambda: optimizer.apply([tf.constant([1.0])], [weight]), autograph=False)
    traced()
    reduction_of(optimizer).share.assign(0.5)
    reduction_of(optimizer).scale.assign(4.0)
    traced()
    assert float(weight.value[0]) == -3.0
    assert int(optimizer.iterations.numpy()) == 2


def test_signals_travel_with_a_step() -> None:
    optimizer = distribute(keras.optimizers.SGD(1.0))
    reduction = reduction_of(optimizer)
    raised = [float(signal is Signal.DRAIN) for signal in Signal]
    reduction.raised.assign(raised)
    assert not reduction.seen.numpy().any()
    weight = variable(0.0)
    step(optimizer, [[1.0]], [weight])
    assert reduction.seen.numpy().tolist() == raised
    reduction.raised.assign([0.0] * len(Signal))
    step(optimizer, [[1.0]], [weight])
    assert not reduction.seen.numpy().any()


def test_a_variable_without_a_gradient_stays() -> None:
    optimizer, variables = distribute(keras.optimizers.SGD(1.0)), [variable(1.0), variable(2.0), variable(3.0)]
    optimizer.build(variables)
    with pytest.warns(UserWarning, match="Gradients do not exist"):
        found = step(optimizer, [[1.0], None, [1.0]], variables)
    assert found == [[0.0], [2.0], [2.0]]


def sparse(rows: list[int], *values: float) -> tf.IndexedSlices:
    return tf.IndexedSlices(tf.constant([[v] for v in values]), tf.constant(rows), tf.constant([4, 1]))


@pytest.mark.parametrize("kind", ["momentum", "adam"])
def test_sparse_gradients_do_what_dense_ones_do(kind: str) -> None:
    tables = [keras.Variable(np.ones((4, 1), np.float32)) for _ in range(2)]
    biases = [variable(0.0), variable(0.0)]
    dense = tf.constant([[0.0], [2.0], [0.0], [4.0]])
    one, other = OPTIMIZERS[kind](), OPTIMIZERS[kind]()
    one.apply([dense / 2, tf.constant([0.5])], [tables[0], biases[0]])
    distribute(other, reduction=shared(0.5))
    other.apply([sparse([1, 3], 2.0, 4.0), tf.constant([1.0])], [tables[1], biases[1]])
    np.testing.assert_allclose(tables[1].numpy(), tables[0].numpy(), rtol=1e-6)
    assert biases[1].numpy() == pytest.approx(biases[0].numpy())


def test_sparse_gradients_stay_sparse() -> None:
    (found, nothing) = shared(0.5).reduce([sparse([1, 3], 2.0, 4.0), None])
    assert isinstance(found, tf.IndexedSlices)
    assert (found.indices.numpy().tolist(), found.values.numpy().tolist()) == ([1, 3], [[1.0], [2.0]])
    assert nothing is None


def test_half_precision_is_for_the_wire_alone() -> None:
    (found,) = shared(1.0, fp16=True).reduce([tf.constant([0.1])])
    assert found.dtype == tf.float32
    assert found.numpy() == [np.float32(np.float16(0.1))]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "float64"])
def test_a_gradient_comes_back_in_its_own_type(dtype: str) -> None:
    (found,) = shared(0.5).reduce([tf.constant([3.0], dtype)])
    assert (found.dtype.name, float(found[0])) == (dtype, 1.5)


@pytest.mark.parametrize("fp16", [False, True])
def test_gradients_of_several_types_travel_together_and_keep_their_order(fp16: bool) -> None:
    types = ["float32", "float16", "float64", "bfloat16", "float16"]
    dense = [tf.constant([2.0 * i], dtype) for i, dtype in enumerate(types)]
    rows = [tf.IndexedSlices(tf.constant([[2.0]], d), tf.constant([1], i), tf.constant([4, 1], i)) for d, i in ROWS]
    reduction = shared(0.5, fp16=fp16)
    found = reduction.reduce([*dense, None, *rows])
    assert [(g.dtype.name, float(g[0])) for g in found[: len(types)]] == [(d, float(i)) for i, d in enumerate(types)]
    assert [(g.values.dtype.name, g.indices.dtype.name) for g in found[len(types) + 1 :]] == ROWS
    assert [(float(g.values[0, 0]), int(g.indices[0])) for g in found[len(types) + 1 :]] == [(1.0, 1)] * len(ROWS)
    assert int(reduction.arrived.numpy()) == 1


ROWS = [("float32", "int32"), ("float16", "int64"), ("float64", "int32")]


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # Keras, of its own variables
def test_a_model_saves_and_loads_with_a_plain_optimizer(tmp_path: Path) -> None:
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile(distribute(keras.optimizers.Adam(0.125)), "mse")
    step(model.optimizer, [np.ones((2, 1), np.float32), np.ones(1, np.float32)], model.trainable_variables)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras").optimizer
    assert type(loaded) is keras.optimizers.Adam
    assert "_elastic_reduction" not in vars(loaded)
    assert loaded.get_config() == model.optimizer.get_config()
    assert loaded.get_config().keys() == keras.optimizers.Adam().get_config().keys()
    for a, b in zip(model.optimizer.variables, loaded.variables, strict=True):
        np.testing.assert_array_equal(a.numpy(), b.numpy())


CHANGES = ("Assign", "ResourceApply", "ResourceScatter", "If", "StatelessIf", "PartitionedCall", "StatefulPartitioned")


def ancestors(op: tf.Operation) -> set[str]:
    """Return the names of all ops that run before `op`."""
    seen: set[str] = set()
    todo = [op]
    while todo:
        here = todo.pop()
        for before in [*(t.op for t in here.inputs), *here.control_inputs]:
            if before.name not in seen:
                seen.add(before.name)
                todo.append(before)
    return seen


@pytest.mark.parametrize("fp16", [False, True])
@pytest.mark.parametrize("kind", [kind for kind in OPTIMIZERS if kind != "loss scale"])
def test_nothing_changes_before_every_gradient_has_arrived(kind: str, fp16: bool) -> None:
    optimizer = distribute(OPTIMIZERS[kind](), fp16=fp16)
    variables = [variable(1.0, 2.0), keras.Variable(np.ones((4, 1), np.float32)), variable(3.0, dtype="float64")]
    optimizer.build(variables)

    def train() -> None:
        optimizer.apply([tf.constant([1.0, 2.0]), sparse([1], 2.0), tf.constant([1.0], tf.float64)], variables)

    graph = tf.function(train, autograph=False).get_concrete_function().graph
    reduction = reduction_of(optimizer)
    noted = (reduction.arrived.handle, reduction.arrived_at.handle)  # that this worker's gradients are ready, and when
    arrived = [inner.name for outer, inner in graph.captures if any(outer is handle for handle in noted)]
    changes = [op for op in graph.get_operations() if op.type.startswith(CHANGES) and op.inputs[0].name not in arrived]
    collectives = {op.name for op in graph.get_operations() if op.type.startswith("Horovod")}
    early = [op.name for op in changes if not collectives <= ancestors(op)]
    assert len(collectives) == 4  # dense gradients and signals, of two types; rows and places of sparse ones
    assert all("elastic." in name for name in collectives)  # a lost collective is recognised by that
    assert len(changes) >= 3  # variables and the count of steps
    assert early == []


def test_each_reduced_gradient_waits_for_all_collectives() -> None:
    reduction = shared(1.0)

    def reduce() -> list[tf.Tensor]:
        first, rows, wide = reduction.reduce([tf.constant([1.0]), sparse([1], 2.0), tf.constant([1.0], tf.float64)])
        return [first, rows.values, rows.indices, wide]

    function = tf.function(reduce, autograph=False).get_concrete_function()
    collectives = {op.name for op in function.graph.get_operations() if op.type.startswith("Horovod")}
    assert len(collectives) == 4
    for tensor in function.graph.structured_outputs:
        assert collectives <= ancestors(tensor.op)


def test_without_gradients_nothing_is_exchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    optimizer = distribute(keras.optimizers.SGD(1.0))
    optimizer.build([variable(1.0)])
    monkeypatch.setattr(hvd, "grouped_allreduce", lambda *_, **__: pytest.fail("a collective"))
    optimizer.apply([], [])
    assert int(optimizer.iterations.numpy()) == 0
