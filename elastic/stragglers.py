"""Which worker holds the others up: a pure verdict on what each needs of a step for itself.

In data-parallel training all wait for the slowest, so whole steps take equally long everywhere;
what tells workers apart is the time until a worker's own gradients are ready (see `worker.own_time`).
"""

import statistics
from collections.abc import Collection, Mapping
from dataclasses import dataclass

FACTOR = 1.5  # times the median of the peers
AGAIN = 1.2  # below this a straggler has caught up
LEAST_S = 0.005  # what costs less than this a step is not worth a word
STEPS = 20  # a worker's own time is the median over so many


@dataclass(frozen=True, slots=True)
class Straggler:
    """A worker that needs `own_s` of a step for itself where its peers need `peers_s`, their median."""

    rank: int
    own_s: float
    peers_s: float


def stragglers(own_s: Mapping[int, float], known: Collection[int] = ()) -> list[Straggler]:
    """Return who is slower than its peers, by rank.

    Args:
        own_s: by rank, the median over the last `STEPS` steps; 0 while a worker has done fewer.
        known: ranks that were stragglers before; they stay so until they have clearly caught up.
    """
    if len(own_s) < 2 or any(own <= 0.0 for own in own_s.values()):
        return []
    found = []
    for rank, own in sorted(own_s.items()):
        peers = statistics.median(other for peer, other in own_s.items() if peer != rank)
        if own > peers * (AGAIN if rank in known else FACTOR) and own - peers > LEAST_S:
            found.append(Straggler(rank, own, peers))
    return found
