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
from elastic.worker.data import Source, training_batches, validation_batches
from elastic.worker.optimizer import Reduction
from elastic.worker.state import assign_all
from elastic.worker.step import Steps


def warm_up(model: keras.Model, steps: Steps, reduction: Reduction, source: Source, config: Config) -> None:
    """Do one training and one validation step on the job's first samples, and undo them."""
    touched = [v.value for v in {id(v): v for v in _variables(model)}.values()]
    touched += [reduction.share, reduction.seen, reduction.arrived]
    before = [tf.identity(v) for v in touched]
    chances = random.getstate(), np.random.get_state()  # noqa: NPY002 - the user's scripts use it
    part = order.cut(len(source), 0, min(len(source), config.batch.total(1)), 0, 1)
    world.enter(world.Entry.ALONE, {})
    try:
        steps.train(iter(training_batches(source, part, config.seed, 0, 0)))
        steps.validate(iter(validation_batches(source, 0, 1, 1)))
    finally:
        world.leave()
        assign_all(touched, before)
        random.setstate(chances[0])
        np.random.set_state(chances[1])  # noqa: NPY002


def _variables(model: keras.Model) -> list[keras.Variable]:
    return [*model.variables, *model.optimizer.variables, *model.metrics_variables]
