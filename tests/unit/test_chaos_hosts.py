import os
import subprocess
from pathlib import Path

import pytest

import discovery
from elastic.chaos.hosts import HostsFile, slots_of, with_fewer, with_more

SCRIPT = Path(discovery.__file__).parent / "discover_hosts.sh"


@pytest.mark.parametrize(
    ("lines", "fewer"),
    [
        (("a:2", "b:1"), ("a:2",)),
        (("a:2",), ("a:1",)),
        (("a:1",), None),
        ((), None),
    ],
)
def test_a_host_goes_or_its_last_slot(lines: tuple[str, ...], fewer: tuple[str, ...] | None) -> None:
    assert with_fewer(lines) == fewer


@pytest.mark.parametrize(
    ("lines", "more"),
    [
        (("a:2", "b:1"), ("a:2", "b:2")),
        (("a:3", "b:1"), None),
        ((), None),
    ],
)
def test_a_slot_comes_while_there_is_room(lines: tuple[str, ...], more: tuple[str, ...] | None) -> None:
    assert with_more(lines, most=4) == more
    assert more is None or slots_of(more) == slots_of(lines) + 1


@pytest.fixture
def hosts(tmp_path: Path) -> HostsFile:
    (tmp_path / "hosts").write_text("a:2\nb:1\n")
    file = HostsFile(tmp_path / "hosts")
    file.read()
    return file


def discover(path: Path, within_s: float = 5.0) -> subprocess.CompletedProcess[str]:
    env = os.environ | {"ELASTIC_HOSTS_FILE": str(path)}
    return subprocess.run([str(SCRIPT)], env=env, capture_output=True, text=True, timeout=within_s, check=False)


def test_discovery_fails_lies_and_is_put_back(tmp_path: Path, hosts: HostsFile) -> None:
    path = tmp_path / "hosts"
    hosts.remove()
    assert discover(path).returncode == 1
    hosts.write(b"")
    assert (discover(path).returncode, discover(path).stdout) == (0, "")
    hosts.put(("a:1",))
    assert discover(path).stdout == "a:1\n"
    hosts.put(("a:2", "b:1"))
    assert path.read_text() == "a:2\nb:1\n"


def test_discovery_that_is_slow_gets_its_answer_in_the_end(tmp_path: Path, hosts: HostsFile) -> None:
    path = tmp_path / "hosts"
    hosts.block()
    with pytest.raises(subprocess.TimeoutExpired):
        discover(path, within_s=0.3)
    waiting = subprocess.Popen(
        [str(SCRIPT)], env=os.environ | {"ELASTIC_HOSTS_FILE": str(path)}, stdout=subprocess.PIPE, text=True
    )
    with pytest.raises(subprocess.TimeoutExpired):
        waiting.wait(0.3)
    hosts.unblock()
    assert waiting.communicate(timeout=5.0)[0] == "a:2\nb:1\n"
    assert discover(path).stdout == "a:2\nb:1\n"
