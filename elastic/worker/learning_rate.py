"""How the learning rate follows the world size: one pure function."""

import math

from elastic.config import LearningRate


def scale(policy: LearningRate, size: int, step: int) -> float:
    """Return what the optimizer's own rate is multiplied by.

    The rate for one worker grows to that for `size` workers linearly over the first
    `warmup_steps` steps of training (Goyal et al., 2017, "Accurate, Large Minibatch SGD").
    It depends on the present size and step alone, so resizes leave no trace.
    """
    full = {"linear": float(size), "sqrt": math.sqrt(size), "none": 1.0}[policy.scale]
    if step >= policy.warmup_steps:
        return full
    return 1.0 + (full - 1.0) * step / policy.warmup_steps
