"""Fixtures: one slot's proxy before a launcher's rendezvous, Horovod's own or a scripted one."""

from collections.abc import Iterator

import pytest

from elastic.agent import upstream
from tests.contract.launchers import LONG_S, Driver, HorovodServer, LauncherServer, ScriptedServer, Slot


@pytest.fixture
def driver() -> Driver:
    return Driver()


@pytest.fixture(params=[HorovodServer, ScriptedServer])
def launcher(request: pytest.FixtureRequest, driver: Driver) -> LauncherServer:
    server: LauncherServer = request.param(driver)
    return server


@pytest.fixture
def slot(launcher: LauncherServer) -> Iterator[Slot]:
    slot = Slot(launcher.start(), LONG_S)
    yield slot
    slot.close()
    launcher.stop()


@pytest.fixture
def impatient(launcher: LauncherServer) -> Iterator[Slot]:
    slot = Slot(launcher.start(), hold_s=0.05)
    yield slot
    slot.close()
    launcher.stop()


@pytest.fixture
def orphan(launcher: LauncherServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Slot]:
    """A slot whose launcher is gone."""
    monkeypatch.setattr(upstream, "CONNECT_S", 0.05)
    slot = Slot(launcher.start(), LONG_S)
    launcher.stop()
    yield slot
    slot.close()


@pytest.fixture
def scripted(driver: Driver) -> Iterator[tuple[ScriptedServer, Slot]]:
    server = ScriptedServer(driver)
    slot = Slot(server.start(), LONG_S)
    yield server, slot
    slot.close()
    server.stop()
