"""Which interface leads where: this machine's own, by its routes; which of a name and a route counts in a slot."""

import socket
from pathlib import Path

import pytest

from elastic.agent.slot import interface_for, read_slot
from elastic.errors import ConfigError
from elastic.jobfile import load
from elastic.launch.horovodrun import is_local, leading_to, remote, to_come
from elastic.route import ELSEWHERE, address_towards, interface_of, interfaces

LAUNCHED = {
    "HOROVOD_HOSTNAME": "h1",
    "HOROVOD_GLOO_RENDEZVOUS_ADDR": "127.0.0.1",
    "HOROVOD_GLOO_RENDEZVOUS_PORT": "5000",
    "HOROVOD_GLOO_IFACE": "lo",
}


def test_the_loopback_leads_to_this_machine() -> None:
    assert interfaces()["lo"] == "127.0.0.1"
    assert address_towards("localhost") == "127.0.0.1"
    assert interface_of("127.0.0.1", interfaces()) == "lo"


def test_an_address_that_nobody_has_is_on_no_interface() -> None:
    assert interface_of("203.0.113.9", interfaces()) is None
    assert interface_of(None, interfaces()) is None


def test_a_name_without_an_ipv4_address_leads_nowhere() -> None:
    with pytest.raises(OSError, match=r"family|not known|No address"):
        address_towards("::1")


def test_hosts_that_are_this_machine_need_nothing_but_the_loopback() -> None:
    assert leading_to(["localhost:2", f"{socket.gethostname()}:1"]) == "lo"


def test_a_host_that_has_only_ipv6_is_refused_with_what_to_do() -> None:
    with pytest.raises(ConfigError, match=r"fd77::1 has no IPv4 address.*give each host one"):
        leading_to(["localhost:1", "fd77::1:1"])


@pytest.mark.parametrize(
    ("text", "listed", "found"),
    [
        ("", ("localhost:2",), ("localhost:2", "localhost:2")),
        ("hosts: [localhost:1, h2:1]\n", ("localhost:1",), ("localhost:1", "localhost:1", "h2:1")),
        ("discovery: {sources: [{slurm: {}}]}\n", ("localhost:1",), None),  # its other nodes come a moment later
        ("discovery: {sources: [{slurm: {}}]}\n", ("localhost:1", "h2:1"), ("localhost:1", "h2:1")),
    ],
)
def test_hosts_that_are_named_count_before_they_are_listed(
    tmp_path: Path, text: str, listed: tuple[str, ...], found: tuple[str, ...] | None
) -> None:
    job = tmp_path / "job.yaml"
    job.write_text(f"model: elastic.examples.mnist:model\ndata: bundled\nworkers: {{max: 2}}\n{text}")
    assert to_come(load(job), listed) == found


def test_hosts_that_are_not_known_yet_are_not_this_machine() -> None:
    way = address_towards(ELSEWHERE)
    assert leading_to(None) == (interface_of(way, interfaces()) if way is not None else "lo")


@pytest.mark.parametrize(
    ("hosts", "names"),
    [
        ([], ()),
        (["localhost:2", "localhost"], ()),
        (["localhost:2", "node1:1"], ("node1",)),
        (["node1", "node2:8"], ("node1", "node2")),
    ],
)
def test_remote_are_those_that_are_not_this_machine(hosts: list[str], names: tuple[str, ...]) -> None:
    assert remote(hosts) == names
    assert is_local(hosts) == (not names)


@pytest.mark.parametrize(
    ("told", "launcher", "by_route", "interface"),
    [
        ("lo", "horovodrun", True, None),
        ("lo", "elastic run", True, None),
        ("lo", "elastic run", False, None),
        ("ens7f9", "horovodrun", True, "lo"),  # not on this host: the way to the launcher counts
        ("ens7f9", "elastic run", False, "lo"),
        ("ens7f9", "elastic run", True, "lo"),
    ],
)
def test_a_name_that_this_host_lacks_gives_way_to_the_route(
    told: str, launcher: str, by_route: bool, interface: str | None
) -> None:
    slot = read_slot(LAUNCHED | {"HOROVOD_GLOO_IFACE": told, "ELASTIC_LAUNCHER": launcher})
    assert interface_for(slot, by_route=by_route) == interface


def test_an_interface_that_a_host_has_counts_only_where_somebody_chose_it_for_all() -> None:
    others = [name for name in interfaces() if name != "lo"]
    if not others:
        pytest.skip("this machine has no interface besides lo")
    slot = read_slot(LAUNCHED | {"HOROVOD_GLOO_IFACE": others[0], "ELASTIC_LAUNCHER": "elastic run"})
    assert interface_for(slot, by_route=False) is None
    assert interface_for(slot, by_route=True) == "lo"


def test_without_a_launcher_nothing_is_chosen() -> None:
    assert interface_for(read_slot({}), by_route=True) is None
