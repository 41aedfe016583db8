"""The hosts that the other tests here run on are hosts."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from elastic.chaos.net.control import Ways
from elastic.chaos.net.hosts import Net, hostname_here, missing_switch
from elastic.chaos.net.way import CUT, Way

pytestmark = [pytest.mark.chaos, pytest.mark.usefixtures("buildable")]


@pytest.fixture(params=[False, True], ids=["bridge", "switch"])
def net(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Net]:
    if request.param and (why := missing_switch()):
        pytest.skip(why)
    net = Net(tmp_path / "net", 3, switched=request.param)
    try:
        net.open()
        yield net
    finally:
        net.close()


@pytest.fixture
def switched(tmp_path: Path) -> Iterator[Net]:
    if why := missing_switch():
        pytest.skip(why)
    net = Net(tmp_path / "net", 3, switched=True)
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
    net.cut("h1")
    ssh = (str(net.bin / "ssh"), "-o", "ConnectTimeout=1", "h1", "hostname")
    assert "timed out" in says(net, "h0", *ssh) or "No route" in says(net, "h0", *ssh)
    net.mend("h1")
    ends = time.monotonic() + 10
    while says(net, "h0", *ssh) != "h1":
        assert time.monotonic() < ends


def test_a_host_that_is_powered_off_has_no_processes(net: Net) -> None:
    assert net.pids("h1")
    net.power_off("h1")
    ends = time.monotonic() + 5
    while net.pids("h1"):
        assert time.monotonic() < ends


def echo_s(net: Net, to: str, size: int = 1) -> float:
    """Return how long `size` bytes take from `h0` to another host until it has answered."""
    code = (
        "import socket, sys, threading, time\n"
        "serve = socket.create_server((sys.argv[1], 0))\n"
        "print(serve.getsockname()[1], flush=True)\n"
        "with serve.accept()[0] as it:\n"
        "    left = int(sys.argv[2])\n"
        "    while left: left -= len(it.recv(1 << 16))\n"
        "    it.send(b'1')\n"
    )
    ask = (
        "import socket, sys, time\n"
        "with socket.create_connection((sys.argv[1], int(sys.argv[2]))) as it:\n"
        "    began = time.monotonic()\n"
        "    it.sendall(bytes(int(sys.argv[3])))\n"
        "    it.recv(1)\n"
        "    print(time.monotonic() - began)\n"
    )
    address = net[to].address
    with net.run(to, [sys.executable, "-c", code, address, str(size)], stdout=subprocess.PIPE) as there:
        assert there.stdout is not None
        port = there.stdout.readline().strip()
        return float(says(net, "h0", sys.executable, "-c", ask, address, port, str(size)))


def test_a_delay_is_felt_by_one_host_alone(switched: Net) -> None:
    assert switched.switch is not None
    switched.switch.set("h1", Ways(Way(delay_s=0.1), Way(delay_s=0.1)))
    assert 0.2 <= echo_s(switched, "h1") < 2.0
    assert echo_s(switched, "h2") < 0.2


def test_a_rate_is_kept_and_a_loss_mended_by_tcp(switched: Net) -> None:
    assert switched.switch is not None
    switched.switch.set("h1", Ways(into=Way(rate=125e3, backlog_s=0.1)))
    assert echo_s(switched, "h1", 125_000) >= 0.8  # TCP may have sent some before the queue began
    switched.switch.set("h1", Ways(into=Way(loss=0.05), out=Way(loss=0.05)))
    echo_s(switched, "h1", 1_000_000)
    assert switched.switch.counts()["h1"]["into"]["lost"] > 0


@pytest.mark.parametrize("ways", [Ways(out=CUT), Ways(into=CUT)], ids=["out", "into"])
def test_a_host_can_be_cut_one_way(switched: Net, ways: Ways) -> None:
    assert switched.switch is not None
    switched.switch.set("h1", ways)
    ssh = (str(switched.bin / "ssh"), "-o", "ConnectTimeout=1", "h1", "hostname")
    assert "timed out" in says(switched, "h0", *ssh)
    counts = switched.switch.counts()["h1"]
    open_way = "into" if ways.into is None else "out"
    assert (counts["into"]["cut"] > 0, counts["out"]["cut"] > 0) == (open_way == "out", open_way == "into")
    switched.mend("h1")
    assert says(switched, "h0", *ssh) == "h1"


def test_a_switch_refuses_what_no_link_can_be_and_goes_on(switched: Net) -> None:
    assert switched.switch is not None
    with pytest.raises(ValueError, match="no host 'h9'; there are h0, h1, h2"):
        switched.switch.set("h9", Ways(CUT))
    assert says(switched, "h0", str(switched.bin / "ssh"), "h1", "hostname") == "h1"


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
    assert f"el{os.getpid()}" not in left
    spaces = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
    assert not any(host.space in spaces for host in net.hosts)
    assert not any((Path("/etc/netns") / host.space).exists() for host in net.hosts)


def is_alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_what_a_killed_process_has_left_is_removed_by_the_next_net(tmp_path: Path) -> None:
    code = (
        "import os, signal, sys\n"
        "from pathlib import Path\n"
        "from elastic.chaos.net.hosts import Net\n"
        "net = Net(Path(sys.argv[1]), 2)\n"
        "net.open()\n"
        "print(net.hosts[1].space, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    line = [sys.executable, "-c", code, str(tmp_path / "killed")]
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True) as killed:
        assert killed.stdout is not None
        space = killed.stdout.read().strip()
    pids = subprocess.run(["ip", "netns", "pids", space], capture_output=True, text=True, check=True).stdout.split()
    assert pids, "its sshd runs on"
    mark = space.partition("-")[0]
    net = Net(tmp_path / "net", 1)
    try:
        net.open()
        assert space not in subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
        assert not any(is_alive(int(pid)) for pid in pids)
        assert mark not in subprocess.run(["ip", "-o", "link"], capture_output=True, text=True, check=True).stdout
    finally:
        net.close()
