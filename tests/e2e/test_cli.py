"""The command line as a user meets it: real processes, no training."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

import elastic
from tests.e2e.job import BIN, ROOT


def call(*words: object, cwd: Path, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    environment = os.environ | (env or {})
    line = [str(word) for word in words]
    return subprocess.run(line, cwd=cwd, env=environment, capture_output=True, text=True, timeout=100, check=False)


def test_help_comes_at_once_and_names_every_command(tmp_path: Path) -> None:
    took = []
    for _ in range(3):  # the best of three: the machine may be busy with something else
        began = time.monotonic()
        done = call(BIN / "elastic", "--help", cwd=tmp_path)
        took.append(time.monotonic() - began)
    assert done.returncode == 0
    assert all(
        command in done.stdout for command in ("run", "worker", "status", "report", "metrics", "audit", "doctor")
    )
    assert min(took) < 2.0


def test_the_version_is_printed(tmp_path: Path) -> None:
    done = call(BIN / "elastic", "--version", cwd=tmp_path)
    assert (done.returncode, done.stdout.strip()) == (0, f"elastic {elastic.__version__}")


@pytest.mark.parametrize("command", ["run", "worker"])
def test_an_unknown_key_is_refused_with_the_nearest_known_one(tmp_path: Path, command: str) -> None:
    job = tmp_path / "job.yaml"
    job.write_text("model: elastic.examples.mnist:model\ndata: bundled\nepocs: 3\n")
    done = call(BIN / "elastic", command, job, cwd=tmp_path)
    assert done.returncode == 2
    assert "epocs: unknown key; did you mean 'epochs'?" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "runs").exists()


def test_an_unknown_key_of_a_set_option_is_refused_too(tmp_path: Path) -> None:
    done = call(BIN / "elastic", "run", ROOT / "configs" / "mnist.yaml", "--set", "workers.mx=3", cwd=tmp_path)
    assert done.returncode == 2
    assert "workers.mx: unknown key; did you mean 'max'?" in done.stderr


@pytest.mark.parametrize("name", ["missing.yaml", "missing.py"])
def test_a_missing_file_is_named(tmp_path: Path, name: str) -> None:
    done = call(BIN / "elastic", "run", name, cwd=tmp_path)
    assert done.returncode == 2
    assert f"{name}: no such file" in done.stderr


@pytest.mark.parametrize("command", ["status", "report", "metrics"])
def test_a_folder_that_is_no_run_is_named(tmp_path: Path, command: str) -> None:
    for words in ([], [tmp_path]):
        done = call(BIN / "elastic", command, *words, cwd=tmp_path)
        assert done.returncode == 2
        assert "expected" in done.stderr
        assert "Traceback" not in done.stderr


def test_the_doctor_finds_this_machine_able_to_train(tmp_path: Path) -> None:
    done = call(BIN / "elastic", "doctor", cwd=tmp_path)
    assert done.returncode == 0, done.stdout
    assert "Gloo" in done.stdout


def test_the_module_is_the_command(tmp_path: Path) -> None:
    done = call(sys.executable, "-m", "elastic", "--version", cwd=tmp_path)
    assert done.stdout.strip() == f"elastic {elastic.__version__}"
