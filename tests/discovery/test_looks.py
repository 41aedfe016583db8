"""How hosts are looked at: real connections on loopback, and an `ssh` that runs its command here."""

import json
import os
import socket
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from discovery import probe
from discovery.gate import Look
from discovery.looks import Looker, wrong
from discovery.merge import HERE
from discovery.resolve import Resolver, addresses_of

GREETING = b"SSH-2.0-OpenSSH_9.2\r\n"


class Port:
    """Something that listens, and greets."""

    def __init__(self, greeting: bytes | None) -> None:
        self._server = socket.create_server(("127.0.0.1", 0))
        self.number: int = self._server.getsockname()[1]
        if greeting is not None:
            threading.Thread(target=self._greet, args=(greeting,), daemon=True).start()

    def _greet(self, greeting: bytes) -> None:
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            with client:
                client.sendall(greeting)

    def close(self) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()


@pytest.fixture
def sshd() -> Iterator[Port]:
    port = Port(GREETING)
    yield port
    port.close()


@pytest.fixture
def ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return what the `ssh` on the path was called with; the last argument is its command."""
    program = tmp_path / "ssh"
    program.write_text(f'#!/bin/sh\nfor last; do :; done\necho "$*" > {tmp_path}/line\nexec sh -c "$last"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return tmp_path / "line"


def test_an_sshd_that_greets_is_there(sshd: Port) -> None:
    assert Looker("tcp", sshd.number).look("127.0.0.1", Look.FULL) == ""


def test_a_port_that_nobody_listens_on_is_named(sshd: Port) -> None:
    sshd.close()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        number = free.getsockname()[1]
        assert (
            Looker("tcp", number).look("127.0.0.1", Look.FULL)
            == f"no connection to its port {number}: Connection refused"
        )
    sshd.close = lambda: None  # type: ignore[method-assign]


def test_a_port_that_takes_connections_and_never_greets_is_not_waited_for() -> None:
    silent = Port(None)
    began = time.monotonic()
    assert "timed out" in Looker("tcp", silent.number, timeout_s=0.3).look("127.0.0.1", Look.FULL)
    assert time.monotonic() - began < 1.0
    silent.close()


def test_what_answers_and_is_no_sshd_is_named() -> None:
    other = Port(b"HTTP/1.0 400 Bad Request\r\n")
    assert "is no sshd" in Looker("tcp", other.number).look("127.0.0.1", Look.FULL)
    other.close()


def test_a_visit_runs_the_probe_over_ssh(sshd: Port, ssh: Path) -> None:
    looker = Looker("ssh", sshd.number, timeout_s=20.0)
    found = looker.look("127.0.0.1", Look.FULL)
    assert found == "" or "its own name" in found  # as this machine happens to be
    assert f"-p {sshd.number} 127.0.0.1 {sys.executable} - /tmp" in ssh.read_text()
    assert "BatchMode=yes" in ssh.read_text()


def test_a_pulse_is_no_visit(sshd: Port, ssh: Path) -> None:
    assert Looker("ssh", sshd.number).look("127.0.0.1", Look.PULSE) == ""
    assert not ssh.exists()


def test_a_host_without_the_same_python_cannot_run_a_worker(sshd: Port, ssh: Path) -> None:
    found = Looker("ssh", sshd.number, python="/no/such/python").look("127.0.0.1", Look.FULL)
    assert found.startswith("it cannot run a worker: ssh ended with code 127: ")


def test_a_command_must_succeed_there(sshd: Port, ssh: Path) -> None:
    found = Looker("ssh", sshd.number, command="test -e /no/such/pool").look("127.0.0.1", Look.FULL)
    assert found == "it cannot run a worker: ssh ended with code 1"


def test_a_visit_that_hangs_is_given_up(sshd: Port, ssh: Path) -> None:
    found = Looker("ssh", sshd.number, timeout_s=0.5, command="sleep 60").look("127.0.0.1", Look.FULL)
    assert found == "it cannot run a worker: ssh gave no answer within 0.5 s"


HERE_FACTS = {
    "python": "3.11",
    "elastic-keras": "0.1.0",
    "tensorflow": "2.21.0",
    "keras": "3.15.1",
    "horovod": "0.28.1",
}
THERE = HERE_FACTS | {"disk_free_bytes": 2**30, "hostname": "node1", "address": "10.0.0.1"}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, ""),
        ({"tensorflow": "2.20.0"}, "it has tensorflow 2.20.0, here it is 2.21.0"),
        ({"horovod": None}, "it has horovod not at all, here it is 0.28.1"),
        ({"python": "3.12"}, "it has python 3.12, here it is 3.11"),
        ({"disk_free_bytes": 0}, "its disk has less than 256 MiB free"),
        ({"address": "127.0.1.1"}, "its own name, node1, is 127.0.1.1 there"),
        ({"address": None}, "its own name, node1, does not resolve there"),
        ({"address": None, "only_6": False}, "its own name, node1, does not resolve there"),
        ({"address": None, "only_6": True}, "its own name, node1, has no IPv4 address there"),
    ],
    ids=str,
)
def test_a_host_must_have_what_is_here(change: dict[str, object], expected: str) -> None:
    found = wrong(THERE | change, HERE_FACTS, 2**28)
    assert found.startswith(expected)
    assert bool(found) == bool(expected)


def test_a_package_that_is_not_here_need_not_be_there() -> None:
    assert wrong(THERE | {"horovod": None}, HERE_FACTS | {"horovod": None}, 0) == ""


def test_the_probe_measures_where_a_folder_will_be(tmp_path: Path) -> None:
    facts = probe.facts(str(tmp_path / "not" / "yet"))
    assert facts["disk_free_bytes"] > 0
    assert json.dumps(facts)


def test_this_machine_knows_itself() -> None:
    assert addresses_of("localhost") == {HERE}
    assert addresses_of("127.0.0.1") == {HERE}
    assert addresses_of("192.0.2.1") == {"192.0.2.1"}


def test_a_name_server_that_hangs_is_not_waited_for() -> None:
    release = threading.Event()
    got: list[tuple[str, frozenset[str]]] = []

    def lookup(name: str) -> frozenset[str]:
        release.wait(10.0)
        return frozenset({"10.0.0.1"})

    resolver = Resolver(lambda name, found: got.append((name, found)), lookup)
    resolver.want(["node1"], 100.0)
    assert not resolver.give_up_waiting(101.0)
    assert "node1" not in resolver.known
    assert resolver.give_up_waiting(103.0)
    assert resolver.known["node1"] == frozenset()
    release.set()
    while not got:
        time.sleep(0.01)
    resolver.learn(*got[0])
    assert resolver.known["node1"] == {"10.0.0.1"}
    resolver.learn("node1", frozenset())  # it does not resolve for a while
    assert resolver.known["node1"] == {"10.0.0.1"}
    resolver.close()
