"""Whatever happens, in whatever order: nobody is stuck, the world becomes what the hosts are, and the goal counts."""

import os
from collections.abc import Iterator

import pytest

from elastic.agent import ahead as ahead_module
from tests.contract.cluster import wait_for
from tests.contract.storm import Storm

SEEDS = range(int(os.environ.get("STORM_FROM", "0")), int(os.environ.get("STORM_TO", "20")))


@pytest.fixture
def storm(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[Storm]:
    monkeypatch.setattr(ahead_module, "POLL_S", 0.01)
    monkeypatch.setattr(ahead_module, "WATCH_S", 0.03)
    storm = Storm(monkeypatch, request.param)
    yield storm
    storm.cluster.close()


@pytest.mark.chaos
@pytest.mark.parametrize("storm", SEEDS, indirect=True)
def test_a_job_survives_a_storm(storm: Storm) -> None:
    try:
        wait_for(lambda: storm.trains({"a", "b"}))
        storm.rage(seconds=3.0)
        storm.note("calm")
        wait_for(storm.is_calm)
        storm.change(storm.living()[0].slot.info.hostname)
        wait_for(lambda: storm.trains(storm.expected()))
        storm.change(storm.living()[0].slot.info.hostname)
        storm.note("goal")
        storm.goal.set()
        results = storm.cluster.results()
        assert set(results.values()) == {0}, results
        assert not storm.failures
    except BaseException:
        print(storm.story())
        raise
