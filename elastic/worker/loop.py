"""The elastic loop: run a function again after each reset, until it returns.

This is `hvd.elastic.run` with one thing mended: there, a failed *grouped* collective is not
recognised; the wrapper swallows the error, the function "returns" None, the survivor exits 0 and
the driver counts a success. Here every failed Horovod op is a lost collective, and anything else
propagates.
"""

import functools
from collections.abc import Callable
from typing import Any, TypeVar

from horovod.common.elastic import run_fn

from elastic.worker.collective import collectives
from elastic.worker.world import reenter

T = TypeVar("T")


def run(
    function: Callable[..., T],
    *,
    reset: Callable[[], Any] = reenter,
    on_lost: Callable[[str], None] | None = None,
) -> Callable[..., T]:
    """Decorate `function(state, ...)` to be run in every world of an elastic job.

    `state.sync()` comes before each run; a lost collective leads to `state.restore()`, `reset` and
    another run; a change of hosts (`HostsUpdatedInterrupt`) to `reset` and another run.

    Args:
        function: takes an `hvd.elastic` state first, and must not be the first to use a collective.
        reset: leaves the world and joins the next.
        on_lost: hears of each lost collective, what the error says.
    """

    @functools.wraps(function)
    def recognising(state: Any, *args: Any, **kwargs: Any) -> T:
        with collectives(on_lost):
            return function(state, *args, **kwargs)

    return run_fn(recognising, reset)  # type: ignore[no-any-return]
