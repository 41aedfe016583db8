"""The training loop: epochs, steps, validation, commits, in whatever world there is.

`Training.run` is entered anew after each reset, by `loop.run`, and goes on where the state says.
Everything that workers must do alike (number of steps, collectives, interrupts) follows from the
state that `sync` has made equal and from the signals that travel with each step's gradients.
"""

import hashlib
import time
from typing import Any

import horovod.tensorflow as hvd
import keras
import numpy as np
from horovod.common.exceptions import HostsUpdatedInterrupt

from elastic.channel import Phase
from elastic.events import (
    Committed,
    EpochEnded,
    FirstStepDone,
    HostsChanged,
    JobFinished,
    Progressed,
    WeightsHashed,
    WorldFormed,
)
from elastic.worker import learning_rate, order
from elastic.worker.collective import broadcast_bytes, dumps, gather_rows, loads, sum_arrays
from elastic.worker.evaluation import evaluate
from elastic.worker.optimizer import Signal
from elastic.worker.parts import Drained, Parts, cut, plain_logs, scalars_of
from elastic.worker.stopwatch import Stopwatch
from elastic.worker.training_state import Stage, TrainingState

PROGRESS_PERIOD_S = 1.0
GATHER_LEAVERS_S = 0.5  # a job that is stopped has all its workers told within this time


