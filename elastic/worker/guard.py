"""Take back what a forward pass changed, when its step did not complete.

The optimizer's update is atomic (see `optimizer`), but the forward pass of a step that fails in
its collective has already moved BatchNorm statistics, seed generators and metrics. A guard keeps
their values from before the step, in the step's own graph, and puts them back.
"""

from typing import Any

import keras
import tensorflow as tf

from elastic.worker.scratch import scratch
from elastic.worker.seeds import seed_states
from elastic.worker.writes import written


class StepGuard:
    """Copies of the variables that a forward pass changes, out of all that are not trained.

    Which those are is seen in the functions that `watch` is given: the weights of a frozen
    backbone are never trained and never changed, and nobody wants to copy them in each step.

    Args:
        model: built and compiled, its metrics included.
    """

    def __init__(self, model: keras.Model) -> None:
        trained = {id(v) for v in model.trainable_variables}
        rest = [v.value for v in [*model.variables, *model.metrics_variables] if id(v) not in trained]
        self._candidates = list({id(v): v for v in [*rest, *seed_states(model)]}.values())
        self._of_metrics = {id(v.value) for v in model.metrics_variables}
        self._live: list[tf.Variable] = []
        self._kept: list[tf.Variable] = []

    def watch(self, function: Any = None) -> bool:
        """Keep from here on what a concrete function may change; everything if there is none to look at.

        Until `keep` runs, the present values count as kept.

        Returns:
            Whether that is more than before: ops made by earlier calls of `keep` then leave some out.
        """
        handles = None if function is None else {id(handle) for handle in written(function)}
        known = {id(v) for v in self._live}
        new = [v for v in self._candidates if id(v) not in known and (handles is None or id(v.handle) in handles)]
        self._kept += [scratch(v, "kept") for v in new]
        self._live += new
        return bool(new)

    @property
    def pairs(self) -> list[tuple[tf.Variable, tf.Variable]]:
        """What is kept: each variable and its copy."""
        return list(zip(self._live, self._kept, strict=True))

    @property
    def statistics(self) -> list[tf.Variable]:
        """Those of the kept that are floats of layers: what BatchNorm and its like have seen."""
        return [v for v in self._live if v.dtype.is_floating and id(v) not in self._of_metrics]

    @property
    def watching(self) -> bool:
        """Whether there is anything to keep."""
        return bool(self._live)

    def keep(self) -> list[Any]:
        """Copy the live values; returns ops that the step's own must wait for."""
        return [kept.assign(live) for kept, live in zip(self._kept, self._live, strict=True)]

    def put_back(self) -> None:
        """Give the live variables the values that were kept last."""
        for kept, live in zip(self._kept, self._live, strict=True):
            live.assign(kept)
