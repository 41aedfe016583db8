"""Faults of the network: what they make of a link, and where they can be had."""

from dataclasses import replace

import pytest

from elastic.chaos import network
from elastic.chaos.faults import obstacle
from elastic.chaos.kinds import NETWORK, Kind
from elastic.chaos.net.control import Ways
from elastic.chaos.net.way import CUT, Way
from elastic.chaos.plan import Plan, schedule


def ways(kind: Kind, draw: float = 0.0, **own: float) -> Ways:
    (planned,) = schedule(Plan.model_validate({"hosts": 2, "faults": [{"kind": kind, **own}]}), seed=1)
    return network.ways_of(replace(planned, draw=draw))


@pytest.mark.parametrize(
    ("kind", "own", "found"),
    [
        (Kind.PARTITION, {}, Ways(CUT, CUT)),
        (Kind.NET_DELAY, {}, Ways(Way(delay_s=0.1), Way(delay_s=0.1))),
        (Kind.NET_DELAY, {"amount": 0.3}, Ways(Way(delay_s=0.3), Way(delay_s=0.3))),
        (Kind.NET_LOSS, {}, Ways(Way(loss=0.05), Way(loss=0.05))),
        (Kind.NET_RATE, {"amount": 1e6}, Ways(Way(rate=1e6), Way(rate=1e6))),
    ],
)
def test_a_fault_is_the_same_for_both_ways_of_a_link(kind: Kind, own: dict[str, float], found: Ways) -> None:
    assert ways(kind, **own) == found


@pytest.mark.parametrize(("draw", "found"), [(0.0, Ways(out=CUT)), (0.49, Ways(out=CUT)), (0.5, Ways(into=CUT))])
def test_the_draw_says_which_half_of_a_link_is_cut(draw: float, found: Ways) -> None:
    assert ways(Kind.HALF_OPEN, draw) == found


@pytest.mark.parametrize("kind", sorted(NETWORK))
def test_without_hosts_of_their_own_no_network_is_broken(kind: Kind) -> None:
    assert obstacle(kind, None) == "the plan has no hosts of their own; give it some, such as `hosts: 2`"


def test_hosts_are_named_from_1_as_the_launcher_is_on_0() -> None:
    assert network.hosts_of(2) == ("h1:1", "h2:1")


def test_faults_of_the_disk_are_for_jobs_without_hosts_of_their_own() -> None:
    with pytest.raises(ValueError, match="disk_full is for jobs on this machine's own file system"):
        Plan.model_validate({"hosts": 2, "faults": [{"kind": "partition"}, {"kind": "disk_full"}]})
