from datetime import datetime
from pathlib import Path

import pytest

from elastic.errors import ConfigError
from elastic.rundir import RunDir, fresh

NOW = datetime.fromisoformat("2026-03-04T05:06:07")


def test_a_run_directory_is_made_with_its_parts(tmp_path: Path) -> None:
    run = RunDir(tmp_path / "deep" / "run").create()
    assert run.path.is_dir()
    assert run.checkpoints.is_dir()
    assert run.logs.is_dir()


def test_making_it_again_keeps_what_is_there(tmp_path: Path) -> None:
    run = RunDir(tmp_path / "run").create()
    run.events.write_text("kept")
    (run.checkpoints / "step-000000001").mkdir()
    run.create()
    assert run.events.read_text() == "kept"
    assert [p.name for p in run.checkpoints.iterdir()] == ["step-000000001"]


def test_no_two_parts_share_a_path(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    parts = [run.config, run.events, run.checkpoints, run.tensorboard, run.logs, run.summary]
    assert len(set(parts)) == len(parts)
    assert {p.parent for p in parts} == {tmp_path}


@pytest.mark.parametrize("where", ["taken", "taken/run"])
def test_a_place_where_it_cannot_be_made_is_the_users_to_change(tmp_path: Path, where: str) -> None:
    (tmp_path / "taken").write_text("a file")
    with pytest.raises(ConfigError, match=r"taken.*--run-dir"):
        RunDir(tmp_path / where).create()


def test_a_place_that_cannot_be_written_is_the_users_to_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.access", lambda path, mode: False)  # root may write anywhere, so no real folder refuses
    with pytest.raises(ConfigError, match="not writable"):
        RunDir(tmp_path / "run").create()


def test_a_fresh_run_is_named_after_the_job_and_the_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert fresh("mnist", NOW).path == tmp_path / "runs" / "mnist-20260304-050607"


def test_a_fresh_run_never_takes_the_place_of_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    paths = [fresh("v1.5", NOW).create().path for _ in range(3)]
    assert [p.name for p in paths] == ["v1.5-20260304-050607", "v1.5-20260304-050607-2", "v1.5-20260304-050607-3"]


def test_a_fresh_run_stays_where_it_is_when_the_process_moves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert fresh("job", NOW).path.is_absolute()
