"""The pool of warm standbys of one job on one host: what it wants, a pure decision."""

from dataclasses import dataclass

SETTLE_S = 1.0  # after the host's first worker trains, before the pool takes any CPU
BACKOFF_S = 5.0  # after a standby died while warming, doubled each time
MOST_BACKOFF_S = 300.0


@dataclass(frozen=True, slots=True)
class Pool:
    """A snapshot of the pool.

    Attributes:
        size: standbys wanted.
        ready, warming: standbys there are.
        training_since: when a worker of this host began to train; None before.
        failures: standbys that died while warming, in a row.
        last_failure: when.
    """

    size: int
    ready: int
    warming: int
    training_since: float | None
    failures: int = 0
    last_failure: float = 0.0


@dataclass(frozen=True, slots=True)
class Warm:
    """Start another standby."""

    reason: str


@dataclass(frozen=True, slots=True)
class Wait:
    """Start none now."""

    reason: str


def refill(pool: Pool, now: float) -> Warm | Wait:
    """Choose whether to start a standby; one at a time, so that training keeps the CPU."""
    if pool.ready + pool.warming >= pool.size:
        return Wait("the pool is full")
    if pool.warming:
        return Wait("one is warming")
    if pool.training_since is None or now - pool.training_since < SETTLE_S:
        return Wait("the workers start first")
    doublings = min(pool.failures - 1, 10)  # beyond, the longest pause holds anyway
    pause = min(MOST_BACKOFF_S, BACKOFF_S * 2**doublings) if pool.failures else 0.0
    if now - pool.last_failure < pause:
        return Wait(f"{pool.failures} standbys died while warming; next try in {pause:.0f} s")
    return Warm(f"{pool.ready} of {pool.size} ready")