class Training:
    """One `fit` in this process."""

    def __init__(self, parts: Parts, watch: Stopwatch) -> None:
        self._p = parts
        self._watch = watch
        self._begun = False
        self._scale = 1.0
        self._first_step_pending = True
        self._stepped = False
        self._raised = [0.0] * len(Signal)
        self._progress_at = (0.0, 0)
        self._epoch_began = 0.0
        self._last_step_at: float | None = None
        self._leave_since: float | None = None
        self._told = 0

    def run(self, state: TrainingState) -> None:
        """Train until the goal is reached, from wherever the state is."""
        self._settle(state)
        while state.at.epoch < self._p.config.epochs and not self._p.model.stop_training:
            self._epoch(state)
        self._finish(state)

    @property
    def history(self) -> keras.callbacks.History:
        """What the epochs came to."""
        return self._p.callbacks.history

    def before_reset(self, state: TrainingState) -> None:
        """Forget what the next rendezvous makes stale: news of hosts too, unless that world was made before it."""
        if not self._p.next_world.asked:
            state.hosts.settle(state.hosts.told)
        self._p.next_world.forget()

    def _settle(self, state: TrainingState) -> None:
        p, agreed = self._p, state.agreement
        p.entered(hvd.rank(), hvd.size(), state.generation)
        self._watch.lap("sync")
        p.emit(
            WorldFormed(
                size=hvd.size(),
                root=agreed.root,
                epoch=state.at.epoch,
                step=state.at.step,
                phases_s=self._watch.laps(),
            )
        )
        if p.audit is not None:
            p.audit.world(state.generation, state.at)
        if not self._begun:
            p.callbacks.begin(agreed.resumed)
            if agreed.resumed:
                p.callbacks.apply(state.remembered)
            self._begun = True
        p.callbacks.settle()
        p.steps.own.begin()
        self._first_step_pending = True
        self._progress_at = (time.monotonic(), state.at.samples)
        self._raise_signals([0.0] * len(Signal))
        self._leave_since = None

    def _epoch(self, state: TrainingState) -> None:
        p, n, epoch = self._p, len(self._p.feed.source), state.at.epoch
        if state.stage is Stage.NEW:
            p.model.reset_metrics()
            p.callbacks.call("on_epoch_begin", epoch)
            state.stage = Stage.BEGUN
        self._epoch_began = self._epoch_began or time.monotonic()
        if state.stage is Stage.BEGUN:
            part = cut(p.config, n, state.at.consumed)
            batches = p.feed.training(part, p.config.seed, epoch)
            with p.feed.named():
                for step in range(part.steps):
                    self._step(state, batches, part.total(step), part.pieces(step))
                    if p.model.stop_training:
                        break
            p.pulse.enter(Phase.SYNCING)
            p.steps.join(batches)
            p.pulse.enter(Phase.USER)
            state.epoch_logs = plain_logs(p.model.get_metrics_result())
            state.stage = Stage.TRAINED
            owed = order.owed(n, p.config.batch.total(hvd.size()), p.config.drop_last)
            if p.audit is not None and state.at.consumed == owed:  # not stopped in the middle
                p.audit.ended(state.at, n, owed)
        logs = dict(state.epoch_logs)
        if p.validation is not None and (epoch + 1) % p.validation_freq == 0:
            logs |= {f"val_{name}": value for name, value in evaluate(p, p.validation, state.at.step).items()}
        p.pulse.enter(Phase.USER)
        p.callbacks.call("on_epoch_end", epoch, logs)
        state.at, state.stage = state.at.after_epoch(), Stage.NEW
        if p.audit is not None:
            p.audit.epoch(state.at)
        self._report_epoch(state, epoch, logs)
        self._commit(state)
        self._share_writers()

    def _step(self, state: TrainingState, batches: Any, samples: int, pieces: int) -> None:
        p, index = self._p, state.at.epoch_step
        p.callbacks.call("on_train_batch_begin", index)
        self._scale_learning_rate(state.at.step)
        self._raise_signals(self._signals(state))
        p.pulse.enter(Phase.STEPPING if self._stepped and p.steps.traced(pieces) else Phase.COMPILING)
        logs, seen = p.steps.train(batches, pieces, state.at.step)
        self._stepped = True
        state.at = state.at.after_step(samples)
        if p.audit is not None:
            p.audit.done(state.at)
        p.pulse.step_done(state.at.step)
        p.pulse.own_time(p.steps.own.median_s)
        if self._first_step_pending:
            self._report_first_step(state)
        self._last_step_at = time.monotonic()
        if p.callbacks.has("on_train_batch_end"):
            p.callbacks.call("on_train_batch_end", index, plain_logs(logs))
        self._report_progress(state, logs)
        if hvd.rank() == 0:
            p.saver.after_step(state)
        if seen.any():
            self._obey(state, seen)
        every = p.config.commit.steps
        if every and state.at.epoch_step % every == 0:
            self._commit(state)

    def _signals(self, state: TrainingState) -> list[float]:
        """Return what this worker tells all others with its next step (see `optimizer.Signal`)."""
        p, hosts = self._p, state.hosts
        self._told = hosts.told
        # A newcomer that is on its way is let come first, but for one that may have been taken away.
        changed = p.next_world.late or (hosts.open and (hosts.removed or not p.next_world.asked))
        drain = p.draining() is not None
        return [float(changed), float(drain), float(self._time_to_leave()), float(p.next_world.ready)]

    def _obey(self, state: TrainingState, seen: Any) -> None:
        """Act on the workers' signals, which all of them saw after this same step."""
        leaving = round(float(seen[Signal.DRAIN]))
        if leaving:
            self._leave_since = self._leave_since or time.monotonic()
            if leaving < hvd.size() and not seen[Signal.LEAVE]:
                return  # others may be told to leave just now; rank 0 says when all have been heard
            if hvd.rank() == 0:
                self._p.saver.save_now(state)  # if it is the whole job that stops, this is what it goes on from
            self._hash_weights(state)
            if leaving == hvd.size() or self._raised[Signal.DRAIN]:
                raise Drained(whole_job=leaving == hvd.size())
        elif not seen[Signal.NEXT_WORLD]:
            self._p.emit(HostsChanged(state.at.step))
            state.hosts.settle(self._told)
            if self._p.next_world.ask(state.generation):
                return  # and train on until it is there
        else:
            self._p.next_world.go_over(state.generation)
        self._watch.start()
        raise HostsUpdatedInterrupt(False)

    def _time_to_leave(self) -> bool:
        since = self._leave_since
        return hvd.rank() == 0 and since is not None and time.monotonic() - since > GATHER_LEAVERS_S

    def _raise_signals(self, signals: list[float]) -> None:
        if signals != self._raised:
            self._p.reduction.raised.assign(signals)
            self._raised = signals

    def _scale_learning_rate(self, step: int) -> None:
        scale = learning_rate.scale(self._p.config.learning_rate, hvd.size(), step)
        if scale != self._scale:
            self._p.reduction.scale.assign(scale)
            self._scale = scale

    def _commit(self, state: TrainingState) -> None:
        state.commit()
        self._p.pulse.enter(Phase.SAVING)
        if hvd.rank() == 0:
            self._p.emit(Committed(state.at.epoch, state.at.step))
            self._p.saver.after_commit(state)
        self._p.pulse.enter(Phase.USER)

    def _share_writers(self) -> None:
        """Let every worker know what rank 0's writers have learned: it may be the next rank 0."""
        self._p.pulse.enter(Phase.SYNCING)
        mine = dumps(self._p.callbacks.writer_states()) if hvd.rank() == 0 else b""
        size = gather_rows([len(mine)], "writers.size")[0][0]
        self._p.callbacks.take_writer_states(loads(broadcast_bytes(mine, size, 0, "writers")))
        self._p.pulse.enter(Phase.USER)

    def _hash_weights(self, state: TrainingState) -> None:
        digest = hashlib.sha256()
        for variable in self._p.model.weights:
            digest.update(np.ascontiguousarray(variable.numpy()).data)
        self._p.emit(WeightsHashed(state.at.step, digest.hexdigest()))

    def _finish(self, state: TrainingState) -> None:
        """Record the goal as reached, then leave together: nobody may miss it."""
        p = self._p
        if p.config.epochs > 0:
            p.model.optimizer.finalize_variable_values(p.model.trainable_weights)
        p.pulse.enter(Phase.SAVING)
        self._hash_weights(state)
        if hvd.rank() == 0:
            p.saver.save_now(state)
            p.emit(self._outcome(state))
        p.pulse.enter(Phase.SYNCING)
        sum_arrays([np.ones(1)], "elastic.goal")
        p.pulse.enter(Phase.ENDING)
        p.callbacks.end(state.epoch_logs)

    def _outcome(self, state: TrainingState) -> JobFinished:
        p = self._p
        epochs = p.config.epochs if not p.model.stop_training else state.at.epoch
        per_epoch = order.owed(len(p.feed.source), p.config.batch.total(hvd.size()), p.config.drop_last)
        return JobFinished(
            epochs=state.at.epoch,
            step=state.at.step,
            samples=state.at.samples,
            samples_owed=per_epoch * epochs,
            metrics=_numbers(state.last_logs),
            stopped_early=bool(p.model.stop_training),
        )

    def _report_first_step(self, state: TrainingState) -> None:
        now = time.monotonic()
        pause = now - self._last_step_at if self._last_step_at is not None else 0.0
        self._first_step_pending = False
        state.remains.clear(files=hvd.rank() == 0)
        self._p.emit(FirstStepDone(state.at.step, round(pause, 6), round(self._watch.lap("first_step"), 6)))

    def _report_progress(self, state: TrainingState, logs: dict[str, Any]) -> None:
        now = time.monotonic()
        since, samples = self._progress_at
        if hvd.rank() != 0 or now - since < PROGRESS_PERIOD_S:
            return
        self._progress_at = (now, state.at.samples)
        at = state.at
        self._p.emit(
            Progressed(
                epoch=at.epoch,
                epochs=self._p.config.epochs,
                epoch_step=at.epoch_step,
                step=at.step,
                consumed=at.consumed,
                owed=len(self._p.feed.source),
                samples=at.samples,
                samples_per_s=round((at.samples - samples) / (now - since), 1),
                size=hvd.size(),
                metrics=scalars_of(logs),
            )
        )

    def _report_epoch(self, state: TrainingState, epoch: int, logs: dict[str, Any]) -> None:
        took, self._epoch_began = time.monotonic() - self._epoch_began, 0.0
        state.last_logs = logs
        if hvd.rank() != 0:
            return
        numbers = _numbers(logs)
        self._p.emit(EpochEnded(epoch, state.at.step, state.at.samples, numbers, round(took, 3), hvd.size()))
        words = "  ".join(f"{k} {v:.4f}" for k, v in numbers.items())
        self._p.say(f"epoch {epoch + 1}/{self._p.config.epochs}  {words}  ({hvd.size()} workers, {took:.1f} s)")


def _numbers(logs: dict[str, Any]) -> dict[str, float]:
    return {name: value for name, value in logs.items() if isinstance(value, float)}
