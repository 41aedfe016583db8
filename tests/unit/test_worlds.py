"""Two worlds never train at the same time."""

from elastic.events import Record
from elastic.views.worlds import at_once
from tests.runs import HEALED, first_step, formed, progressed


def elsewhere(record: Record) -> Record:
    return Record(record.time, record.event, "h2", record.slot, 900, 0, record.generation, record.fields)


def test_a_world_that_follows_another_is_no_second_one() -> None:
    assert at_once(HEALED) == []


def test_a_world_beside_another_is_found() -> None:
    ours = [*first_step(1.0, 1, 1, 0.0), progressed(2.0, 20), *first_step(4.0, 2, 21, 2.0), progressed(9.0, 60, 2)]
    theirs = [elsewhere(r) for r in (*first_step(8.5, 2, 21, 2.0), progressed(12.0, 50, 2))]
    found = at_once(sorted([*ours, *theirs], key=lambda r: r.time))
    assert [(a.host, a.generation, b.host, b.generation) for a, b in found] == [("h", 2, "h2", 2)]


def test_a_world_that_begins_when_the_other_has_ended_is_its_successor() -> None:
    ours = [*first_step(1.0, 1, 1, 0.0), progressed(2.0, 20)]
    theirs = [elsewhere(r) for r in (*formed(1.5, 2, 1, 20), *first_step(2.0, 2, 21, 2.0), progressed(3.0, 30, 2))]
    assert at_once(sorted([*ours, *theirs], key=lambda r: r.time)) == []


def test_one_process_that_goes_from_world_to_world_is_in_one_at_a_time() -> None:
    ours = [*first_step(1.0, 1, 1, 0.0), progressed(5.0, 20), *first_step(4.0, 2, 21, 2.0), progressed(9.0, 60, 2)]
    assert at_once(sorted(ours, key=lambda r: r.time)) == []
