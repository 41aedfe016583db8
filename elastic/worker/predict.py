"""`elastic.predict`: what `model.predict` is for one machine, for workers that come and go.

The samples are predicted in rounds. In a round each worker takes its part of the next samples, then
all parts are brought together on all workers, in the order of the samples; so whoever survives
holds what is done, a round is the most that is done again, and every sample counts once, whatever
the number of workers divides.
"""

from collections.abc import Callable, Sequence
from typing import Any

import horovod.tensorflow as hvd
import keras
import numpy as np
import tensorflow as tf
from horovod.common.elastic import State
from horovod.common.exceptions import HostsUpdatedInterrupt
from numpy.typing import NDArray

from elastic.channel import Phase
from elastic.errors import ConfigError
from elastic.events import JobFinished, WorldFormed
from elastic.worker import order, world
from elastic.worker.collective import collectives, dumps, gather, gather_rows, loads
from elastic.worker.context import Context, current
from elastic.worker.data import Source, as_source
from elastic.worker.elements_feed import feed_of
from elastic.worker.loop import run
from elastic.worker.membership import Membership
from elastic.worker.parts import Drained
from elastic.worker.same_data import refuse_other_data
from elastic.worker.state import exchange
from elastic.worker.stopwatch import Stopwatch

ROUND_BATCHES = 16  # of each worker


def predict(model: keras.Model, data: Any, *, batch_size: int | None = None) -> Any:
    """Return the model's outputs for all samples, computed on however many workers there are.

    Started by `elastic run` or another launcher, every worker calls it, having built the same model
    and loaded the same weights (rank 0's count); it returns on rank 0 and the other workers end
    there. After `elastic.fit`, which has left rank 0 alone, it runs in this process.

    Args:
        model: built; need not be compiled.
        data: x as arrays, or anything that `elastic.fit` takes; of (x, y, ...) x alone is used.
        batch_size: samples that a worker computes at once; by default 32.

    Returns:
        Arrays in the structure of the model's outputs, a row a sample in the order of the data.

    Raises:
        ConfigError: when an argument cannot be served, with what to do instead.
    """
    if not model.built:
        raise ConfigError("elastic.predict: the model is not built: call it on a batch or give it an Input first")
    batch = 32 if batch_size is None else batch_size
    if batch < 1:
        raise ConfigError(f"elastic.predict: found batch_size={batch}, expected at least 1")
    source = as_source(data)
    if not len(source):
        raise ConfigError("data: found 0 samples, expected at least one")
    return _Predict(model, source, batch, current()).run()


