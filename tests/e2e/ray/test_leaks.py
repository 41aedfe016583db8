"""A job leaves nothing behind, however it ends and however often: on the cluster or in the process that drove it."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.e2e.job import ROOT
from tests.e2e.ray.conftest import LONG, MNIST_RAY
from tests.e2e.ray.nodes import Nodes, wait_until
from tests.e2e.ray.shm import entries, own_shared_memory

pytestmark = pytest.mark.ray

TIMES = 3
NO_ROOM = ("workers.max=5", "workers.start=5", "network.start_timeout_s=3")
FAILING = """
def model():
    raise ValueError("this model is a bug")
"""


class Left:
    """What a cluster holds for jobs, as against what it held before."""

    def __init__(self, nodes: Nodes, mark: str) -> None:
        self._nodes = nodes
        self._mark = mark
        self._shared_memory = entries()

    def now(self) -> dict[str, Any]:
        return {
            "actors": [actor["Name"] for actor in self._nodes.actors()],
            "placement groups": self._nodes.placement_groups(),
            "requested": json.loads(self._nodes.requested()),
            "free CPUs": self._nodes.free_cpus(),
            "shared memory": sorted(entries() - self._shared_memory),
            "processes": [" ".join(process.cmdline()) for process in self._processes()],
        }

    def _processes(self) -> list[psutil.Process]:
        found = []
        for process in psutil.process_iter():
            try:
                if self._mark in " ".join(process.cmdline()) and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
            except psutil.NoSuchProcess:
                continue
        return found


NOTHING = {
    "actors": [],
    "placement groups": [],
    "requested": [],
    "free CPUs": 2.0,
    "shared memory": [],
    "processes": [],
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Nodes]:
    with own_shared_memory():
        found = Nodes()
        yield found
        found.close()


@pytest.fixture
def left(nodes: Nodes, tmp_path: Path) -> Left:
    nodes.add(cpus=2)
    wait_until(lambda: nodes.free_cpus() == 2.0)
    return Left(nodes, str(tmp_path / "run"))


def driven(way: str, nodes: Nodes, tmp_path: Path, *sets: str) -> list[dict[str, Any]]:
    """Drive jobs in one process; return what it held before and after each."""
    env = os.environ | {"RAY_ADDRESS": nodes.address, "PYTHONPATH": f"{tmp_path}:{ROOT}"}
    line = [
        sys.executable,
        "-m",
        "tests.e2e.ray.driving",
        way,
        str(tmp_path / "run"),
        str(TIMES),
        str(MNIST_RAY),
        *sets,
    ]
    done = subprocess.run(line, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=170, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    rounds = [json.loads(text) for text in done.stdout.splitlines() if text.startswith("{")]
    assert len(rounds) == 1 + TIMES, done.stdout + done.stderr
    return rounds


def check(rounds: list[dict[str, Any]], left: Left, ended: str) -> None:
    before = rounds[0] | {"ended": ended}
    for after in rounds[1:]:
        assert re.fullmatch(ended, after["ended"], re.DOTALL)
        assert after | {"ended": ended} == before
    wait_until(lambda: left.now() == NOTHING, within_s=20.0, found=left.now)


@pytest.mark.parametrize("way", ["drive", "run"])
def test_starts_without_room_leave_nothing_behind(way: str, left: Left, nodes: Nodes, tmp_path: Path) -> None:
    check(driven(way, nodes, tmp_path, *NO_ROOM), left, ".*found room for 2 of 5 slots.*")


def test_failed_jobs_leave_nothing_behind(left: Left, nodes: Nodes, tmp_path: Path) -> None:
    (tmp_path / "buggy.py").write_text(FAILING)
    check(driven("drive", nodes, tmp_path, "model=buggy:model", "data.prepare=null", "standby.size=0"), left, "1")


def test_stopped_jobs_leave_nothing_behind(left: Left, nodes: Nodes, tmp_path: Path) -> None:
    check(driven("drive", nodes, tmp_path, *LONG), left, "1")
