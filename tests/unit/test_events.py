import json
import os
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic.eventlog import SCHEMA, files_of, own_file
from elastic.events import (
    Committed,
    Event,
    EventLog,
    JobFailed,
    JobStopped,
    Record,
    Tail,
    WorkerLost,
    WorldFormed,
    last_generation,
    parse,
    read,
)
from elastic.views.catalogue import markdown


def line(time: float, event: str = "Committed", **own: object) -> str:
    head = {"time": time, "event": event, "host": "h", "slot": 0, "pid": 1, "rank": 0, "generation": 1}
    return json.dumps(head | own) + "\n"


def test_a_fact_comes_back_with_who_saw_it(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "events.jsonl", host="node7", slot=3)
    log.rank, log.generation = 1, 4
    log.emit(WorldFormed(size=2, root=0, epoch=1, step=30, phases_s={"sync": 0.25}))
    (record,) = read(log.path)
    assert (record.event, record.host, record.slot, record.rank, record.generation) == ("WorldFormed", "node7", 3, 1, 4)
    assert record.fields == {"size": 2, "root": 0, "epoch": 1, "step": 30, "phases_s": {"sync": 0.25}}
    assert record.get("step") == 30
    assert record.get("absent", "default") == "default"


def test_stamps_follow_their_owner(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "events.jsonl", host="h")
    log.emit(Committed(epoch=0, step=1))
    log.rank, log.generation = 0, 2
    log.emit(Committed(epoch=0, step=2))
    assert [(r.rank, r.generation) for r in read(log.path)] == [(-1, 0), (0, 2)]


