"""What a standby does before it waits: one real step, without a trace.

Importing TensorFlow, tracing the step and Horovod's first init cost seconds; a standby has paid
them. Everything the step touched is put back: weights, optimizer, metrics, seed generators,
Python's and NumPy's random states.
"""

import random

import keras
import numpy as np
import tensorflow as tf

from elastic.config import Config
from elastic.worker import order, world
from elastic.worker.collective import sum_arrays
from elastic.worker.elements_feed import ElementsFeed
from elastic.worker.feed import Feed
from elastic.worker.optimizer import Reduction
from elastic.worker.state import assign_all, exchange
from elastic.worker.step import Steps


def warm_up(
    model: keras.Model,
    steps: Steps,
    reduction: Reduction,
    feeds: tuple[Feed | ElementsFeed, Feed | ElementsFeed | None],
    config: Config,
) -> None:
    """Do one training and one validation step on the job's first samples, and undo them."""
    touched = [v.value for v in {id(v): v for v in _variables(model)}.values()]
    touched += [reduction.share, reduction.seen, reduction.arrived]
    before = [tf.identity(v) for v in touched]
    chances = random.getstate(), np.random.get_state()  # noqa: NPY002 - the user's scripts use it
    training, validation = feeds
    n = len(training.source)
    world.enter(world.Entry.ALONE, {})
    try:
        for _ in range(2):  # the second goes the way of every later one
            steps.train(training.training(order.cut(n, 0, config.batch.total(1), 0, 1), config.seed, 0))
        if validation is not None:
            steps.validate(validation.validation(0, 1, 1))
        exchange((0,), touched, b"", "warmup")
        sum_arrays([v.numpy() for v in model.metrics_variables], "warmup.metrics")
    finally:
        world.leave()
        assign_all(touched, before)
        random.setstate(chances[0])
        np.random.set_state(chances[1])  # noqa: NPY002


def _variables(model: keras.Model) -> list[keras.Variable]:
    return [*model.variables, *model.optimizer.variables, *model.metrics_variables]
