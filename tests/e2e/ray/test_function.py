"""`elastic.ray.run`: what a function returns comes back, and what it raises too."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.test_readme import file_name, snippets

RAISING = """
import elastic


def train():
    raise ValueError("no data today")


if __name__ == "__main__":
    try:
        elastic.ray.run(train, run_dir="run")
    except elastic.JobError as error:
        print("JobError:", error)
"""


def run(folder: Path, script: str) -> "subprocess.CompletedProcess[str]":
    path = folder / "script.py"
    path.write_text(script)
    line = [sys.executable, str(path)]
    return subprocess.run(line, cwd=folder, capture_output=True, text=True, timeout=170, check=False)


def test_what_the_readmes_function_returns_comes_back(tmp_path: Path) -> None:
    script = next(s for s in snippets("python") if file_name(s) == "on_ray.py")
    done = run(tmp_path, script)
    assert done.returncode == 0, done.stdout + done.stderr
    assert 0 < float(done.stdout.splitlines()[-1]) < 100


@pytest.mark.timeout(240)
def test_what_it_raises_is_told_with_rank_and_host(tmp_path: Path) -> None:
    done = run(tmp_path, RAISING)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "JobError: slot" in done.stdout, done.stdout + done.stderr
    assert "ValueError: no data today" in done.stdout
    assert ", rank " in done.stdout.partition("JobError:")[2]
