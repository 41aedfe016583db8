"""TensorBoard scalars by step, as a view of rank 0's facts; without TensorBoard installed.

Besides the metrics at the ends of epochs, and rank 0's own within them (`step/...`), there are
`elastic/samples_per_s`, `elastic/world_size`, which changes where the world does, and `elastic/pause_s`, one point at
the first step after each pause that this worker lived through.
"""

import sys
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from elastic.events import EpochEnded, Event, FirstStepDone, JobFinished, Progressed, WorldFormed

# What `tf.summary.scalar` writes; that one needs TensorBoard installed, this does not.
_SCALARS = tf.compat.v1.SummaryMetadata(
    plugin_data=tf.compat.v1.SummaryMetadata.PluginData(plugin_name="scalars"),
    data_class=1,  # DATA_CLASS_SCALAR
)
FLUSH_MS = 10_000


class Scalars:
    """A sink that writes what rank 0 tells of its progress.

    What belongs to a recovery waits for the next fact of progress, so that no step waits for a file. A
    disk that refuses is reported once; training goes on without scalars.

    Args:
        folder: where TensorBoard looks.
        writes: whether this worker writes, that is, is rank 0 now.
    """

    def __init__(self, folder: str, writes: Callable[[], bool]) -> None:
        self._folder = folder
        self._writes = writes
        self._writer: Any = None
        self._waiting: list[tuple[int, str, float]] = []
        self._broken = False

    def emit(self, event: Event) -> None:
        """Take a fact of this worker's."""
        if self._broken or not self._writes():
            return
        try:
            self._take(event)
        except (tf.errors.OpError, OSError) as error:
            self._broken = True
            said = str(error).partition("\n")[0][:200]
            print(f"elastic: scalars for TensorBoard are no longer written: {said}", file=sys.stderr, flush=True)

    def _take(self, event: Event) -> None:
        match event:
            case WorldFormed(size=size, step=step):
                self._waiting.append((step, "elastic/world_size", size))
            case FirstStepDone(step=step, pause_s=pause) if pause > 0.0:
                self._waiting.append((step, "elastic/pause_s", pause))
            case Progressed(step=step, size=size, samples_per_s=pace, metrics=metrics):
                found = {"elastic/world_size": size, "elastic/samples_per_s": pace}
                self._write(step, found | {f"step/{name}": value for name, value in metrics.items()})
            case EpochEnded(step=step, metrics=metrics):
                self._write(step, metrics)
                self._writer.flush()
            case JobFinished() if self._writer is not None:
                self._writer.close()

    def _write(self, step: int, found: dict[str, float]) -> None:
        if self._writer is None:
            self._writer = tf.summary.create_file_writer(self._folder, flush_millis=FLUSH_MS)
        with self._writer.as_default():
            for at, name, value in [*self._waiting, *((step, name, value) for name, value in found.items())]:
                tf.summary.write(name, float(value), step=at, metadata=_SCALARS)
        self._waiting = []
