import json
import os
import re
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic.errors import ConfigError
from elastic.eventlog import SCHEMA
from elastic.events import Record
from elastic.rundir import RunDir
from elastic.views import series, svg
from elastic.views.goodput import Stretch
from elastic.views.load import Run, load, newest
from elastic.views.pauses import Phase, pauses
from elastic.views.report import html, write
from elastic.views.timeline import lanes
from tests.runs import BROKEN, HEALED, RESTARTED, TRAINING, fact, kept, progressed

VOID = {"meta", "link", "br", "hr", "img", "input"}


def report(records: list[Record]) -> str:
    return html(Run(RunDir(Path("/runs/mnist-1")), records, (), {"epochs": 2}, {"keras": "3.15.0"}), 100.0)


class Tags(HTMLParser):
    """Checks that what opens is closed, and collects what a browser would fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.fetched: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.fetched += [value or "" for name, value in attrs if name in {"src", "href", "srcset", "data", "action"}]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag


def checked(page: str) -> Tags:
    tags = Tags()
    tags.feed(page)
    tags.close()
    assert tags.open == []
    return tags


RUNS = {"healed": HEALED, "restarted": RESTARTED, "training": TRAINING, "broken": BROKEN, "starting": HEALED[:1]}


@pytest.mark.parametrize("records", RUNS.values(), ids=RUNS)
def test_the_page_is_whole_and_needs_no_network(records: list[Record]) -> None:
    page = report(list(records))
    assert set(checked(page).fetched) <= {"data:,"}
    assert "<script" not in page
    assert not re.search(r"https?://|url\(|@import", page)
    for drawing in re.findall(r"<svg.*?</svg>", page, re.DOTALL):
        ET.fromstring(drawing)
        assert not re.search(r'"[^"]*\b(nan|inf)\b[^"]*"', drawing)


def test_a_run_without_facts_has_a_page() -> None:
    checked(report([]))


def test_the_page_tells_the_story() -> None:
    page = report(HEALED)
    for words in (
        "rank 1 on h was killed by SIGKILL; replaced from standby in 0.60 s; 0 steps done again",
        "prefers-color-scheme: dark",
        'name="viewport"',
        "pid 201, rank 1 of world 2",
        "3.15.0",
        "val_loss 0.6000",
    ):
        assert words in page


def test_the_waterfall_adds_up() -> None:
    body = report(HEALED).partition('<table class="fall">')[2].partition("</table>")[0]
    rows = re.findall(r'<td class="n">([\d.]+) s</td><td class="n">([\d.]+) %', body)
    *parts, total = [(float(took), float(share)) for took, share in rows]
    assert sum(took for took, _ in parts) == pytest.approx(total[0], abs=0.05)
    assert total == (30.0, 100.0)
    assert sum(share for _, share in parts) == pytest.approx(100.0, abs=0.5)


def test_the_phases_in_the_table_add_up_to_the_total() -> None:
    body = report(HEALED).partition("what happened")[2].partition("</table>")[0]
    cells = [float(c) for c in re.findall(r'<td class="n">([\d.]+)</td>', body)]
    *phases, total, redone = cells
    assert sum(phases) == pytest.approx(total, abs=2e-3)
    assert (total, redone) == (0.6, 0)


def test_words_of_others_are_no_markup() -> None:
    evil = '<script>alert("x")</script>&\'"'
    records = [
        fact(0.0, "JobStarted", 0, -1, job=evil, restarts=0),
        fact(1.0, "WorkerStarted", 0, 0, worker_pid=100, entry="launched", source=evil),
        *[r for r in TRAINING if r.time > 2.0],
        fact(10.0, "EpochEnded", 1, epoch=0, step=70, samples=5000, metrics={evil: 0.5}, took_s=1.0, size=2),
        fact(10.1, "WorkerFailed", 1, 1, summary=evil, traceback=evil, step=70),
        fact(10.2, "JobFailed", 0, -1, reason=evil),
    ]
    page = report(records)
    checked(page)
    assert "<script" not in page
    for drawing in re.findall(r"<svg.*?</svg>", page, re.DOTALL):
        ET.fromstring(drawing)


def test_the_report_lies_in_the_run_directory_with_its_plots_beside(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    paths = write(kept(tmp_path / "run", HEALED).path)
    names = ["report.html", *(f"report-{name}.png" for name in ("timeline", "pace", "metrics", "goodput"))]
    assert [p.relative_to(tmp_path / "run").as_posix() for p in paths] == names
    for path in paths[1:]:
        assert path.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("records", [RESTARTED, HEALED[:3], BROKEN], ids=["restarted", "starting", "broken"])
def test_plots_can_be_drawn_of_any_run(tmp_path: Path, records: list[Record]) -> None:
    pytest.importorskip("matplotlib")
    assert len(write(kept(tmp_path / "run", list(records)).path, tmp_path / "out" / "r.html")) >= 3


def test_a_run_directory_that_was_copied_tells_the_same(tmp_path: Path) -> None:
    here, there = kept(tmp_path / "here", HEALED), tmp_path / "elsewhere" / "copy"
    there.parent.mkdir()
    here.path.rename(there)
    run = load(there)
    assert run.records == HEALED
    assert run.config == {"name": "mnist", "epochs": 2}
    assert run.versions == {"keras": "3.15.0"}


def test_without_a_launcher_of_ours_versions_are_those_of_the_newest_checkpoint(tmp_path: Path) -> None:
    directory = kept(tmp_path / "run", HEALED[1:])
    for step, keras in ((1, "3.1"), (2, "3.2")):
        folder = directory.checkpoints / f"step-{step:09d}-epoch-00000"
        folder.mkdir()
        (folder / "manifest.json").write_text(json.dumps({"versions": {"keras": keras}}))
    (directory.checkpoints / "step-000000003-epoch-00000").mkdir()
    assert load(directory.path).versions == {"keras": "3.2"}


def test_facts_of_a_newer_schema_are_not_guessed_at(tmp_path: Path) -> None:
    directory = kept(tmp_path / "run", HEALED)
    with directory.events.open("a") as file:
        head = {"time": 99.0, "event": "New", "host": "h", "slot": 0, "pid": 1, "rank": 0, "generation": 1}
        file.write(json.dumps(head | {"schema": SCHEMA + 1}) + "\n")
    with pytest.raises(ConfigError, match=f"schema {SCHEMA + 1}.*up to {SCHEMA}.*newer"):
        load(directory.path)


def test_a_folder_that_is_no_run_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no events\.jsonl in it; expected the directory of a run"):
        load(tmp_path)


def test_the_newest_run_is_taken_where_none_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="expected RUN_DIR"):
        newest(tmp_path / "runs")
    for age, name in ((100, "b"), (300, "c"), (200, "a")):
        events = kept(tmp_path / "runs" / name, HEALED).events
        stamp = 1_000_000_000 - age
        os.utime(events, (stamp, stamp))
    assert newest(tmp_path / "runs") == tmp_path / "runs" / "b"


def test_lives_of_workers_are_cut_where_worlds_form() -> None:
    zero, one = lanes(HEALED)
    assert [(b.begin, b.end, b.pid, b.generation) for b in one.bars] == [
        (1.0, 3.5, 101, 0),
        (3.5, 10.1, 101, 1),
        (10.12, 10.5, 201, 0),
        (10.5, 30.0, 201, 2),
    ]
    assert [(m.time, m.words) for m in one.marks] == [(10.1, "killed by SIGKILL")]
    assert [(b.generation, b.rank) for b in zero.bars] == [(0, -1), (1, 0), (2, 0)]


def test_what_follows_the_end_is_not_drawn() -> None:
    left = fact(33.0, "WorkerLeft", 2, 1, worker_pid=201, reason="goal")
    assert lanes([*HEALED, left])[1].bars[-1].end == 30.0


def test_throughput_is_nothing_while_training_stands_still() -> None:
    points = series.throughput(HEALED, pauses(HEALED))
    assert points == [(0.0, 0.0), (4.0, 0.0), (6.0, 640.0), (9.9, 640.0), (10.0, 0.0), (10.6, 0.0), (12.0, 640.0)]


def test_the_world_size_goes_in_steps() -> None:
    points = series.world_size(pauses(HEALED), 30.0)
    assert points[-1] == (30.0, 2.0)
    assert [p for p in points if 10.0 <= p[0] <= 10.6] == [(10.0, 2.0), (10.0, 0.0), (10.6, 0.0), (10.6, 2.0)]


def test_a_metric_that_was_computed_again_replaces_what_it_was() -> None:
    told = [progressed(float(step), step, metrics={"loss": value}) for step, value in ((1, 4.0), (2, 3.0), (3, 2.0))]
    again = [progressed(9.0, 2, metrics={"loss": 2.5})]
    assert series.running_metrics([*told, *again]) == {"loss": [(64.0, 4.0), (128.0, 2.5)]}


def test_a_model_that_diverged_has_a_report() -> None:
    nan = [
        fact(9.95, "EpochEnded", 1, epoch=0, step=60, samples=5000, metrics={"loss": float("nan")}, took_s=1.0, size=2)
    ]
    worse = [progressed(9.97, 60, metrics={"loss": float("inf")})]
    page = report([*TRAINING, *nan, *worse])
    checked(page)
    assert series.metrics([*TRAINING, *nan]) == {}
    assert len(series.running_metrics([*TRAINING, *worse])["loss"]) == 2


def test_a_long_run_is_drawn_in_few_parts_that_cover_it() -> None:
    spent = [Stretch(Phase.CHECKPOINT if n % 5 == 0 else Phase.USEFUL, float(n), n + 1.0) for n in range(100_000)]
    found = series.coarse(spent, 50.0)
    assert len(found) == 2000
    assert {s.phase for s in found} == {Phase.USEFUL}
    assert all(one.end == other.begin for one, other in pairwise(found))
    assert (found[0].begin, found[-1].end) == (0.0, 100_000.0)
    assert series.coarse(spent[:10], 0.5) == spent[:10]


@given(st.lists(st.tuples(st.floats(-1e6, 1e6), st.floats(-1e6, 1e6)), min_size=1, max_size=2000), st.integers(4, 100))
def test_fewer_points_keep_the_ends_and_the_extremes(points: list[tuple[float, float]], most: int) -> None:
    points.sort()
    kept_points = series.fewer(points, most)
    assert kept_points[0][0] == points[0][0]
    assert kept_points[-1] == points[-1]
    assert set(kept_points) <= set(points)
    assert len(kept_points) <= max(most + 4, min(len(points), most))
    values = [v for _, v in points]
    assert {min(values), max(values)} <= {v for _, v in kept_points}


@given(st.floats(-1e9, 1e9), st.floats(1e-6, 1e9), st.integers(1, 12))
def test_ticks_are_round_and_lie_within(low: float, span: float, most: int) -> None:
    span = max(span, abs(low) * 1e-6)  # what floats can still tell apart
    found = svg.ticks(low, low + span, most)
    assert len(found) <= most + 2
    for one, other in pairwise(found):
        assert other > one
    assert all(low - span * 1e-6 <= t <= low + span * (1 + 1e-6) for t in found)


@pytest.mark.parametrize(
    ("value", "words"), [(0.0, "0"), (0.05, "0.05"), (12.0, "12"), (1500.0, "1.5k"), (2e6, "2M"), (-3e9, "-3G")]
)
def test_numbers_of_an_axis_are_short(value: float, words: str) -> None:
    assert svg.number(value) == words


@pytest.mark.parametrize(("high", "words"), [(8.0, "2s"), (100.0, "20s"), (3000.0, "10m"), (40000.0, "2h")])
def test_times_of_an_axis_are_round(high: float, words: str) -> None:
    assert svg.seconds(svg.time_ticks(high, 6)[1]) == words