class _Predict:
    """One call of `predict` in this process."""

    def __init__(self, model: keras.Model, source: Source, batch: int, context: Context) -> None:
        self._source = source
        self._batch = batch
        self._context = context
        self._feed = feed_of(source)
        self._compute = tf.function(_first_of(model), reduce_retracing=True, autograph=False)
        self._state = _Predicted([v.value for v in model.variables], len(source), context)
        self._outputs: Any = None

    def run(self) -> Any:
        context, state = self._context, self._state
        if context.goal_reached:
            return self._packed([self._mine(0, len(self._source))])
        if context.level == "step":
            self._warm_up()
        membership = Membership(context, state.watch)
        go = membership.join()
        state.generation = go.generation if go is not None else 0
        try:
            run(
                self._rounds,
                reset=lambda: membership.change_over(state.forget_news),
                on_lost=lambda error: membership.lost(len(state.parts), error),
            )(state)
        except Drained as drained:
            membership.leave(whole_job=drained.whole_job)
        if hvd.rank() == 0:
            context.emit(JobFinished(0, len(state.parts), state.done, len(self._source), {}))
        membership.done()
        return self._packed(state.parts)

    def _warm_up(self) -> None:
        world.enter(world.Entry.ALONE, {})
        try:
            self._mine(0, 1)
            exchange((0,), self._state.variables, b"", "warmup")
        finally:
            world.leave()

    def _rounds(self, state: "_Predicted") -> None:
        n = len(self._source)
        while state.done < n:
            until = min(n, state.done + self._batch * ROUND_BATCHES * hvd.size())
            low, high = order.shard(until - state.done, hvd.rank(), hvd.size())
            mine = self._mine(state.done + low, state.done + high)
            self._context.pulse.enter(Phase.SYNCING)
            state.take([gather(a, f"elastic.predicted.{i}") for i, a in enumerate(mine)], until)
            state.obey()

    def _mine(self, low: int, high: int) -> list[NDArray[Any]]:
        """Return the flat outputs for the samples [low, high); without samples, as many empty arrays."""
        pieces = self._feed.validation(low, high, self._batch)
        found = []
        for _ in range(max(1, -(-(high - low) // self._batch))):
            self._context.pulse.enter(Phase.VALIDATING)
            self._outputs = self._compute(next(pieces)[0])
            found.append([o.numpy() for o in keras.tree.flatten(self._outputs)])
        return [np.concatenate(parts)[: high - low] for parts in zip(*found, strict=True)]

    def _packed(self, parts: Sequence[list[NDArray[Any]]]) -> Any:
        """Return the rounds' flat outputs one after the other, in the model's structure."""
        flat = [np.concatenate(arrays) for arrays in zip(*parts, strict=True)]
        return keras.tree.pack_sequence_as(self._outputs, flat)


class _Predicted(State):
    """What is predicted so far, on every worker, and the weights that it is predicted with."""

    def __init__(self, variables: Sequence[Any], samples: int, context: Context) -> None:
        super().__init__(bcast_object=None, get_rank=hvd.rank)
        self.variables = variables
        self.samples = samples
        self.parts: list[list[NDArray[Any]]] = []
        self.done = 0
        self.generation = 0
        self.watch = Stopwatch()
        self._context = context
        self._hosts_changed = False

    def take(self, parts: list[NDArray[Any]], done: int) -> None:
        """Add a round, the one up to sample `done`."""
        self.parts.append(parts)
        self.done = done

    def obey(self) -> None:
        """Leave or change worlds, if any worker was told to: all know from the same collective."""
        mine = self._context.draining is not None
        rows = gather_rows([int(self._hosts_changed), int(mine)], "predict.signals")
        leaving = sum(row[1] for row in rows)
        if mine or (leaving and leaving == len(rows)):
            raise Drained(whole_job=leaving == len(rows))
        if leaving or any(row[0] for row in rows):
            raise HostsUpdatedInterrupt(False)

    def sync(self) -> None:
        """Take weights and rounds of whoever has most.

        Raises:
            ConfigError: when this worker has other data than those that have predicted, or than rank 0.
        """
        with collectives():
            rows = gather_rows([int(self.done > 0), self.samples, self.generation], "predict.generation")
            refuse_other_data([row[:-1] for row in rows], hvd.rank())
            self.generation = 1 + max(row[-1] for row in rows)
            root, _, packed = exchange((self.done,), self.variables, dumps((self.parts, self.done)), "predict")
        self.parts, self.done = loads(packed)
        self._context.entered(hvd.rank(), hvd.size(), self.generation)
        self.watch.lap("sync")
        self._context.emit(WorldFormed(hvd.size(), root, 0, len(self.parts), self.watch.laps()))

    def forget_news(self) -> None:
        """The next world takes all news of hosts so far into account."""
        self._hosts_changed = False

    def on_hosts_updated(self, timestamp: int, update_res: Any) -> None:
        self._hosts_changed = True

    def on_reset(self) -> None:
        """Nothing is stale."""

    def save(self) -> None:
        """Nothing to copy: rounds are only ever added."""

    def restore(self) -> None:
        """Nothing is half done: a round is added whole."""


def _first_of(model: keras.Model) -> Callable[[Any], Any]:
    """Return the model's outputs as a function of (x, ...)."""

    def compute(samples: Any) -> Any:
        x, _, _ = keras.utils.unpack_x_y_sample_weight(samples)
        return model(x, training=False)

    return compute
