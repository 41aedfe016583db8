from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sim.world import World


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    world = World(tmp_path, monkeypatch)
    yield world
    world.close()
