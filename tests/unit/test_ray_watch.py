"""What a job sees of its cluster, and what it asks for."""

from collections.abc import Sequence
from typing import Any

import pytest

from elastic.launch.ray.nodes import SETTLE_S, Plan
from elastic.launch.ray.watch import ASK_AGAIN_S, CAP_S, Watch
from tests.unit.test_ray_nodes import CPU, node


class Clock:
    """Time that passes when the test says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Case:
    """A watch over a scripted cluster."""

    def __init__(self, most: int = 8) -> None:
        self.nodes = [node("a"), node("b")]
        self.asked: list[Sequence[dict[str, float]]] = []
        self.clock = Clock()
        self.watch = Watch(Plan(CPU, most), lambda: self.nodes, self.asked.append, self.clock)
        self.watch.refresh()

    def hosts(self) -> dict[str, int]:
        return self.watch.find_available_hosts_and_slots()


@pytest.fixture
def case() -> Case:
    return Case()


def test_what_the_driver_hears_is_what_was_last_seen(case: Case) -> None:
    assert case.hosts() == {"a": 4, "b": 4}
    case.nodes = [node("b")]
    assert case.hosts() == {"a": 4, "b": 4}
    case.watch.refresh()
    assert case.hosts() == {"b": 4}


def test_a_slot_that_is_taken_counts_though_ray_does_not_show_it_yet(case: Case) -> None:
    assert case.hosts()["a"] == 4
    for _ in range(4):
        case.watch.take("a", 1)
    assert case.hosts()["a"] == 4
    case.nodes = [node("a", free=0), node("b")]
    case.watch.refresh()
    case.clock.now += SETTLE_S
    assert case.hosts()["a"] == 4


def test_a_host_whose_raylet_is_gone_is_none_until_ray_has_noticed_and_then_is_forgotten(case: Case) -> None:
    case.watch.lost("a")
    assert case.hosts() == {"b": 4}
    case.nodes = [node("b")]
    case.watch.refresh()
    case.nodes = [node("a"), node("b")]
    case.watch.refresh()
    assert case.hosts() == {"b": 4, "a": 4}


def test_a_host_that_had_no_room_is_tried_again_later(case: Case) -> None:
    case.watch.full("a", 2)
    assert case.hosts() == {"a": 2, "b": 4}
    case.clock.now += CAP_S
    assert case.hosts() == {"a": 4, "b": 4}


def test_the_autoscaler_is_asked_once_and_the_request_is_taken_back() -> None:
    case = Case(most=2)
    case.watch.refresh()
    case.watch.stop()
    case.watch.stop()
    assert case.asked == [[CPU, CPU], []]


def test_a_request_that_another_job_has_overwritten_is_made_again() -> None:
    case = Case(most=1)
    case.clock.now += ASK_AGAIN_S / 2
    case.watch.refresh()
    assert case.asked == [[CPU]]
    case.clock.now += ASK_AGAIN_S / 2
    case.watch.refresh()
    case.watch.refresh()
    assert case.asked == [[CPU], [CPU]]


def test_the_autoscaler_is_asked_anew_when_others_use_more() -> None:
    case = Case(most=1)
    case.nodes = [node("a", free=2), node("b")]
    case.watch.refresh()
    expected: list[Any] = [[CPU], [{"CPU": 2.0}, CPU]]
    assert case.asked == expected


def test_what_others_use_is_not_told_from_ones_own_before_it_has_settled() -> None:
    case = Case(most=1)
    case.nodes = [node("a", free=3), node("b")]
    case.watch.take("a", 1)
    case.watch.refresh()
    case.watch.take("a", -1)  # Ray shows it as used for a while
    case.watch.refresh()
    assert case.asked == [[CPU]]
    case.clock.now += SETTLE_S
    case.watch.refresh()
    assert case.asked == [[CPU], [CPU, CPU]]


def test_who_must_not_ask_does_not() -> None:
    watch = Watch(Plan(CPU, 2), lambda: [node("a")], None, Clock())
    watch.refresh()
    watch.stop()
    assert watch.find_available_hosts_and_slots() == {"a": 2}
