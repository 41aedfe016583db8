"""Replicas stay equal, bit for bit, and equal to one process on the joint batch; Horovod's own do not."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.job import BIN

SCRIPT = Path(__file__).with_name("replicas.py")


def replicas(kind: str, tmp_path: Path) -> dict[str, float]:
    out = tmp_path / f"{kind}.json"
    line = [str(BIN / "horovodrun"), "-np", "2", "-H", "localhost:2", sys.executable, str(SCRIPT), kind, str(out)]
    ended = subprocess.run(line, env=os.environ, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    found: dict[str, float] = json.loads(out.read_text())
    return found


def test_replicas_are_bitwise_equal_and_match_one_process_on_the_joint_batch(tmp_path: Path) -> None:
    found = replicas("ours", tmp_path)
    assert found["apart"] == 0.0
    assert found["from_one"] < 1e-6


@pytest.mark.chaos
def test_horovods_own_optimizer_lets_replicas_drift_apart(tmp_path: Path) -> None:
    found = replicas("horovod", tmp_path)
    assert found["apart"] > 1e-4
