"""How a process enters the world of workers.

Horovod's core asks the launcher's rendezvous for its rank only on a *second* init in a process
with HOROVOD_ELASTIC=1; a first init takes rank and size from the environment. Hence

    entry     cold process                              process that has been in a world before
    launched  init, from the environment                init with HOROVOD_ELASTIC unset, set it after
    rejoin    init and leave a world of its own,        init: it asks the rendezvous
              then init: it asks the rendezvous
    alone     init                                      init

`launched`: the launcher has just started this slot and counts on its environment; asking would
make the driver take it for ready for the *next* round. `rejoin`: the process takes the place of a
dead one; the environment is stale, and peers wait at the rendezvous.
"""

import os
from collections.abc import Mapping
from enum import StrEnum

import horovod.tensorflow as hvd

from elastic.errors import ConfigError
from elastic.worker.peers import Peers, connections

_has_been_in_a_world = False
_peers: Peers | None = None


class Entry(StrEnum):
    """How a process comes to its slot."""

    LAUNCHED = "launched"
    REJOIN = "rejoin"
    ALONE = "alone"


def enter(entry: Entry, env: Mapping[str, str]) -> None:
    """Join the world of a slot; returns when all members have met.

    Args:
        entry: see the module's table.
        env: the HOROVOD_* variables the launcher gave to the slot; empty when alone.
    """
    if entry is Entry.REJOIN and not _has_been_in_a_world:
        visit_own_world()
    os.environ.update(env)
    if entry is Entry.LAUNCHED and _has_been_in_a_world:
        elastic = os.environ.pop("HOROVOD_ELASTIC", None)
        _init()
        if elastic is not None:
            os.environ["HOROVOD_ELASTIC"] = elastic
    else:
        _init()


def visit_own_world() -> None:
    """Join a world of this process alone, and leave it."""
    _init()
    leave()


def reenter() -> None:
    """Leave the world and join the next one that the rendezvous makes."""
    leave()
    rejoin()


def rejoin() -> None:
    """Join the next world that the rendezvous makes, having left the last one."""
    _init()


def leave() -> None:
    """Leave the world; pending collectives of the peers fail."""
    global _peers
    if _peers is not None:
        _peers.close()
    _peers = None
    hvd.shutdown()


def _init() -> None:
    global _has_been_in_a_world, _peers
    if not hvd.gloo_built():
        raise ConfigError("horovod was built without Gloo, which elastic training needs; see `elastic doctor`")
    before = connections()
    hvd.init()
    _peers = Peers(connections() - before)
    _has_been_in_a_world = True
