import errno
import json
import os
import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic.progress import Progress
from elastic.worker import checkpoint, spare
from elastic.worker.checkpoint import CheckpointStore, Snapshot, flaw, step_and_epoch, step_of

AT = Progress(epoch=2, consumed=64, epoch_step=2, step=12, samples=704)
ARRAYS = {
    "matrix": np.arange(12, dtype=np.float32).reshape(3, 4),
    "transposed": np.arange(12, dtype=np.float64).reshape(3, 4).T,
    "scalar": np.array(7, np.int64),
    "half": np.array([1.5, -2.0], np.float16),
    "bfloat": np.array([[0.5], [3.0]], ml_dtypes.bfloat16),
    "flags": np.array([True, False]),
    "empty": np.zeros((0, 3), np.float32),
    "seed": np.array([1, 2**32 - 1], np.uint32),
}


def snapshot(step: int = 12, epoch: int = 2, **objects: Any) -> Snapshot:
    progress = Progress(epoch=epoch, consumed=64, epoch_step=2, step=step, samples=704)
    return Snapshot(progress, tuple(ARRAYS), tuple(ARRAYS.values()), objects, 2, {"keras": "3"})


@pytest.fixture
def store(tmp_path: Path) -> CheckpointStore:
    return CheckpointStore(tmp_path / "checkpoints", keep=3)


def names(store: CheckpointStore) -> list[str]:
    return sorted(p.name for p in store.folder.iterdir())


def newest(store: CheckpointStore) -> tuple[Path | None, list[tuple[str, str]]]:
    rejected: list[tuple[str, str]] = []
    return store.newest_valid(lambda path, why: rejected.append((path.name, why))), rejected


def test_what_was_written_is_read(store: CheckpointStore) -> None:
    path, size = store.write(snapshot(callbacks=[("EarlyStopping", {"wait": 2})], f=lambda x: x + 1))
    found = checkpoint.read(path)
    assert (found.progress, found.world_size, found.versions) == (AT, 2, {"keras": "3"})
    assert found.names == tuple(ARRAYS)
    for name, array in zip(found.names, found.arrays, strict=True):
        assert (array.dtype, array.shape) == (ARRAYS[name].dtype, ARRAYS[name].shape)
        np.testing.assert_array_equal(array, ARRAYS[name])
    assert found.objects["callbacks"] == [("EarlyStopping", {"wait": 2})]
    assert found.objects["f"](1) == 2
    assert size == sum(p.stat().st_size for p in path.iterdir())
    assert (flaw(path), step_of(path)) == (None, 12)


def test_a_state_without_variables_is_kept_too(store: CheckpointStore) -> None:
    path, _ = store.write(Snapshot(AT, (), (), {"epoch": 3}, 1, {}))
    assert flaw(path) is None
    assert (checkpoint.read(path).arrays, checkpoint.read(path).objects) == ((), {"epoch": 3})


def test_the_newest_stay_and_older_ones_go(store: CheckpointStore) -> None:
    for step in (2, 10, 9, 100):
        store.write(snapshot(step))
    assert [step_of(p) for p in store.paths()] == [100, 10, 9]
    store.tidy()
    assert len(names(store)) == 3


def pruned(store: CheckpointStore, harm: Callable[[Path], Any] = lambda path: None) -> list[int]:
    """Write until something has been pruned; `harm` gets what will be. Return the inodes of its files."""
    first, _ = store.write(snapshot(1, note="x" * 100_000))
    inodes = [file.stat().st_ino for file in sorted(first.iterdir())]
    harm(first)
    for step in (2, 3, 4):
        store.write(snapshot(step))
    return inodes


def test_the_files_of_a_pruned_checkpoint_are_written_over(store: CheckpointStore) -> None:
    inodes = pruned(store)
    path, size = store.write(snapshot(5))
    assert [file.stat().st_ino for file in sorted(path.iterdir())] == inodes
    assert flaw(path) is None
    assert checkpoint.read(path).objects == {}
    assert size < 100_000  # what was longer is cut
    assert [step_of(p) for p in store.paths()] == [5, 4, 3]


