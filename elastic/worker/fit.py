"""`elastic.fit`: what `model.fit` is for one machine, for workers that come and go."""

import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import horovod.tensorflow as hvd
import keras
import numpy as np
from numpy.typing import NDArray

from elastic.channel import Go
from elastic.config import Batch, Config
from elastic.errors import ConfigError
from elastic.events import Event
from elastic.worker.audit import AuditLog
from elastic.worker.augment import PerSample
from elastic.worker.callbacks import Callbacks
from elastic.worker.context import Context, current
from elastic.worker.data import Source, as_source, split
from elastic.worker.elements_feed import feed_of
from elastic.worker.loop import run
from elastic.worker.membership import Membership
from elastic.worker.mirror import store_of
from elastic.worker.optimizer import Reduction, distribute
from elastic.worker.parts import Drained, Parts
from elastic.worker.saving import Saver
from elastic.worker.scalars import Scalars
from elastic.worker.shards import ShardSteps
from elastic.worker.stash import Remains, Stash
from elastic.worker.step import Fed, Steps, build
from elastic.worker.stopwatch import Stopwatch
from elastic.worker.training import Training
from elastic.worker.training_state import TrainingState
from elastic.worker.warmup import warm_up

log = logging.getLogger("elastic")


@dataclass(frozen=True)
class Request:
    """The arguments of one `fit`, read and checked."""

    config: Config
    model: keras.Model
    source: Source
    validation: Source | None
    validation_freq: int
    callbacks: tuple[keras.callbacks.Callback, ...]
    verbose: int
    augment: PerSample | None


def fit(
    model: keras.Model,
    data: Any,
    y: Any = None,
    *,
    epochs: int | None = None,
    batch_size: int | None = None,
    validation_data: Any = None,
    validation_split: float = 0.0,
    validation_freq: int = 1,
    sample_weight: Any = None,
    map: Callable[..., Any] | None = None,  # noqa: A002 - what tf.data and the configuration call it
    callbacks: Sequence[keras.callbacks.Callback] = (),
    verbose: Any = "auto",
    shuffle: bool = True,
    **unsupported: Any,
) -> keras.callbacks.History:
    """Train `model` as `model.fit` does, on however many workers there are.

    Started by `elastic run` or another launcher, every worker calls it; it returns on rank 0 when
    the goal is reached, and the other workers end there, so that what follows in a script runs
    once. Without a launcher it trains in this process alone.

    Args:
        model: compiled; its optimizer reduces gradients over all workers from here on.
        data: x, or (x, y), or (x, y, sample_weight) as arrays; an object with `__len__` and
            `__getitem__(indices) -> (x, y, ...)`, such as `TFRecordFiles` or `ImageFolder`; or a
            `tf.data.Dataset`, which every worker must read through.
        y, sample_weight: when `data` is x alone.
        map: `(seed, x, y, ...) -> (x, y, ...)` as TensorFlow ops on one sample, applied to training
            samples. `seed`, int32 [2], is for stateless random ops (`tf.image.stateless_random_crop`,
            `tf.random.stateless_uniform`) and depends on the job's seed, the epoch and the sample
            alone, so that augmentation is the same whoever reads the sample.
        epochs: by default the job's configuration says.
        batch_size: samples of one step over *all* workers, as on one machine; by default the
            job's configuration says.
        validation_data: like `data`; each worker validates its part, the metrics are of the whole.
        validation_split: the last part of the arrays, kept for validation.
        validation_freq: validate after each so many epochs.
        callbacks: Keras callbacks; writers run on rank 0 alone (see `elastic.rank_zero`).
        verbose: 0 prints nothing.
        shuffle: must stay True: the order is one seeded permutation an epoch.

    Returns:
        The history, over all epochs, of whoever lived through them.

    Raises:
        ConfigError: when an argument cannot be served, with what to do instead.
    """
    if unsupported:
        names = ", ".join(sorted(unsupported))
        raise ConfigError(f"elastic.fit does not take {names}; see help(elastic.fit) for what it takes")
    if not shuffle:
        raise ConfigError("elastic.fit: shuffle=False is not supported; the order is a seeded permutation an epoch")
    if any(isinstance(c, keras.callbacks.BackupAndRestore) for c in callbacks or ()):
        raise ConfigError("elastic.fit: BackupAndRestore is not needed: a job goes on from its own checkpoints")
    context = current()
    source = as_source(data, y, sample_weight)
    validation = None if validation_data is None else as_source(validation_data)
    if validation is not None and not len(validation):
        validation = None
    if validation_split and validation is None:
        source, validation = split(source, validation_split)
    if not len(source):
        raise ConfigError("data: found 0 samples, expected at least one")
    request = Request(
        config=_config(context.config, epochs, batch_size),
        model=model,
        source=source,
        validation=validation,
        validation_freq=validation_freq,
        callbacks=tuple(callbacks or ()),
        verbose=0 if verbose == 0 else 1,
        augment=PerSample(map) if map is not None else None,
    )
    return _Fit(request, context).run()


