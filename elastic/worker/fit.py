"""`elastic.fit`: what `model.fit` is for one machine, for workers that come and go."""

import logging
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import horovod.tensorflow as hvd
import keras
import numpy as np

from elastic.channel import Entering, Finished, Go, Left, Phase
from elastic.config import Batch, Config
from elastic.errors import ConfigError, ExitCode
from elastic.events import CollectiveFailed
from elastic.worker import world
from elastic.worker.callbacks import Callbacks, rank_zero
from elastic.worker.checkpoint import CheckpointStore
from elastic.worker.context import Context, current
from elastic.worker.data import Source, as_source, split
from elastic.worker.feed import Feed
from elastic.worker.loop import run
from elastic.worker.optimizer import Reduction, distribute
from elastic.worker.parts import Drained, Parts
from elastic.worker.saving import Saver
from elastic.worker.scalars import Scalars
from elastic.worker.shards import ShardSteps
from elastic.worker.stash import Stash
from elastic.worker.step import Steps, build
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
        data: x, or (x, y), or (x, y, sample_weight) as arrays, or an object with `__len__` and
            `__getitem__(indices) -> (x, y, ...)`.
        y, sample_weight: when `data` is x alone.
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
        self._reduction = Reduction(fp16=self._config.compression == "fp16")

    def run(self) -> keras.callbacks.History:
        request, context = self._request, self._context
        _prepare_model(request.model, request.source, self._reduction)
        self._feed = Feed(request.source)
        self._validation = Feed(request.validation) if request.validation is not None else None
        steps = _steps(self._config, request.model, self._reduction)
        context.in_collective = steps.in_collective
        if context.standby and context.level == "step":
            warm_up(request.model, steps, self._reduction, (self._feed, self._validation), self._config)
        go = context.wait_for_slot()
        self._watch.start()
        self._join(world.Entry(go.entry) if go else world.Entry.ALONE, go.env if go else {})
        self._watch.lap("rendezvous")
        training, state = self._assemble(steps, go)
        try:
            reset, lost = partial(self._reset, training, state), partial(self._lost, state)
            run(training.run, reset=reset, on_lost=lost)(state)
        except Drained as drained:
            self._leave(drained.whole_job)
        return self._done(training)

    def _join(self, entry: world.Entry, env: Mapping[str, str]) -> None:
        self._context.pulse.enter(Phase.ENTERING)
        self._context.tell(Entering())
        world.enter(entry, env)
        self._context.pulse.enter(Phase.SYNCING)

    def _reset(self, training: Training, state: TrainingState) -> None:
        training.before_reset(state)
        world.leave()
        state.put_by()
        self._watch.lap("leave")
        self._context.tell(Entering())
        world.rejoin()
        self._watch.lap("rendezvous")
        self._context.pulse.enter(Phase.SYNCING)

    def _lost(self, state: TrainingState, error: str) -> None:
        self._context.emit(CollectiveFailed(state.at.step, error))
        self._watch.start()

    def _assemble(self, steps: Steps, go: Go | None) -> tuple[Training, TrainingState]:
        request, context, config = self._request, self._context, self._config
        folder = context.run_dir.checkpoints if context.run_dir else None
        store = CheckpointStore(folder, config.checkpoint.keep) if folder and config.checkpoint.enabled else None
        mine = list(request.callbacks)
        if config.tensorboard and context.run_dir is not None:
            mine.append(rank_zero(Scalars(str(context.run_dir.tensorboard))))
        params = {"epochs": config.epochs, "steps": None, "verbose": request.verbose}
        callbacks = Callbacks(mine, request.model, params, lambda: hvd.rank() == 0)
        state = TrainingState(request.model, steps, callbacks, store, context.emit)
        if go is not None:
            state.generation = go.generation
            state.stash = Stash(f"/proc/{go.agent_pid}/fd/{go.stash_fd}")
        parts = Parts(
            config=config,
            model=request.model,
            feed=self._feed,
            validation=self._validation,
            validation_freq=request.validation_freq,
            steps=steps,
            reduction=self._reduction,
            callbacks=callbacks,
            saver=Saver(store, config.checkpoint, context.emit),
            pulse=context.pulse,
            emit=context.emit,
            entered=context.entered,
            draining=lambda: context.draining,
            say=print if request.verbose and not context.quiet else lambda _: None,
        )
        return Training(parts, self._watch), state

    def _leave(self, whole_job: bool) -> None:
        self._context.pulse.enter(Phase.ENDING)
        world.leave()
        self._context.tell(Left(whole_job))
        sys.exit(ExitCode.TERMINATED if whole_job else ExitCode.SLOT_LOST)

    def _done(self, training: Training) -> keras.callbacks.History:
        rank = hvd.rank()
        world.leave()
        if rank != 0:
            self._context.tell(Finished())
            sys.exit(ExitCode.GOAL_REACHED)
        self._context.pulse.enter(Phase.AFTER)
        history: keras.callbacks.History = training.history
        return history


def _steps(config: Config, model: keras.Model, reduction: Reduction) -> Steps:
    if config.deterministic:
        return ShardSteps(model, reduction, shards=config.shards, seed=config.seed)
    return Steps(model, reduction)


def _prepare_model(model: keras.Model, source: Source, reduction: Reduction) -> None:
    """Make the model ready for steps that reduce gradients; nothing random or trained changes."""
    if not getattr(model, "compiled", False) or model.optimizer is None:
        raise ConfigError("elastic.fit: the model is not compiled; call model.compile(optimizer=..., loss=...) first")
    if model.jit_compile:
        log.info("jit_compile is switched off: Horovod's ops have no XLA kernels")
    model.jit_compile = False
    build(model, source[np.zeros(1, np.int64)])
    distribute(model.optimizer, reduction=reduction)
