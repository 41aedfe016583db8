"""Take back what a forward pass changed, when its step did not complete.

The optimizer's update is atomic (see `optimizer`), but the forward pass of a step that fails in
its collective has already moved BatchNorm statistics, seed generators and metrics. A guard keeps
their values from before the step, in the step's own graph, and puts them back.
"""

from typing import Any

import keras
import tensorflow as tf


class StepGuard:
    """Copies of the variables that a forward pass may change: all that are not trained.

    Args:
        model: built and compiled, its metrics included.
    """

    def __init__(self, model: keras.Model) -> None:
        trained = {id(v) for v in model.trainable_variables}
        watched = [v for v in model.variables if id(v) not in trained]
        known = {id(v) for v in watched}
        watched += [v for v in model.metrics_variables if id(v) not in known]
        self._live = [v.value for v in watched]
        self._kept = [tf.Variable(v, trainable=False, name="kept") for v in self._live]

    def keep(self) -> list[Any]:
        """Copy the live values; returns ops that the step's own must wait for."""
        return [kept.assign(live) for kept, live in zip(self._kept, self._live, strict=True)]

    def put_back(self) -> None:
        """Give the live variables the values that were kept last."""
        for kept, live in zip(self._kept, self._live, strict=True):
            live.assign(kept)
