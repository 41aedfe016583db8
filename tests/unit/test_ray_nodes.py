"""Which nodes a job on Ray uses, and how much of each."""

from typing import Any

import pytest

from elastic.launch.ray.nodes import SETTLE_S, Node, Plan, Seen, Use, host_of, room, slots, wanted

NOW = 100.0
CPU = {"CPU": 1.0}


def node(host: str, cpus: float = 4.0, free: float | None = None, *, draining: bool = False, **other: float) -> Node:
    total = {"CPU": cpus, "node:10.0.0.1": 1.0} | other
    return Node(host, host, "10.0.0.1", 1, total, total | {"CPU": cpus if free is None else free}, draining)


def used(**slots_: int) -> dict[str, Use]:
    return {host: Use(count, NOW - 10) for host, count in slots_.items()}


A, B = node("a"), node("b")


@pytest.mark.parametrize(
    ("nodes", "plan", "seen", "expected"),
    [
        pytest.param([A, B], Plan(CPU, 8), Seen(), {"a": 4, "b": 4}, id="all that is free"),
        pytest.param([A, B], Plan(CPU, 4), Seen(), {"a": 2, "b": 2}, id="spread"),
        pytest.param([A, B], Plan(CPU, 5, "pack"), Seen(), {"a": 4, "b": 1}, id="packed"),
        pytest.param([A, B], Plan(CPU, 4, "pack"), Seen(), {"a": 4}, id="a node without a slot is no host"),
        pytest.param([node("a", free=1), B], Plan(CPU, 8), Seen(), {"a": 1, "b": 4}, id="others' part is theirs"),
        pytest.param([node("a", free=0)], Plan(CPU, 8), Seen(), {}, id="nothing free"),
        pytest.param(
            [node("a", free=1)], Plan(CPU, 8), Seen(used(a=2), {"a": 2}), {"a": 3}, id="its own slots and what is free"
        ),
        pytest.param(
            [node("a", free=0), B], Plan(CPU, 4), Seen(used(a=4), {"a": 4}), {"a": 4}, id="a newcomer moves nobody"
        ),
        pytest.param(
            [B, node("a", free=3)], Plan(CPU, 2), Seen(used(a=1), {"a": 1}), {"a": 1, "b": 1}, id="oldest first"
        ),
        pytest.param([node("a", draining=True), B], Plan(CPU, 8), Seen(used(a=1)), {"b": 4}, id="draining"),
        pytest.param([A, B], Plan(CPU, 8), Seen(gone={"a"}), {"b": 4}, id="dead, though Ray does not know"),
        pytest.param([A, B], Plan(CPU, 8), Seen(caps={"a": 1}), {"a": 1, "b": 4}, id="another job was faster"),
        pytest.param(
            [A], Plan(CPU, 8), Seen({"a": Use(2, NOW - SETTLE_S / 2)}, {"a": 2}), {"a": 2}, id="not yet settled"
        ),
        pytest.param(
            [A], Plan(CPU, 8), Seen({"a": Use(2, NOW - SETTLE_S * 2)}, {"a": 2}), {"a": 6}, id="settled, and room"
        ),
        pytest.param(
            [node("a", free=2)], Plan(CPU, 3), Seen(before={"a": 3}), {"a": 2}, id="room taken before the slot started"
        ),
        pytest.param(
            [node("a", GPU=2), node("b")], Plan({"CPU": 1.0, "GPU": 1.0}, 8), Seen(), {"a": 2}, id="the scarcest counts"
        ),
        pytest.param([node("a", disk=1)], Plan({"disk": 0.25}, 8), Seen(), {"a": 4}, id="a resource of one's own"),
        pytest.param([node("a", cpus=0.3)], Plan({"CPU": 0.1}, 8), Seen(), {"a": 3}, id="parts of a CPU"),
    ],
)
def test_slots_come_from_what_is_available(nodes: list[Node], plan: Plan, seen: Seen, expected: dict[str, int]) -> None:
    found = slots(nodes, plan, seen, NOW)
    assert found == expected
    assert list(found) == list(expected)


def test_a_slot_needs_all_that_it_takes() -> None:
    assert room(node("a", cpus=3), {"CPU": 2.0}) == 1
    assert room(node("a"), {"CPU": 1.0, "GPU": 1.0}) == 0


def test_two_nodes_of_one_machine_are_two_hosts() -> None:
    first, second = host_of("box", "3fa2c1d0" + "0" * 48), host_of("box", "77bb00aa" + "0" * 48)
    assert first == "box-3fa2c1d0"
    assert first != second


def test_a_host_has_no_colon_in_its_name() -> None:
    assert host_of("fe80::1%eth0", "3fa2c1d0ffff") == "fe80--1-eth0-3fa2c1d0"


@pytest.mark.parametrize(
    ("nodes", "used_", "expected"),
    [
        pytest.param([node("a")], {}, [CPU, CPU], id="an empty cluster"),
        pytest.param([node("a", free=3)], {}, [CPU, CPU, CPU], id="beside what others use"),
        pytest.param([node("a", free=1)], used(a=2), [CPU, CPU, CPU], id="its own is no other's"),
        pytest.param([node("a", free=4)], used(a=2), [CPU, CPU], id="not yet seen"),
        pytest.param([node("a", free=0, draining=True)], {}, [CPU, CPU], id="a draining node's work is not replaced"),
    ],
)
def test_the_autoscaler_is_asked_for_the_job_at_its_largest(
    nodes: list[Node], used_: dict[str, Use], expected: list[dict[str, Any]]
) -> None:
    assert wanted(nodes, Plan(CPU, 2), used_) == expected
