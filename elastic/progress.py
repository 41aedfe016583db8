"""How far training has come: one value that the loop, the state, commits and events carry."""

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True, order=True)
class Progress:
    """A point of training; ordered, so that the most advanced of several is `max`.

    Attributes:
        epoch: index of the epoch in progress, from 0; equal to the number of finished ones.
        consumed: samples of this epoch that completed steps have used, over all workers.
        epoch_step: completed steps of this epoch.
        step: completed optimizer steps since the start of training.
        samples: samples used since the start of training, over all workers.
    """

    epoch: int = 0
    consumed: int = 0
    epoch_step: int = 0
    step: int = 0
    samples: int = 0

    def after_step(self, samples: int) -> "Progress":
        """Return the progress after one more step that used `samples` samples in all."""
        return Progress(
            epoch=self.epoch,
            consumed=self.consumed + samples,
            epoch_step=self.epoch_step + 1,
            step=self.step + 1,
            samples=self.samples + samples,
        )

    def after_epoch(self) -> "Progress":
        """Return the progress at the start of the next epoch."""
        return replace(self, epoch=self.epoch + 1, consumed=0, epoch_step=0)
