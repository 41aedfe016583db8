from pathlib import Path

import pytest

from discovery.file import File
from discovery.hosts import SourceError
from elastic.chaos.hosts import HostsFile, slots_of, with_fewer, with_more


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


def listed(path: Path) -> list[tuple[str, int]]:
    """Return what discovery's source finds in the file."""
    return [(host.name, host.slots) for host in File(path).find(timeout_s=0.5).hosts]


def test_discovery_fails_lies_and_is_put_back(tmp_path: Path, hosts: HostsFile) -> None:
    path = tmp_path / "hosts"
    hosts.remove()
    with pytest.raises(SourceError, match="cannot be read"):
        listed(path)
    hosts.write(b"")
    assert listed(path) == []
    hosts.put(("a:1",))
    assert listed(path) == [("a", 1)]
    hosts.put(("a:2", "b:1"))
    assert path.read_text() == "a:2\nb:1\n"


def test_discovery_that_is_slow_gets_its_answer_in_the_end(tmp_path: Path, hosts: HostsFile) -> None:
    path = tmp_path / "hosts"
    hosts.block()
    with pytest.raises(SourceError):
        listed(path)
    hosts.unblock()
    assert listed(path) == [("a", 2), ("b", 1)]