@pytest.mark.parametrize("use", ["open", "mapped", "linked", "symbolic", "with another file"])
def test_a_pruned_checkpoint_that_somebody_uses_is_not_written_over(
    store: CheckpointStore, tmp_path: Path, use: str
) -> None:
    theirs, views = tmp_path / "theirs.bin", []

    def begin_to_use(path: Path) -> None:
        file = path / "objects.pkl"
        if use == "open":
            views.append(stack.enter_context(file.open("rb")).read)
        elif use == "mapped":
            views.append(np.memmap(file, np.uint8, "r").tobytes)
        elif use == "linked":
            theirs.hardlink_to(file)
            views.append(theirs.read_bytes)
        elif use == "symbolic":
            file.rename(theirs)
            file.symlink_to(theirs)
            views.append(theirs.read_bytes)
        else:
            (path / "notes.txt").write_text("mine")

    with ExitStack() as stack:
        pruned(store, begin_to_use)
        path, _ = store.write(snapshot(5))
        assert all(view().count(b"x") >= 100_000 for view in views)
    assert {file.name for file in path.iterdir()} == {"variables.bin", "objects.pkl", "manifest.json"}
    assert flaw(path) is None
    store.tidy()
    assert len(names(store)) == 3


def test_whoever_opens_a_file_in_the_moment_that_it_is_asked_for_ends_nobody(tmp_path: Path) -> None:
    file = tmp_path / "a"
    file.write_bytes(b"a")
    ended = threading.Event()

    def open_again_and_again() -> None:
        while not ended.is_set():
            file.read_bytes()

    reading = threading.Thread(target=open_again_and_again)
    reading.start()
    answers = {spare._is_ours_alone(file) for _ in range(20_000)}
    ended.set()
    reading.join()
    assert True in answers


def test_what_a_dead_writer_left_is_cleared_and_a_live_ones_is_not(store: CheckpointStore) -> None:
    dead, alive = (store.folder / f".step-000000001.{pid}.tmp" for pid in (2**22 + 1, os.getppid()))
    for folder in (dead, alive):
        folder.mkdir(parents=True)
    store.write(snapshot())
    assert (dead.exists(), alive.exists()) == (False, True)


def truncate(path: Path) -> None:
    file = path / "variables.bin"
    file.write_bytes(file.read_bytes()[:-1])


