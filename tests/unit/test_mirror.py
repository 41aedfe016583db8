"""Checkpoints that are also kept on storage which other hosts reach."""

from collections.abc import Callable, Iterator
from pathlib import Path

import fsspec
import pytest

from elastic.config import Checkpoint
from elastic.errors import ConfigError
from elastic.rundir import RunDir
from elastic.worker import checkpoint
from elastic.worker.checkpoint import CheckpointStore
from elastic.worker.mirror import MirroredStore, store_of
from tests.s3 import s3_server
from tests.unit.test_checkpoint import newest, snapshot

Open = Callable[[str], MirroredStore]


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    """A bucket, and a server that has it."""
    with s3_server() as env, pytest.MonkeyPatch.context() as patch:
        for name, value in env.items():
            patch.setenv(name, value)
        fsspec.filesystem("s3").mkdir("bucket")
        yield "s3://bucket"


@pytest.fixture(params=["file", "memory", "s3"])
def uri(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A folder that does not exist yet."""
    if request.param == "s3":
        yield f"{request.getfixturevalue('s3')}/{tmp_path.name}"
        return
    yield f"file://{tmp_path}/there" if request.param == "file" else "memory://there"
    memory = fsspec.filesystem("memory")
    memory.store.clear()
    memory.pseudo_dirs[:] = [""]


@pytest.fixture
def host(uri: str, tmp_path: Path) -> Open:
    """Return the store of the run as one host has it."""
    return lambda name: MirroredStore(tmp_path / name, 2, uri)


def test_what_one_host_wrote_another_one_reads(host: Open) -> None:
    host("alpha").write(snapshot(step=12, wait=3))
    path, rejected = newest(host("beta"))
    assert path is not None
    assert rejected == []
    assert checkpoint.read(path).objects == {"wait": 3}
    assert path.parent.name == "beta"


def test_the_newer_of_both_sides_counts(host: Open) -> None:
    alpha, beta = host("alpha"), host("beta")
    alpha.write(snapshot(step=12))
    CheckpointStore(beta.folder, 2).write(snapshot(step=13))
    assert newest(beta)[0] == beta.folder / "step-000000013-epoch-00002"
    alpha.write(snapshot(step=14))
    assert newest(beta)[0] == beta.folder / "step-000000014-epoch-00002"


def test_both_sides_keep_the_last_few(host: Open, uri: str) -> None:
    alpha = host("alpha")
    for step in (11, 12, 13):
        alpha.write(snapshot(step=step))
    there, root = fsspec.core.url_to_fs(uri)
    kept = sorted(Path(str(p)).name for p in there.ls(root, detail=False))
    assert kept == ["step-000000012-epoch-00002", "step-000000013-epoch-00002"]


def test_a_damaged_copy_gives_way_to_the_one_before_it(host: Open, uri: str) -> None:
    alpha = host("alpha")
    alpha.write(snapshot(step=12))
    alpha.write(snapshot(step=13))
    there, root = fsspec.core.url_to_fs(uri)
    there.pipe_file(f"{root}/step-000000013-epoch-00002/variables.bin", b"garbage")
    path, rejected = newest(host("beta"))
    assert path is not None
    assert path.name == "step-000000012-epoch-00002"
    assert [name for name, _ in rejected] == ["step-000000013-epoch-00002"]


def test_a_copy_without_its_manifest_is_none_yet(host: Open, uri: str) -> None:
    host("alpha").write(snapshot(step=12))
    there, root = fsspec.core.url_to_fs(uri)
    there.rm_file(f"{root}/step-000000012-epoch-00002/manifest.json")
    assert newest(host("beta")) == (None, [])


def test_no_storage_and_no_checkpoint_are_different_things(host: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    store = host("alpha")
    assert newest(store) == (None, [])

    def refuse(*_: object, **__: object) -> None:
        raise ValueError("access denied")

    monkeypatch.setattr(store._there, "exists", refuse)
    with pytest.raises(OSError, match="ValueError: access denied"):
        newest(store)


@pytest.mark.parametrize("uri", ["nonsense://bucket/folder"])
def test_unknown_storage_is_an_error_of_the_configuration(tmp_path: Path, uri: str) -> None:
    with pytest.raises(ConfigError, match=r"checkpoint\.uri: nonsense"):
        MirroredStore(tmp_path, 2, uri)


def test_a_runs_folder_there_is_called_like_its_directory(tmp_path: Path) -> None:
    run = RunDir(tmp_path / "mnist-1")
    store = store_of(run, Checkpoint(uri=f"file://{tmp_path}/there/"))
    assert store is not None
    store.write(snapshot(step=12))
    assert (tmp_path / "there" / "mnist-1" / "step-000000012-epoch-00002" / "manifest.json").exists()


def test_without_a_uri_checkpoints_stay_in_the_run_directory(tmp_path: Path) -> None:
    assert type(store_of(RunDir(tmp_path), Checkpoint())) is CheckpointStore
    assert store_of(RunDir(tmp_path), Checkpoint(enabled=False)) is None
