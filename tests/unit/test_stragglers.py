import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic.stragglers import AGAIN, FACTOR, LEAST_S, STEPS, stragglers
from elastic.worker.own_time import OwnTime

TIMES = st.dictionaries(st.integers(0, 9), st.floats(1e-6, 10), max_size=10)


@pytest.mark.parametrize(
    ("own_s", "known", "slow"),
    [
        ({}, (), []),
        ({0: 9.0}, (), []),  # nobody to compare with
        ({0: 0.10, 1: 0.16}, (), [1]),
        ({0: 0.10, 1: 0.14}, (), []),
        ({0: 0.10, 1: 0.14}, (1,), [1]),  # known as one, it has not caught up yet
        ({0: 0.10, 1: 0.11}, (1,), []),
        ({0: 0.001, 1: 0.004}, (), []),  # four times as long, and nobody would notice
        ({0: 0.1, 1: 0.1, 2: 0.1, 3: 0.3}, (), [3]),
        ({0: 0.1, 1: 0.3, 2: 0.3, 3: 0.3}, (), []),  # most are slow: then that is the pace
        ({0: 0.1, 1: 0.1, 2: 0.2, 3: 0.3}, (), [2, 3]),
        ({0: 0.1, 1: 0.1, 2: 0.0}, (), []),  # one has not done enough steps: the verdict waits
        ({0: 0.1, 1: 0.0, 2: 9.0}, (), []),
    ],
)
def test_who_is_slower_than_the_others_holds_them_up(
    own_s: dict[int, float], known: tuple[int, ...], slow: list[int]
) -> None:
    assert [s.rank for s in stragglers(own_s, known)] == slow


@given(TIMES, st.sets(st.integers(0, 9)))
def test_the_fastest_is_never_a_straggler_and_each_straggler_is_slower_than_its_peers(
    own_s: dict[int, float], known: set[int]
) -> None:
    found = stragglers(own_s, known)
    assert min(own_s.values(), default=0.0) not in {s.own_s for s in found}
    for s in found:
        assert s.own_s == own_s[s.rank]
        assert s.own_s > AGAIN * s.peers_s
        assert s.own_s - s.peers_s > LEAST_S
        if s.rank not in known:
            assert s.own_s > FACTOR * s.peers_s


def steps(own: OwnTime, *times: float, wait: float = 1.0) -> float:
    """Do steps that take `times` of one's own and as long to wait for the others; return the median."""
    now = 1000.0
    for took in times:
        own.step(now + took, now + took + wait)
        now += took + wait
    return own.median_s


def test_own_time_leaves_out_the_wait_for_the_others() -> None:
    assert steps(OwnTime(), *[0.25] * (STEPS + 1), wait=7.0) == pytest.approx(0.25)


def test_own_time_is_unknown_until_enough_steps_are_done() -> None:
    assert steps(OwnTime(), *[0.25] * STEPS) == 0.0  # the first one has no step before it to be measured from


def test_a_rare_long_step_does_not_make_a_straggler() -> None:
    assert steps(OwnTime(), *[0.25] * 15, 60.0, *[0.25] * 10) == pytest.approx(0.25)


def test_another_world_begins_anew() -> None:
    own = OwnTime()
    steps(own, *[0.25] * 40)
    own.begin()
    assert own.median_s == 0.0
    assert steps(own, *[0.5] * (STEPS + 1)) == pytest.approx(0.5)


def test_a_clock_that_is_set_back_costs_one_step() -> None:
    own = OwnTime()
    steps(own, *[0.25] * 40)
    own.step(10.0, 11.0)
    assert own.median_s == pytest.approx(0.25)
