import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from elastic.agent.remains import keep
from elastic.worker.stash import Remains, Stash


@dataclass
class Variable:
    value: float

    def numpy(self) -> np.ndarray:
        return np.full(3, self.value, np.float32)


def whole(objects: bytes, value: float) -> tuple[bytes, bytes]:
    return objects, np.full(3, value, np.float32).tobytes()


@pytest.fixture
def memory() -> Iterator[int]:
    fd = os.memfd_create("stash")
    yield fd
    os.close(fd)


def stash_of(memory: int) -> Stash:
    return Stash(f"/proc/self/fd/{memory}")


def test_what_is_put_by_is_found_until_it_is_given_back(memory: int) -> None:
    stash = stash_of(memory)
    assert stash.load() is None
    stash.save(b"step 7", [Variable(1.5)])
    assert stash.load() == whole(b"step 7", 1.5)
    stash.clear()
    assert stash.load() is None


def test_an_agent_that_ends_leaves_what_its_worker_had_put_by(memory: int, tmp_path: Path) -> None:
    stash_of(memory).save(b"step 7", [Variable(1.5)])
    assert keep(memory, tmp_path / "stash" / "h-0")
    assert Remains(None, tmp_path / "stash").load() == [whole(b"step 7", 1.5)]
    assert [p.name for p in (tmp_path / "stash").iterdir()] == ["h-0"]


def test_an_agent_whose_worker_had_put_nothing_by_leaves_nothing(memory: int, tmp_path: Path) -> None:
    assert not keep(memory, tmp_path / "stash" / "h-0")
    assert not (tmp_path / "stash").exists()


def test_what_all_slots_have_left_is_found_and_given_back(memory: int, tmp_path: Path) -> None:
    folder = tmp_path / "stash"
    for slot, step in enumerate((b"step 7", b"step 8")):
        stash_of(memory).save(step, [Variable(slot)])
        keep(memory, folder / f"h-{slot}")
    stash_of(memory).save(b"step 9", [Variable(9.0)])
    remains = Remains(stash_of(memory), folder)
    assert remains.load() == [whole(b"step 9", 9.0), whole(b"step 7", 0.0), whole(b"step 8", 1.0)]
    remains.clear(files=False)
    assert remains.load() == [whole(b"step 7", 0.0), whole(b"step 8", 1.0)]
    remains.clear(files=True)
    assert remains.load() == []


def test_a_file_that_was_cut_off_is_no_state(memory: int, tmp_path: Path) -> None:
    stash_of(memory).save(b"step 7", [Variable(1.5)])
    keep(memory, tmp_path / "stash" / "h-0")
    os.truncate(tmp_path / "stash" / "h-0", 20)
    assert Remains(None, tmp_path / "stash").load() == []
