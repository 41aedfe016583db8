"""Which samples a worker feeds into which step: pure functions, the same on every rank.

An epoch is one permutation of all samples that depends on the seed and the epoch alone. Its
positions are cut into global batches, each global batch into *shards* (one a rank, or a fixed
number of them that the ranks share out), and each shard into *pieces* that a worker computes one
after the other. A resize cuts the rest of the epoch anew.

The permutation is a keyed bijection, a Feistel network over the pairs (left, right) of a grid of
about sqrt(n) by sqrt(n) cells that holds n, walked in cycles until the value falls below n (Black
and Rogaway, "Ciphers with arbitrary finite domains", 2002, the generalised Feistel cipher). Less
than one cell in sqrt(n) lies outside, so there is next to nothing to walk. It needs no memory
beyond the positions that are asked for; `order_ops` has it as TensorFlow ops.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

ROUNDS = 6
MIX = (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9)


def keys(seed: int, epoch: int) -> NDArray[np.uint64]:
    """Return the numbers that an epoch is random by: `ROUNDS` for its order, the rest for its samples.

    Args:
        seed: of the job.
        epoch: from 0.
    """
    source = np.random.SeedSequence([seed & 0xFFFFFFFFFFFFFFFF, epoch])
    return source.generate_state(ROUNDS + 2, np.uint64).astype(np.uint64)


def grid(n: int) -> tuple[int, int]:
    """Return the sides of the smallest near-square grid with at least n cells, for n > 0."""
    rows = math.isqrt(n - 1) + 1
    return rows, -(-n // rows)


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
    of_epoch = keys(seed, epoch)
    values = _feistel(positions.astype(np.uint64), n, of_epoch)
    while (outside := np.flatnonzero(values >= np.uint64(n))).size:
        values[outside] = _feistel(values[outside], n, of_epoch)
    return values.astype(np.int64)


def _feistel(values: NDArray[np.uint64], n: int, of_epoch: NDArray[np.uint64]) -> NDArray[np.uint64]:
    rows, columns = (np.uint64(side) for side in grid(n))
    left, right = np.divmod(values, columns)
    for i in range(0, ROUNDS, 2):
        left = (left + _mixed(right, of_epoch[i])) % rows
        right = (right + _mixed(left, of_epoch[i + 1])) % columns
    return left * columns + right


def _mixed(values: NDArray[np.uint64], key: np.uint64) -> NDArray[np.uint64]:
    """Return 32 bits of each value that look random to whoever does not know the key."""
    mixed = (values + key) * np.uint64(MIX[0])
    mixed = (mixed ^ (mixed >> np.uint64(32))) * np.uint64(MIX[1])
    return mixed >> np.uint64(32)


class Run(NamedTuple):
    """What one piece feeds: samples [low, high) of its step, all of one shard.

    A stand-in (low == high) is for a rank that has no sample in the step: the sample at `low` is
    computed and thrown away, so that every rank does the same step.
    """

    low: int
    high: int
    shard: int


@dataclass(frozen=True, slots=True)
class Cut:
    """The rest of an epoch for one rank; as small for many steps as for one.

    Attributes:
        start: position in the epoch's order where the first step begins.
        batch: samples of a full step over all ranks.
        steps: of all ranks alike.
        full: the pieces of a full step, at least one.
        partial: those of a last step that is not full; empty where there is none.
        last: samples of the last step over all ranks.
    """

    start: int
    batch: int
    steps: int
    full: tuple[Run, ...]
    partial: tuple[Run, ...]
    last: int

    def total(self, step: int) -> int:
        """Return the samples of a step over all ranks."""
        return self.last if step == self.steps - 1 else self.batch

    def runs(self, step: int) -> tuple[Run, ...]:
        """Return the pieces of a step on this rank, at least one."""
        return self.partial if self.partial and step == self.steps - 1 else self.full

    def pieces(self, step: int) -> int:
        """Return how many pieces this rank computes in a step, at least one."""
        return len(self.runs(step))


def owed(n: int, batch: int, drop_last: bool) -> int:
    """Return how many samples of an epoch of n are to be used."""
    return n - n % batch if drop_last else n


def cut(
    n: int,
    consumed: int,
    batch: int,
    rank: int,
    size: int,
    drop_last: bool = False,
    *,
    shards: int | None = None,
    micro: int | None = None,
) -> Cut:
    """Cut what is left of an epoch.

    Every rank gets the same number of steps. Shard i of a step of `total` samples is the run
    [total*i//shards, total*(i+1)//shards) of it, and rank r owns the shards
    [shards*r//size, shards*(r+1)//size): the lengths of shards, and the shares of ranks, differ by
    one at most. Shards without a sample have no piece.

    Args:
        n: samples of the epoch.
        consumed: samples that completed steps have used.
        batch: samples of a full step over all ranks.
        rank, size: of this worker in its world.
        drop_last: leave out a last batch that is not full.
        shards: of a step, at least `size`; by default one a rank. With a fixed number, pieces are
            the same whatever the size; only who computes them changes.
        micro: the most samples of a piece; by default a piece is a whole shard.
    """
    left = max(0, n - consumed)
    rest = left % batch
    steps = left // batch + (1 if rest and not drop_last else 0)
    partial = bool(rest) and not drop_last
    count = size if shards is None else shards
    mine = range(count * rank // size, count * (rank + 1) // size)
    return Cut(
        start=consumed,
        batch=batch,
        steps=steps,
        full=_runs(batch, count, mine, micro),
        partial=_runs(rest, count, mine, micro) if partial else (),
        last=rest if partial else batch,
    )


def _runs(total: int, shards: int, mine: range, micro: int | None) -> tuple[Run, ...]:
    """Return the pieces of a step of `total` samples in the shards `mine`."""
    found = []
    for number in mine:
        low, high = total * number // shards, total * (number + 1) // shards
        parts = -(-(high - low) // (micro or max(1, high - low)))
        ends = [low + (high - low) * part // parts for part in range(1, parts + 1)]
        found += [Run(a, b, number) for a, b in zip([low, *ends[:-1]], ends, strict=False)]
    first = min(mine.start, shards - 1)
    at = total * first // shards
    return tuple(found) or (Run(at, at, first),)


def in_order(low: int, high: int, batch: int) -> Cut:
    """Return the run [low, high) of one rank as steps of `batch` samples; one stand-in if there are none."""
    full, rest = divmod(high - low, batch)
    last = (Run(0, rest, 0),) if rest or not full else ()
    return Cut(low, batch, full + len(last), (Run(0, batch, 0),), last, rest if last else batch)


def shard(n: int, rank: int, size: int) -> tuple[int, int]:
    """Return the run [low, high) of n samples that a rank validates."""
    return n * rank // size, n * (rank + 1) // size