def _config(config: Config, epochs: int | None, batch_size: int | None) -> Config:
    named: dict[str, Any] = {}
    if epochs is not None:
        named["epochs"] = epochs
    if batch_size is not None:
        named["batch"] = Batch.model_validate({"global": batch_size, "micro": config.batch.micro})
    return config.model_copy(update=named)


class _Fit:
    """The pieces of one `fit`, put together in the order that a standby needs."""

    def __init__(self, request: Request, context: Context) -> None:
        self._request = request
        self._context = context
        self._config = request.config
        self._watch = Stopwatch()
        self._membership = Membership(context, self._watch)
        self._audit: AuditLog | None = None
        self._reduction = Reduction(fp16=self._config.compression == "fp16")

    def run(self) -> keras.callbacks.History:
        request, context = self._request, self._context
        self._feed = feed_of(request.source, request.augment)
        _prepare_model(request.model, self._feed.example(), self._reduction)
        self._validation = feed_of(request.validation) if request.validation is not None else None
        steps = _steps(self._config, request.model, self._reduction, self._fed if self._config.audit else None)
        context.in_collective = steps.in_collective
        if context.level == "step":
            warm_up(request.model, steps, self._reduction, (self._feed, self._validation), self._config)
        training, state = self._assemble(steps, self._membership.join())
        try:
            reset = partial(self._reset, training, state)
            run(training.run, reset=reset, on_lost=lambda error: self._membership.lost(state.at.step, error))(state)
        except Drained as drained:
            self._membership.leave(whole_job=drained.whole_job)
        self._membership.done()
        return training.history

    def _fed(self, indices: NDArray[np.int64]) -> None:
        if self._audit is not None:  # there is none while warming up
            self._audit.fed(indices)

    def _reset(self, training: Training, state: TrainingState) -> None:
        def put_by() -> None:
            state.put_by()
            training.before_reset(state)

        self._membership.change_over(put_by)

    def _sinks(self) -> Callable[[Event], None]:
        """Return what takes this worker's facts: its log, and TensorBoard's scalars."""
        context = self._context
        if not self._config.tensorboard or context.run_dir is None:
            return context.emit
        scalars = Scalars(str(context.run_dir.tensorboard), lambda: hvd.rank() == 0)

        def emit(event: Event) -> None:
            context.emit(event)
            scalars.emit(event)

        return emit

    def _assemble(self, steps: Steps, go: Go | None) -> tuple[Training, TrainingState]:
        request, context, config = self._request, self._context, self._config
        store = store_of(context.run_dir, config.checkpoint) if context.run_dir else None
        mine = [*request.callbacks, *context.callbacks]
        params = {"epochs": config.epochs, "steps": None, "verbose": request.verbose}
        callbacks = Callbacks(mine, request.model, params, lambda: hvd.rank() == 0)
        state = TrainingState(request.model, steps, callbacks, store, context.emit)
        state.samples = len(request.source), len(request.validation or ())
        if go is not None:
            state.generation = go.generation
            state.stash = Stash(f"/proc/{go.agent_pid}/fd/{go.stash_fd}")
            state.remains = Remains(state.stash, context.run_dir.stash if context.run_dir else None)
        if config.audit and context.run_dir is not None and go is not None:
            self._audit = AuditLog(context.run_dir.audit, f"{go.host}-{go.slot}-{os.getpid()}")
        parts = Parts(
            config=config,
            model=request.model,
            feed=self._feed,
            validation=self._validation,
            validation_freq=request.validation_freq,
            steps=steps,
            reduction=self._reduction,
            callbacks=callbacks,
            audit=self._audit,
            saver=Saver(store, config.checkpoint, context.emit),
            pulse=context.pulse,
            emit=self._sinks(),
            entered=context.entered,
            draining=lambda: context.draining,
            next_world=context.next_world,
            say=print if request.verbose and not context.quiet else lambda _: None,
        )
        return Training(parts, self._watch), state


def _steps(config: Config, model: keras.Model, reduction: Reduction, fed: Fed | None) -> Steps:
    if config.deterministic:
        return ShardSteps(model, reduction, fed, shards=config.shards, seed=config.seed)
    return Steps(model, reduction, fed)


def _prepare_model(model: keras.Model, example: Any, reduction: Reduction) -> None:
    """Make the model ready for steps that reduce gradients; nothing random or trained changes.

    Args:
        example: a batch of training samples.
    """
    if not getattr(model, "compiled", False) or model.optimizer is None:
        raise ConfigError("elastic.fit: the model is not compiled; call model.compile(optimizer=..., loss=...) first")
    if model.jit_compile:
        log.info("jit_compile is switched off: Horovod's ops have no XLA kernels")
    model.jit_compile = False
    build(model, example)
    distribute(model.optimizer, reduction=reduction)
