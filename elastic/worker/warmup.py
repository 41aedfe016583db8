"""What a standby does before it waits: real steps, without a trace.

Importing TensorFlow, tracing the step and Horovod's first init cost seconds; a standby has paid
them. Everything the steps touched is put back: weights, optimizer, metrics, seed generators,
Python's and NumPy's random states.
"""

import random
from collections.abc import Iterator

import keras
import numpy as np
import tensorflow as tf

from elastic.config import Config
from elastic.worker import order, world
from elastic.worker.elements_feed import ElementsFeed
from elastic.worker.feed import Feed
from elastic.worker.optimizer import Reduction
from elastic.worker.parts import cut
from elastic.worker.seeds import seed_states
from elastic.worker.state import assign_all, exchange
from elastic.worker.step import Steps
from elastic.worker.validation import Run


def warm_up(
    model: keras.Model,
    steps: Steps,
    reduction: Reduction,
    feeds: tuple[Feed | ElementsFeed, Feed | ElementsFeed | None],
    config: Config,
) -> None:
    """Do training and validation steps on the job's first samples, and undo them."""
    touched = list({id(v): v for v in _variables(model)}.values())
    touched += [reduction.share, reduction.seen]
    before = [tf.identity(v) for v in touched]
    chances = random.getstate(), np.random.get_state()  # noqa: NPY002 - the user's scripts use it
    training, validation = feeds
    world.enter(world.Entry.ALONE, {})
    try:
        for part in _ways(config, len(training.source)):
            for _ in range(2):  # the second goes the way of every later one
                pieces = training.training(part, config.seed, 0)
                steps.train(pieces, part.pieces(0))
        steps.join(pieces)
        if validation is not None:
            _validate(steps, validation)
        exchange((0,), touched, b"", "warmup")
    finally:
        world.leave()
        assign_all(touched, before)
        random.setstate(chances[0])
        np.random.set_state(chances[1])  # noqa: NPY002


def _ways(config: Config, n: int) -> Iterator[order.Cut]:
    """Yield epochs whose first steps are made of as many pieces as steps of this job may be: several, one."""
    usual = cut(config, n, 0)
    yield usual
    if usual.pieces(0) > 1 and config.batch.micro and not config.deterministic:
        yield order.cut(n, 0, config.batch.micro, 0, 1)


def _validate(steps: Steps, feed: Feed | ElementsFeed) -> None:
    run = Run(0, 0, 1)
    steps.validation.begin(0)
    steps.validation.begin_run(run)
    steps.validation.batch(feed.validation(run.low, run.high, 1))
    steps.validation.end_run(run)
    steps.validation.join()


def _variables(model: keras.Model) -> list[tf.Variable]:
    return [
        *(v.value for v in [*model.variables, *model.optimizer.variables, *model.metrics_variables]),
        *seed_states(model),
    ]
