"""Which samples a worker feeds into which step: pure functions, the same on every rank.

An epoch is one permutation of all samples that depends on the seed and the epoch alone. Its
positions are cut into global batches, and each global batch into one run of positions a rank.
A resize cuts the rest of the epoch anew.

The permutation is a keyed bijection, a Feistel network on the smallest even number of bits that
holds n, walked in cycles until the value falls below n (Black and Rogaway, "Ciphers with
arbitrary finite domains", 2002). It needs no memory beyond the positions that are asked for.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_ROUNDS = 6
_MIX = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))


def permute(positions: NDArray[np.int64], n: int, seed: int, epoch: int) -> NDArray[np.int64]:
    """Return the sample index at each position of an epoch's order.

    Args:
        positions: integers in [0, n).
        n: the number of samples.
        seed: of the job.
        epoch: from 0.
    """
    if n <= 1:
        return np.zeros(len(positions), np.int64)
    half = max(1, ((n - 1).bit_length() + 1) // 2)
    source = np.random.SeedSequence([seed & 0xFFFFFFFFFFFFFFFF, epoch])
    keys = source.generate_state(_ROUNDS, np.uint64).astype(np.uint64)
    values = _feistel(positions.astype(np.uint64), half, keys)
    while (outside := np.flatnonzero(values >= np.uint64(n))).size:
        values[outside] = _feistel(values[outside], half, keys)
    return values.astype(np.int64)


def _feistel(values: NDArray[np.uint64], half: int, keys: NDArray[np.uint64]) -> NDArray[np.uint64]:
    bits, mask = np.uint64(half), np.uint64((1 << half) - 1)
    left, right = values >> bits, values & mask
    for key in keys:
        mixed = (right + key) * _MIX[0]
        mixed = (mixed ^ (mixed >> np.uint64(30))) * _MIX[1]
        mixed = (mixed ^ (mixed >> np.uint64(27))) * _MIX[2]
        left, right = right, left ^ ((mixed ^ (mixed >> np.uint64(31))) & mask)
    return (left << bits) | right


@dataclass(frozen=True, slots=True)
class Cut:
    """The rest of an epoch for one rank; arrays have one entry a step.

    Attributes:
        low, high: positions [low, high) of the epoch's order that this rank feeds.
        total: samples of the step over all ranks.
    """

    low: NDArray[np.int64]
    high: NDArray[np.int64]
    total: NDArray[np.int64]

    @property
    def steps(self) -> int:
        return len(self.low)


def owed(n: int, batch: int, drop_last: bool) -> int:
    """Return how many samples of an epoch of n are to be used."""
    return n - n % batch if drop_last else n


def cut(n: int, consumed: int, batch: int, rank: int, size: int, drop_last: bool = False) -> Cut:
    """Cut what is left of an epoch.

    Every rank gets the same number of steps. A step's samples are dealt out in runs whose
    lengths differ by one at most; a rank may get none of a small last batch (low == high).

    Args:
        n: samples of the epoch.
        consumed: samples that completed steps have used.
        batch: samples of a full step over all ranks.
        rank, size: of this worker in its world.
        drop_last: leave out a last batch that is not full.
    """
    end = n - (n - consumed) % batch if drop_last else n
    starts = np.arange(consumed, end, batch, dtype=np.int64)
    total = np.minimum(batch, end - starts)
    return Cut(starts + total * rank // size, starts + total * (rank + 1) // size, total)


def shard(n: int, rank: int, size: int) -> tuple[int, int]:
    """Return the run [low, high) of n samples that a rank validates."""
    return n * rank // size, n * (rank + 1) // size