def test_two_logs_append_to_one_file(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    first, second = EventLog(path, host="a"), EventLog(path, host="b")
    for log, step in ((first, 1), (second, 2), (first, 3)):
        log.emit(Committed(epoch=0, step=step))
    assert [(r.host, r.get("step")) for r in read(path)] == [("a", 1), ("b", 2), ("a", 3)]


def test_a_log_that_was_closed_holds_no_file_and_opens_it_again(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "events.jsonl")
    held = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    log.emit(JobStopped("once"))
    log.close()
    log.close()
    assert len(os.listdir("/proc/self/fd")) == held  # noqa: PTH208
    log.emit(JobStopped("twice"))
    log.close()
    assert [r.get("reason") for r in read(log.path)] == ["once", "twice"]


def test_a_text_with_line_breaks_stays_one_line(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "events.jsonl", host="h")
    log.emit(JobFailed("first\nsecond\u2028third \u00e9"))
    (record,) = read(log.path)
    assert record.get("reason") == "first\nsecond\u2028third \u00e9"


def test_a_torn_last_line_and_foreign_lines_are_skipped(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    foreign = ["", "not json", "3", '"text"', "[1, 2]", "null", "{}", '{"time": 1, "event": "Committed"}', "\x00\ufffd"]
    path.write_bytes(
        line(1.0, step=1).encode()
        + "".join(f"{text}\n" for text in foreign).encode()
        + b"\xff\xfe\n"
        + line(2.0, step=2).encode()
        + line(3.0, step=3).encode()[:-9]
    )
    assert [r.get("step") for r in read(path)] == [1, 2]


def test_records_are_read_in_the_order_of_their_time(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text(line(3.0, step=3) + line(1.0, step=1) + line(2.0, step=2) + line(2.0, step=22))
    assert [r.get("step") for r in read(path)] == [1, 2, 22, 3]


def test_a_run_without_facts_has_no_records(tmp_path: Path) -> None:
    assert read(tmp_path / "absent.jsonl") == []


@given(st.text())
def test_no_text_makes_the_parser_raise(text: str) -> None:
    assert parse(text) is None


def test_no_fact_has_a_field_that_would_hide_who_saw_it() -> None:
    head = {f.name for f in fields(Record)} - {"fields"}
    hidden = {name: own for name, kind in Event.registry.items() if (own := head & {f.name for f in fields(kind)})}
    assert hidden == {}


def test_a_tail_returns_whole_new_lines_alone(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    tail = Tail(path)
    assert list(tail.new()) == []  # before the file exists
    whole = line(1.0, step=1) + line(2.0, step=2)
    with path.open("w") as file:
        file.write(whole[:-10])
        file.flush()
        assert [r.get("step") for r in tail.new()] == [1]
        assert list(tail.new()) == []
        file.write(whole[-10:] + line(3.0, step=3))
        file.flush()
        assert [r.get("step") for r in tail.new()] == [2, 3]
        assert list(tail.new()) == []


def test_a_tail_can_begin_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text(line(1.0, step=1))
    tail = Tail(path, from_end=True)
    with path.open("a") as file:
        file.write("nonsense\n" + line(2.0, step=2))
    assert [r.get("step") for r in tail.new()] == [2]


def test_a_tail_from_the_end_of_no_file_returns_what_comes(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    tail = Tail(path, from_end=True)
    path.write_text(line(1.0, step=1))
    assert [r.get("step") for r in tail.new()] == [1]


def test_a_sink_that_cannot_write_says_so_once_and_never_raises(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = EventLog(tmp_path / "no" / "such" / "folder" / "events.jsonl", host="h")
    for step in range(3):
        log.emit(Committed(epoch=0, step=step))
    err = capsys.readouterr().err
    assert err.count("events are not written") == 1
    assert len(err.splitlines()) == 1


def test_facts_go_on_once_they_can_be_written_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    log = EventLog(tmp_path / "events.jsonl", host="h")
    log.emit(Committed(epoch=0, step=1))

    def full(fd: int, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("os.write", full)
        log.emit(Committed(epoch=0, step=2))
        log.emit(Committed(epoch=0, step=3))
    log.emit(WorkerLost(worker_pid=1, cause="crash", summary="killed"))
    log.emit(Committed(epoch=0, step=4))
    assert capsys.readouterr().err.count("No space left") == 1
    found = read(log.path)
    assert [r.event for r in found] == ["Committed", "FactsLost", "WorkerLost", "Committed"]
    assert found[1].get("count") == 2
    assert "No space left" in found[1].get("error")


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """Return a folder on a real disk of one page for data."""
    folder = tmp_path / "tiny"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4k,nr_inodes=16", "tmpfs", str(folder)]
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"a file system of one page needs the right to mount: {done.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_full_disk_cuts_a_line_that_no_reader_takes_and_no_later_line_suffers_from(
    tiny_disk: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = EventLog(tiny_disk / "events.jsonl", host="h")
    tail = Tail(log.path)
    for step in range(100):
        log.emit(Committed(epoch=0, step=step))
    assert capsys.readouterr().err.count("events are not written, training goes on") == 1
    whole = [r.get("step") for r in read(log.path)]
    assert whole == list(range(len(whole)))
    assert 10 < len(whole) < 100
    assert [r.get("step") for r in tail.new()] == whole
    assert not log.path.read_bytes().endswith(b"\n")  # a line was indeed cut
    subprocess.run(["mount", "-o", "remount,size=64k", str(tiny_disk)], check=True)
    other = EventLog(log.path, host="other")  # another process, which knows nothing of the cut
    other.emit(Committed(epoch=1, step=200))
    log.emit(Committed(epoch=1, step=201))
    found = list(tail.new())
    assert [(r.event, r.get("step")) for r in found] == [("Committed", 200), ("FactsLost", None), ("Committed", 201)]
    assert found[1].get("count") == 100 - len(whole)
    assert [r.get("step") for r in read(log.path) if r.event == "Committed"] == [*whole, 200, 201]


@given(st.lists(st.integers(0, 400), max_size=6))
def test_whoever_tears_a_line_costs_no_other(cuts: list[int]) -> None:
    """Lines of several writers, some of them cut off at any byte, as a full disk does."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "events.jsonl"
        for number, cut in enumerate(cuts):
            EventLog(path, host="whole").emit(Committed(epoch=0, step=number))
            torn = line(1.0, step=-1, text="x" * 200).encode()[:-1]
            with path.open("ab") as file:
                file.write(torn[: min(cut, len(torn) - 1)])
        EventLog(path, host="last").emit(Committed(epoch=0, step=len(cuts)))
        assert [r.get("step") for r in read(path)] == list(range(len(cuts) + 1))


def test_every_line_bears_the_schema_and_old_lines_are_of_the_first(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "events.jsonl", host="h")
    log.emit(Committed(epoch=0, step=1))
    assert json.loads(log.path.read_text())["schema"] == SCHEMA
    record = parse(line(1.0, step=1))
    assert record is not None
    assert record.schema == 1


def test_a_fact_and_a_field_of_a_later_version_are_no_harm(tmp_path: Path) -> None:
    record = parse(line(1.0, event="FromTheFuture", schema=SCHEMA, step=1, more={"a": [1]}))
    assert record is not None
    assert (record.event, record.get("more")) == ("FromTheFuture", {"a": [1]})


def test_machines_that_share_a_file_system_write_files_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "events.jsonl"
    for machine, steps in (("node-a", (1, 3)), ("node-b", (2, 4))):
        with monkeypatch.context() as patch:
            patch.setattr("elastic.eventlog.is_shared", lambda path: True)
            patch.setattr("socket.gethostname", lambda name=machine: name)
            log = EventLog(path, host=machine)
            for step in steps:
                patch.setattr("time.time", lambda at=float(step): at)
                log.generation = step
                log.emit(Committed(epoch=0, step=step))
    assert not path.exists()
    assert [p.name for p in files_of(path)[1:]] == ["events-node-a.jsonl", "events-node-b.jsonl"]
    assert [r.get("step") for r in read(path)] == [1, 2, 3, 4]
    assert last_generation(path) == 4


def test_a_tail_finds_the_files_of_machines_that_come_later(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text(line(1.0, step=1))
    tail = Tail(path, from_end=True)
    (tmp_path / "events-late.jsonl").write_text(line(2.0, step=2))
    assert [r.get("step") for r in tail.new()] == [2]


def test_one_machines_own_disk_needs_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("elastic.eventlog.is_shared", lambda path: False)
    assert own_file(tmp_path / "events.jsonl") == tmp_path / "events.jsonl"


def test_the_newest_generation_is_read_from_the_end_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    assert last_generation(path) == 0
    log = EventLog(path)
    for generation in (1, 2, 7):
        log.generation = generation
        log.emit(JobStopped("x" * 100_000))
    log.generation = 3
    log.emit(JobStopped("an agent that has not heard"))
    with path.open("a") as file:
        file.write('{"torn')
    assert last_generation(path) == 7


def test_the_page_of_all_facts_is_up_to_date() -> None:
    page = Path(__file__).parents[2] / "elastic" / "views" / "EVENTS.md"
    assert page.read_text() == markdown(), "make it again: python -m elastic.views.catalogue > elastic/views/EVENTS.md"


def test_every_fact_says_what_it_means() -> None:
    silent = [name for name, kind in Event.registry.items() if (kind.__doc__ or "").startswith(f"{name}(")]
    assert silent == []