def flip(path: Path, name: str = "variables.bin") -> None:
    data = bytearray((path / name).read_bytes())
    data[len(data) // 2] ^= 1
    (path / name).write_bytes(data)


def rewrite_manifest(path: Path, **changes: Any) -> None:
    manifest = json.loads((path / "manifest.json").read_text())
    (path / "manifest.json").write_text(json.dumps(manifest | changes))


DAMAGE = {
    "a truncated file": (truncate, "variables.bin is"),
    "a flipped bit": (flip, "variables.bin is"),
    "a flipped bit in the objects": (lambda path: flip(path, "objects.pkl"), "objects.pkl is"),
    "a missing file": (lambda path: (path / "objects.pkl").unlink(), "FileNotFoundError"),
    "a missing manifest": (lambda path: (path / "manifest.json").unlink(), "FileNotFoundError"),
    "an empty manifest": (lambda path: (path / "manifest.json").write_bytes(b""), "JSONDecodeError"),
    "a binary manifest": (lambda path: (path / "manifest.json").write_bytes(b"\xff\xfe"), "UnicodeDecodeError"),
    "a foreign manifest": (lambda path: (path / "manifest.json").write_text("[]"), "TypeError"),
    "a manifest of another training": (lambda path: rewrite_manifest(path, world_size=7), "manifest.json has digest"),
    "another format": (lambda path: rewrite_manifest(path, format=99), "format 99, expected 2"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_checkpoint_is_reported_and_the_one_before_is_taken(store: CheckpointStore, damage: str) -> None:
    harm, reason = DAMAGE[damage]
    older, _ = store.write(snapshot(10))
    broken, _ = store.write(snapshot(20))
    harm(broken)
    found, rejected = newest(store)
    assert found == older
    assert [name for name, _ in rejected] == [broken.name]
    assert rejected[0][1].startswith(reason)


def test_a_damaged_count_in_the_manifest_is_noticed(store: CheckpointStore) -> None:
    path, _ = store.write(snapshot())
    text = (path / "manifest.json").read_text()
    (path / "manifest.json").write_text(text.replace('"consumed": 64', '"consumed": 65'))
    assert flaw(path) is not None


def test_with_every_checkpoint_damaged_there_is_none(store: CheckpointStore) -> None:
    for step in (10, 20):
        truncate(store.write(snapshot(step))[0])
    found, rejected = newest(store)
    assert found is None
    assert [name for name, _ in rejected] == ["step-000000020-epoch-00002", "step-000000010-epoch-00002"]


def test_before_the_first_checkpoint_there_is_none(store: CheckpointStore) -> None:
    assert newest(store) == (None, [])


def refuse_sync(monkeypatch: pytest.MonkeyPatch, at: int) -> None:
    """Let the fsync numbered `at`, counted from 0, find the disk full."""
    calls = iter(range(1000))
    real = os.fsync

    def fsync(fd: int) -> None:
        if next(calls) == at:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(fd)

    monkeypatch.setattr(os, "fsync", fsync)


@pytest.mark.parametrize("at", range(4))  # variables, objects, manifest, the temporary folder
def test_a_disk_that_refuses_leaves_nothing_behind(
    store: CheckpointStore, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    before, _ = store.write(snapshot(10))
    with monkeypatch.context() as patch:
        refuse_sync(patch, at)
        with pytest.raises(OSError, match="No space left"):
            store.write(snapshot(20))
    assert names(store) == [before.name]
    after, _ = store.write(snapshot(20))
    assert newest(store) == (after, [])


def test_a_state_that_is_durable_already_is_not_written_again(
    store: CheckpointStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = store.write(snapshot(10, attempt=1))
    refuse_sync(monkeypatch, 0)
    assert store.write(snapshot(10, attempt=2)) == first
    assert checkpoint.read(first[0]).objects == {"attempt": 1}


def test_a_damaged_checkpoint_gives_its_name_to_the_new_one(store: CheckpointStore) -> None:
    truncate(store.write(snapshot(10, attempt=1))[0])
    path, size = store.write(snapshot(10, attempt=2))
    assert checkpoint.read(path).objects == {"attempt": 2}
    assert size == sum(p.stat().st_size for p in path.iterdir())
    assert (newest(store), names(store)) == ((path, []), [path.name])


@pytest.mark.parametrize("at", range(4))
def test_a_disk_that_refuses_to_replace_a_damaged_one_leaves_nothing_half_done(
    store: CheckpointStore, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    whole, _ = store.write(snapshot(9))
    damaged, _ = store.write(snapshot(10, attempt=1))
    truncate(damaged)
    with monkeypatch.context() as patch:
        refuse_sync(patch, at)
        with pytest.raises(OSError, match="No space left"):
            store.write(snapshot(10, attempt=2))
    assert newest(store)[0] == whole
    assert names(store) == [whole.name, damaged.name]


def test_the_end_of_an_epoch_and_the_start_of_the_next_are_two_states_of_one_step(store: CheckpointStore) -> None:
    paths = [store.write(snapshot(10, epoch))[0] for epoch in (3, 2)]
    assert store.paths() == paths
    assert [step_and_epoch(p) for p in paths] == [(10, 3), (10, 2)]


def test_what_was_just_written_stays_even_if_damaged_ones_are_newer(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path, keep=1)
    truncate(store.write(snapshot(20))[0])
    for step in (11, 12):
        path, _ = store.write(snapshot(step))
        assert newest(store)[0] == path
    assert [step_of(p) for p in store.paths()] == [20, 12]


@given(*[st.tuples(st.integers(0, 10**10), st.integers(0, 10**6))] * 2)
def test_checkpoints_sort_as_their_steps_and_epochs(one: tuple[int, int], other: tuple[int, int]) -> None:
    paths = [Path(f"step-{step:09d}-epoch-{epoch:05d}") for step, epoch in (one, other)]
    assert [step_and_epoch(p) for p in paths] == [one, other]
    assert [step_of(p) for p in paths] == [one[0], other[0]]


def test_what_is_called_otherwise_is_no_checkpoint(store: CheckpointStore) -> None:
    path, _ = store.write(snapshot())
    for name in ("step-by-step", f"{path.name}.bak", "notes"):
        (store.folder / name).mkdir()
    assert store.paths() == [path]
    with pytest.raises(ValueError, match="found notes, expected a name such as step-"):
        step_of(store.folder / "notes")
