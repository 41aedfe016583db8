"""This process's part in the worlds of its job: how it joins, changes over, leaves and ends."""

import sys
from collections.abc import Callable

import horovod.tensorflow as hvd

from elastic.channel import Entering, Finished, Go, Left, Phase
from elastic.errors import ExitCode
from elastic.events import CollectiveFailed
from elastic.worker import world
from elastic.worker.context import Context
from elastic.worker.stopwatch import Stopwatch


class Membership:
    """One for each elastic call of the user's (`fit`, `predict`).

    Args:
        context: of this process.
        watch: told the phases of each entry into a world.
    """

    def __init__(self, context: Context, watch: Stopwatch) -> None:
        self._context = context
        self._watch = watch

    def join(self) -> Go | None:
        """Wait to be given a slot and enter its world; return the slot, None where there is no launcher."""
        go = self._context.wait_for_slot()
        self._watch.start()
        self._context.pulse.enter(Phase.ENTERING)
        self._context.tell(Entering())
        world.enter(world.Entry(go.entry) if go else world.Entry.ALONE, go.env if go else {})
        self._context.pulse.enter(Phase.SYNCING)
        self._watch.lap("rendezvous")
        return go

    def change_over(self, put_by: Callable[[], None]) -> None:
        """Leave the world for the next one.

        Args:
            put_by: keeps the state safe, first of all: this may be the last worker that holds it.
        """
        self._context.pulse.enter(Phase.SAVING)
        put_by()
        self._context.pulse.enter(Phase.ENTERING)
        world.leave()
        self._watch.lap("leave")
        self._context.tell(Entering())
        world.rejoin()
        self._watch.lap("rendezvous")
        self._context.pulse.enter(Phase.SYNCING)

    def lost(self, step: int, error: str) -> None:
        """Note that a collective after `step` has failed."""
        self._context.emit(CollectiveFailed(step, error))
        self._watch.start()

    def leave(self, *, whole_job: bool) -> None:
        """End this process, which was told to go; the job goes on unless `whole_job`."""
        self._context.pulse.enter(Phase.ENDING)
        world.leave()
        self._context.tell(Left(whole_job))
        sys.exit(ExitCode.TERMINATED if whole_job else ExitCode.SLOT_LOST)

    def done(self) -> None:
        """The goal is reached: return on rank 0, end this process on every other."""
        rank = hvd.rank()
        world.leave()
        if rank != 0:
            self._context.tell(Finished())
            sys.exit(ExitCode.GOAL_REACHED)
        self._context.goal_reached = True
        self._context.pulse.enter(Phase.AFTER)
