"""Hosts that are not alike: names of interfaces, clocks, disks, addresses, what they call themselves."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from elastic.chaos.net.hosts import Net
from elastic.errors import ExitCode
from elastic.rundir import RunDir
from tests.e2e.job import BIN
from tests.hosts.jobs import OnHosts

pytestmark = [pytest.mark.chaos, pytest.mark.e2e, pytest.mark.timeout(280)]

NO_POOL = ("standby.size=0",)  # no part of what is tested, and half of the start
FAKETIME = Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1")


@pytest.mark.parametrize("launcher", ["horovodrun", "elastic"])
def test_interfaces_have_other_names_on_each_host_and_docker0_leads_nowhere(
    build: Callable[..., Net], begin: Callable[..., OnHosts], launcher: str
) -> None:
    net = build(3, interfaces={"h0": "eno1", "h1": "ens5", "h2": "enp1s0"}, docker=True)
    run = begin(net, "h1", "h2", launcher=launcher, sets=NO_POOL)
    assert {r.host for r in run.job.of("FirstStepDone")} == {"h1", "h2"}
    assert not run.job.of("WorkerLost"), run.explain()


def test_a_host_of_the_same_interface_name_with_another_use_is_reached_where_it_can_be(
    build: Callable[..., Net], begin: Callable[..., OnHosts]
) -> None:
    net = build(3, interfaces={"h0": "docker0", "h1": "ens5", "h2": "ens5"})  # the launcher's name is a trap on others
    for name in ("h1", "h2"):
        space = net[name].space
        subprocess.run(["ip", "-n", space, "link", "add", "docker0", "type", "veth", "peer", "name", "c"], check=True)
        subprocess.run(["ip", "-n", space, "addr", "add", "172.17.0.1/16", "dev", "docker0"], check=True)
        subprocess.run(["ip", "-n", space, "link", "set", "docker0", "up"], check=True)
    run = begin(net, "h1", "h2", launcher="elastic", sets=NO_POOL)
    assert not run.job.of("WorkerLost"), run.explain()


def test_a_host_whose_clock_is_an_hour_off_trains_with_the_others(
    build: Callable[..., Net], begin: Callable[..., OnHosts]
) -> None:
    if not FAKETIME.exists():
        pytest.skip(f"{FAKETIME} is not installed: apt-get install faketime")
    env = {"LD_PRELOAD": str(FAKETIME), "FAKETIME": "+3600", "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
    tried = subprocess.run(
        [sys.executable, "-c", "import time; time.sleep(0.01)"], env=env, capture_output=True, check=False
    )
    if tried.returncode != 0:
        pytest.skip("this libfaketime lets no Python process sleep: clock_nanosleep fails with EINVAL")
    net = build(3, without_sshd=["h2"])
    net.start_sshd("h2", env)
    run = begin(net, "h1", "h2")
    ahead = next(r for r in run.job.of("FirstStepDone") if r.host == "h2")
    assert 3500 < ahead.time - time.time() < 3700
    assert run.train_on(8.0) > 20
    assert not [r for r in run.job.poll() if r.event in {"WorkerLost", "CollectiveFailed"}], run.explain()
    worker = next(r for r in run.job.of("WorkerStarted") if r.host == "h2")
    os.kill(int(worker.get("worker_pid")), 9)
    run.job.wait(lambda r: r.event == "FirstStepDone" and r.generation > ahead.generation, count=2)


def test_a_host_whose_disk_is_full_is_not_listed_and_the_others_train(
    build: Callable[..., Net], begin: Callable[..., OnHosts], tmp_path: Path
) -> None:
    own = tmp_path / "own"
    own.mkdir()
    net = build(3, without_sshd=["h2"])
    net.start_sshd("h2", mounts=[str(own)])
    run = begin(
        net, "h1", "h2", size=1, launcher="elastic", sets=[*NO_POOL, "workers.start=1"], gate=f"{{folder: {own}}}"
    )
    out = next(d for d in run.decisions() if d["what"] == "h2")
    assert (out["event"], out["reason"]) == ("LeftOut", "its disk has less than 256 MiB free")
    assert {r.host for r in run.job.of("WorldFormed")} == {"h1"}


def test_a_worker_trains_where_nothing_can_be_written_beside_the_run(
    build: Callable[..., Net], begin: Callable[..., OnHosts], tmp_path: Path
) -> None:
    own = tmp_path / "own"
    own.mkdir()
    net = build(3, without_sshd=["h2"])
    net.start_sshd("h2", mounts=[str(own)])
    run = begin(net, "h1", "h2", env={"TMPDIR": str(own)})
    assert run.train_on(5.0) > 10
    assert not [r for r in run.job.poll() if r.event in {"WorkerLost", "CollectiveFailed"}], run.explain()


def says(net: Net, folder: Path, *line: str, within_s: float = 120.0) -> tuple[int, str]:
    """Run a command of this package on `h0`; return its exit code and what it has printed."""
    (folder / "runtime").mkdir(exist_ok=True)
    env = os.environ | {"PATH": f"{net.bin}:{os.environ['PATH']}", "XDG_RUNTIME_DIR": str(folder / "runtime")}
    options = {"cwd": folder, "env": env | {"COLUMNS": "200"}, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with net.run("h0", [str(BIN / "elastic"), *line], **options) as running:
        try:
            text, _ = running.communicate(timeout=within_s)
        finally:
            running.kill()
        return running.returncode, text


GATE = "discovery.gate={period_s: 0.5, timeout_s: 15.0}"


def refused(net: Net, folder: Path, *hosts: str) -> str:
    """Return why `elastic run` does not start on hosts."""
    job = folder / "job.yaml"
    job.write_text("model: elastic.examples.mnist:model\ndata: bundled\n")
    line = ["run", str(job), "--run-dir", str(folder / "run"), "--set", f"hosts=[{','.join(hosts)}]"]
    code, text = says(net, folder, *line, "--set", GATE, "--set", "network.start_timeout_s=25")
    assert code == ExitCode.CONFIG, text
    directory = RunDir(folder / "run")
    assert not directory.events.exists() or "AgentStarted" not in directory.events.read_text()
    return text


def test_hosts_with_ipv6_alone_are_refused_by_the_doctor_and_before_a_start(
    build: Callable[..., Net], tmp_path: Path
) -> None:
    net = build(2, only_6=True)
    code, text = says(net, tmp_path, "doctor")
    assert code == ExitCode.FAILED
    assert (
        "this host has IPv6 addresses and no IPv4 address; Horovod's launcher and rendezvous speak IPv4 alone" in text
    )
    assert "h1, has no IPv4 address there, and Horovod speaks nothing else" in refused(net, tmp_path, "h1:1")


def test_a_host_whose_own_name_is_loopback_is_refused_before_the_start(
    build: Callable[..., Net], tmp_path: Path
) -> None:
    net = build(2)
    net.call_itself("h1", "127.0.1.1")
    text = refused(net, tmp_path, "h1:1")
    assert "its own name, h1, is 127.0.1.1 there, where other hosts cannot reach it" in text
    assert "let it be the host's own address in its /etc/hosts" in text


def test_a_launchers_host_whose_own_name_is_loopback_is_refused_where_it_has_a_worker(
    build: Callable[..., Net], tmp_path: Path
) -> None:
    net = build(2)
    net.call_itself("h0", "127.0.1.1")
    text = refused(net, tmp_path, "h0:1", "h1:1")
    assert "h0 is 127.0.1.1: other hosts cannot reach it" in text
    assert "let h0 resolve to this host's own IPv4 address in /etc/hosts" in text
