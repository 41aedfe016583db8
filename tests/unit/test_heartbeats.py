import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from elastic.heartbeats import Heartbeat, path_of, read, remove, write

BEAT = Heartbeat(5.0, "node-1.example", 3, agent_pid=7, worker_pid=8, rank=1, generation=2, phase="stepping", step=9)


def test_a_heartbeat_comes_back(tmp_path: Path) -> None:
    write(tmp_path / "heartbeats", BEAT)
    assert read(tmp_path / "heartbeats") == [BEAT]


def test_each_slot_has_one_that_is_overwritten(tmp_path: Path) -> None:
    for time in (1.0, 2.0):
        for host, slot in (("b", 0), ("a", 10), ("a", 2)):
            write(tmp_path, Heartbeat(time, host, slot, 1))
    assert [(b.host, b.slot, b.time) for b in read(tmp_path)] == [("a", 2, 2.0), ("a", 10, 2.0), ("b", 0, 2.0)]
    assert len(list(tmp_path.iterdir())) == 3


def test_a_run_without_heartbeats_has_none(tmp_path: Path) -> None:
    assert read(tmp_path / "absent") == []


@pytest.mark.parametrize("text", ["", "{", "[]", "3", '{"time": 1}'])
def test_a_file_that_is_none_is_left_out(tmp_path: Path, text: str) -> None:
    write(tmp_path, BEAT)
    (tmp_path / "h-0.json").write_text(text)
    assert read(tmp_path) == [BEAT]


def test_a_field_of_a_later_version_is_no_harm(tmp_path: Path) -> None:
    (tmp_path / "h-0.json").write_text('{"time": 1.0, "host": "h", "slot": 0, "agent_pid": 1, "mood": "good"}')
    assert read(tmp_path) == [Heartbeat(1.0, "h", 0, 1)]


def test_it_ends_with_its_slot(tmp_path: Path) -> None:
    write(tmp_path, BEAT)
    for _ in range(2):  # it may be gone already
        remove(path_of(tmp_path, BEAT.host, BEAT.slot))
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "tiny"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4k", "tmpfs", str(folder)]
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"a full disk needs the right to mount: {done.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_full_disk_keeps_the_last_one_and_nobody_hears_of_it(full_disk: Path) -> None:
    folder = full_disk / "heartbeats"
    write(folder, BEAT)
    write(folder, Heartbeat(6.0, "node-1.example", 3, agent_pid=7))
    assert read(folder) == [BEAT]  # one page holds one file
    assert [p.name for p in folder.iterdir()] == ["node-1.example-3.json"]
