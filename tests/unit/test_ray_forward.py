"""Facts of a host that does not share the driver's run directory."""

from pathlib import Path

import pytest

from elastic.launch.ray.forward import Forwarder


@pytest.fixture
def events(tmp_path: Path) -> Path:
    return tmp_path / "events.jsonl"


def append(events: Path, text: str) -> None:
    with events.open("a") as file:
        file.write(text)


def test_each_whole_line_is_forwarded_once(events: Path) -> None:
    forwarder = Forwarder(events)
    assert forwarder.new() == []
    append(events, "one\ntwo\nthr")
    assert forwarder.new() == ["one", "two"]
    append(events, "ee\n")
    assert forwarder.new() == ["three"]
    assert forwarder.new() == []
    forwarder.close()


def test_one_actor_of_a_host_forwards_at_a_time_and_the_next_goes_on_where_it_stopped(events: Path) -> None:
    first, second = Forwarder(events), Forwarder(events)
    append(events, "one\n")
    assert first.new() == ["one"]
    append(events, "two\n")
    assert second.new() == []
    first.close()
    assert second.new() == ["two"]
    second.close()
