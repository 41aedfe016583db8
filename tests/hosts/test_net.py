"""The hosts that the other tests here run on are hosts."""

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hosts.net import Net, hostname_here

pytestmark = [pytest.mark.chaos, pytest.mark.usefixtures("buildable")]


@pytest.fixture
def net(tmp_path: Path) -> Iterator[Net]:
    net = Net(tmp_path / "net", 3)
    try:
        net.open()
        yield net
    finally:
        net.close()


def says(net: Net, name: str, *line: str) -> str:
    with net.run(name, line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as running:
        assert running.stdout is not None
        return running.stdout.read().strip()


def test_hosts_reach_each_other_by_name_over_ssh(net: Net) -> None:
    ssh = str(net.bin / "ssh")
    assert says(net, "h0", ssh, "h1", "hostname") == "h1"
    assert says(net, "h0", ssh, "h2", "hostname; ip -4 -o addr show eth0").startswith("h2\n")
    assert says(net, "h1", "getent", "hosts", "h2").split()[0] == net["h2"].address


def test_a_host_that_is_cut_off_is_silent_and_comes_back(net: Net) -> None:
    ping = ("ping", "-c", "1", "-W", "1", "h1")
    net.cut("h1")
    ssh = (str(net.bin / "ssh"), "-o", "ConnectTimeout=1", "h1", "hostname")
    assert "timed out" in says(net, "h0", *ssh) or "No route" in says(net, "h0", *ssh)
    net.mend("h1")
    ends = time.monotonic() + 10
    while says(net, "h0", *ssh) != "h1":
        assert time.monotonic() < ends, ping


def test_a_host_that_is_powered_off_has_no_processes(net: Net) -> None:
    assert net.pids("h1")
    net.power_off("h1")
    ends = time.monotonic() + 5
    while net.pids("h1"):
        assert time.monotonic() < ends


def test_it_is_built_in_time_and_leaves_nothing_behind(tmp_path: Path) -> None:
    name = hostname_here()
    net = Net(tmp_path / "net", 4)
    began = time.monotonic()
    net.open()
    took_s = time.monotonic() - began
    net.close()
    assert took_s < 5.0
    assert hostname_here() == name
    left = subprocess.run(["ip", "-o", "link"], capture_output=True, text=True, check=True).stdout
    assert not any(host.link in left for host in net.hosts)
    spaces = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
    assert not any(host.space in spaces for host in net.hosts)
    assert not any((Path("/etc/netns") / host.space).exists() for host in net.hosts)
