from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic.agent.pool import BACKOFF_S, MOST_BACKOFF_S, SETTLE_S, Pool, Wait, Warm, refill

NOW = 1000.0
LONG_AGO = 0.0


@pytest.mark.parametrize(
    ("pool", "expected"),
    [
        pytest.param(Pool(1, 0, 0, LONG_AGO), Warm("0 of 1 ready"), id="empty"),
        pytest.param(Pool(2, 1, 0, LONG_AGO), Warm("1 of 2 ready"), id="half full"),
        pytest.param(Pool(2, 2, 0, LONG_AGO), Wait("the pool is full"), id="full"),
        pytest.param(Pool(2, 1, 1, LONG_AGO), Wait("the pool is full"), id="full once one is warm"),
        pytest.param(Pool(3, 1, 1, LONG_AGO), Wait("one is warming"), id="one at a time"),
        pytest.param(Pool(0, 0, 0, LONG_AGO), Wait("the pool is full"), id="none wanted"),
        pytest.param(Pool(1, 0, 0, None), Wait("the workers start first"), id="nobody trains yet"),
        pytest.param(Pool(1, 0, 0, NOW - 0.5), Wait("the workers start first"), id="training has just begun"),
        pytest.param(Pool(1, 0, 0, NOW - SETTLE_S), Warm("0 of 1 ready"), id="training has settled"),
        pytest.param(
            Pool(1, 0, 0, LONG_AGO, failures=1, last_failure=NOW - 4.9),
            Wait("1 standbys died while warming; next try in 5 s"),
            id="one died just now",
        ),
        pytest.param(
            Pool(1, 0, 0, LONG_AGO, failures=1, last_failure=NOW - 5.0), Warm("0 of 1 ready"), id="one died a while ago"
        ),
        pytest.param(
            Pool(1, 0, 0, LONG_AGO, failures=3, last_failure=NOW - 19.9),
            Wait("3 standbys died while warming; next try in 20 s"),
            id="several died in a row",
        ),
    ],
)
def test_a_pool_fills_one_by_one_behind_training(pool: Pool, expected: Warm | Wait) -> None:
    assert refill(pool, NOW) == expected


def pause_after(failures: int) -> float:
    """Return the first whole second at which a pool with so many failures tries again."""
    pool = Pool(1, 0, 0, LONG_AGO, failures, last_failure=NOW)
    return next(float(s) for s in range(1000) if isinstance(refill(pool, NOW + s), Warm))


def test_the_pause_after_failures_grows_and_is_bounded() -> None:
    pauses = [pause_after(failures) for failures in range(1, 40)]
    assert pauses[0] == BACKOFF_S
    assert pauses == sorted(pauses)
    assert pauses[-1] == MOST_BACKOFF_S


@pytest.mark.parametrize(
    "failures",
    [100, 2000],
)
def test_any_number_of_failures_can_be_waited_out(failures: int) -> None:
    assert isinstance(refill(Pool(1, 0, 0, LONG_AGO, failures, NOW), NOW + MOST_BACKOFF_S), Warm)


@dataclass
class World:
    """A pool that does as it is told, and a host on which standbys come, go and die."""

    size: int
    ready: int = 0
    warming: int = 0
    failures: int = 0
    last_failure: float = 0.0
    now: float = 0.0

    def tend(self) -> None:
        pool = Pool(self.size, self.ready, self.warming, 0.0, self.failures, self.last_failure)
        if isinstance(refill(pool, self.now), Warm):
            self.warming += 1

    def happen(self, what: str) -> None:
        if what == "warmed" and self.warming:
            self.warming, self.ready, self.failures = self.warming - 1, self.ready + 1, 0
        elif what == "died" and self.warming:
            self.warming, self.failures, self.last_failure = self.warming - 1, self.failures + 1, self.now
        elif what == "promoted" and self.ready:
            self.ready -= 1
        elif what == "time":
            self.now += 1.0


@given(st.integers(0, 4), st.lists(st.sampled_from(["warmed", "died", "promoted", "time"]), max_size=60))
def test_there_are_never_more_than_wanted_nor_two_that_warm(size: int, story: list[str]) -> None:
    world = World(size)
    for what in story:
        world.happen(what)
        world.tend()
        assert world.ready + world.warming <= size
        assert world.warming <= 1
