"""What a training is made of, and how it may end early."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import horovod.tensorflow as hvd
import keras
import numpy as np

from elastic.channel import Pulse
from elastic.config import Config
from elastic.events import Event
from elastic.worker import order
from elastic.worker.audit import AuditLog
from elastic.worker.callbacks import Callbacks
from elastic.worker.elements_feed import ElementsFeed
from elastic.worker.feed import Feed
from elastic.worker.next_world import NextWorld
from elastic.worker.optimizer import Reduction
from elastic.worker.saving import Saver
from elastic.worker.step import Steps


class Drained(Exception):
    """This worker leaves after a completed step, because it was asked to."""

    def __init__(self, whole_job: bool) -> None:
        super().__init__("drained")
        self.whole_job = whole_job


@dataclass(frozen=True)
class Parts:
    """What a training is made of."""

    config: Config
    model: keras.Model
    feed: Feed | ElementsFeed
    validation: Feed | ElementsFeed | None
    validation_freq: int
    steps: Steps
    reduction: Reduction
    callbacks: Callbacks
    saver: Saver
    audit: AuditLog | None
    pulse: Pulse
    emit: Callable[[Event], None]
    entered: Callable[[int, int, int], None]
    draining: Callable[[], str | None]
    next_world: NextWorld
    say: Callable[[str], None]


def cut(config: Config, n: int, consumed: int) -> order.Cut:
    """Cut what is left of an epoch of n samples, for this worker in its present world."""
    return order.cut(
        n,
        consumed,
        config.batch.total(hvd.size()),
        hvd.rank(),
        hvd.size(),
        config.drop_last,
        shards=config.shards if config.deterministic else None,
        micro=config.batch.micro,
    )


def plain_logs(logs: Any) -> dict[str, Any]:
    """Return logs as floats (and lists, for metrics with several values)."""
    arrays = {name: np.asarray(keras.ops.convert_to_numpy(value)) for name, value in logs.items()}
    return {name: float(a) if a.ndim == 0 else a.tolist() for name, a in arrays.items()}


def scalars_of(logs: Any) -> dict[str, float]:
    """Return what of a step's logs, whatever a custom `train_step` returns, is a single number."""
    if not isinstance(logs, Mapping):
        return {}
    return {name: float(value) for name, value in logs.items() if getattr(value, "shape", None) == ()}
