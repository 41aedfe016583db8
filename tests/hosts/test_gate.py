"""Discovery before real sshds: who is listed, and what keeps a host out."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from discovery.place import Place
from elastic.chaos.net.hosts import Net
from tests.e2e.job import ROOT

pytestmark = [pytest.mark.chaos, pytest.mark.usefixtures("buildable")]

WITHIN_S = 20.0


class Launcher:
    """Asks the discovery script on `h0`, as a launcher would."""

    def __init__(self, net: Net, folder: Path) -> None:
        self.net = net
        self._folder = folder
        self._config = folder / "discovery.yaml"
        self._config.write_text("sources: [{file: hosts}]\ngate: {period_s: 0.5, retry_s: 0.2, timeout_s: 5.0}\n")
        (folder / "runtime").mkdir()
        self._env = {k: v for k, v in os.environ.items() if not k.startswith("ELASTIC_")} | {
            "PATH": f"{net.bin}:{os.environ['PATH']}",
            "XDG_RUNTIME_DIR": str(folder / "runtime"),
            "ELASTIC_DISCOVERY": str(self._config),
            "ELASTIC_PYTHON": sys.executable,
        }
        self.place = Place.of(self._config, self._env)

    def name(self, *lines: str) -> None:
        """Let the source name hosts."""
        new = self._folder / "new"
        new.write_text("".join(f"{line}\n" for line in lines))
        new.replace(self._folder / "hosts")

    def ask(self) -> tuple[str, ...]:
        line = [str(ROOT / "discovery" / "discover_hosts.sh")]
        with self.net.run("h0", line, env=self._env, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as asking:
            return tuple(asking.communicate()[0].split())

    def wait(self, *lines: str) -> float:
        """Ask until the answer is this; return how long that took."""
        began = time.monotonic()
        while sorted(said := self.ask()) != sorted(lines):
            assert time.monotonic() - began < WITHIN_S, f"the last answer was {said}: {self.decisions()}"
            time.sleep(0.1)
        return time.monotonic() - began

    def wait_out(self, what: str, reason: str) -> None:
        """Wait until there is a decision that leaves something out for that reason."""
        began = time.monotonic()
        while not any(d["what"] == what and reason in d["reason"] for d in self.decisions()):
            self.ask()
            assert time.monotonic() - began < WITHIN_S, self.decisions()
            time.sleep(0.1)

    def decisions(self) -> list[dict[str, str]]:
        path = self.place.decisions
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def close(self) -> None:
        self.place.end_daemon(signal.SIGKILL)


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Callable[..., Launcher]]:
    begun: list[Launcher] = []

    def begin(count: int, **options: object) -> Launcher:
        net = Net(tmp_path / "net", count)
        launcher = Launcher(net, tmp_path)
        begun.append(launcher)
        net.open(**options)  # type: ignore[arg-type]
        return launcher

    yield begin
    for launcher in begun:
        launcher.close()
        launcher.net.close()


def test_a_host_that_is_named_before_its_sshd_answers_is_listed_once_it_does(begin: Callable[..., Launcher]) -> None:
    launcher = begin(3, without_sshd=["h2"])
    launcher.name("h1:1", "h2:1")
    launcher.wait("h1:1")
    launcher.wait_out("h2", "no connection to its port 22: Connection refused")
    assert launcher.ask() == ("h1:1",)
    launcher.net.start_sshd("h2")
    assert launcher.wait("h1:1", "h2:1") < 5.0


def test_one_host_under_all_its_names_is_listed_once(begin: Callable[..., Launcher]) -> None:
    launcher = begin(3, more_names="10.77.0.11 h1.cluster.local node-one\n")
    launcher.name("h1:2", "h1.cluster.local:2", "node-one:2", "10.77.0.11:2", "h2:2", "H2:2")
    launcher.wait("h1:2", "h2:2")


def test_a_host_that_loses_its_power_is_dropped(begin: Callable[..., Launcher]) -> None:
    launcher = begin(3)
    launcher.name("h1:1", "h2:1")
    launcher.wait("h1:1", "h2:1")
    launcher.net.power_off("h2")
    assert launcher.wait("h1:1") < 9.0
    dropped = next(d for d in launcher.decisions() if d["event"] == "HostDropped")
    assert dropped["what"] == "h2"
    assert dropped["reason"].startswith("3 health checks failed in a row")


def test_a_link_that_is_down_for_a_moment_drops_nobody(begin: Callable[..., Launcher]) -> None:
    launcher = begin(3)
    launcher.name("h1:1", "h2:1")
    launcher.wait("h1:1", "h2:1")
    launcher.net.cut("h2")
    time.sleep(3.0)
    launcher.net.mend("h2")
    time.sleep(3.0)
    assert sorted(launcher.ask()) == ["h1:1", "h2:1"]
    assert not [d for d in launcher.decisions() if d["event"] == "HostDropped"]


def test_a_host_whose_own_name_is_loopback_is_left_out_with_what_to_do(begin: Callable[..., Launcher]) -> None:
    launcher = begin(2)
    launcher.net.call_itself("h1", "127.0.1.1")
    launcher.name("h1:1", "localhost:1")
    launcher.wait("localhost:1")
    launcher.wait_out("h1", "its own name, h1, is 127.0.1.1 there")
