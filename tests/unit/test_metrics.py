import json
import re
import socket
import urllib.request
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from elastic.errors import ConfigError
from elastic.events import Committed, EventLog, Record
from elastic.heartbeats import Heartbeat
from elastic.rundir import RunDir
from elastic.views import metrics
from elastic.views.load import Following, Run, thinned
from elastic.views.metrics import JobCollector, families, serve
from elastic.views.state import state_of
from tests.runs import BROKEN, HEALED, RESTARTED, TRAINING, progressed

DASHBOARD = Path(__file__).parents[2] / "configs" / "grafana.json"
BEATS = [Heartbeat(11.9, "h", 0, 1, 100, 0, 2, "stepping", 0.01, 0.2, 75, step_s=0.1, own_s=0.02, standbys=1)]


class Scripted:
    """A run directory whose facts a test hands out."""

    def __init__(self, records: list[Record], beats: list[Heartbeat] | None = None) -> None:
        self.run = Run(RunDir(Path("/runs/mnist")), records, beats or [])

    def look(self) -> Run:
        return self.run


def exposed(
    run: Scripted | Following, collector: JobCollector | None = None
) -> dict[tuple[str, frozenset[str]], float]:
    """Return what a scrape brings: values by sample name and label values."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(collector or JobCollector(run))  # type: ignore[arg-type]
    text = generate_latest(registry).decode()
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found[sample.name, frozenset(sample.labels.values())] = sample.value
    return found


def one(found: dict[tuple[str, frozenset[str]], float], name: str, *labels: str) -> float:
    return found[name, frozenset(labels)]


def test_a_scrape_tells_how_the_run_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time", lambda: 12.2)
    found = exposed(Scripted([r for r in HEALED if r.time <= 12.0], BEATS))
    assert one(found, "elastic_job_running") == 1
    assert one(found, "elastic_job_status", "mnist", "running") == 1
    assert one(found, "elastic_job_status", "mnist", "failed") == 0
    assert one(found, "elastic_step") == 75
    assert one(found, "elastic_steps_total") == 75
    assert one(found, "elastic_samples_per_second") == 640
    assert (one(found, "elastic_world_size_workers"), one(found, "elastic_world_generation")) == (2, 2)
    assert one(found, "elastic_recoveries_total", "crash") == 1
    assert one(found, "elastic_workers_lost_total", "crash") == 1
    assert one(found, "elastic_time_seconds_total", "detect") == pytest.approx(0.1, abs=1e-3)
    assert one(found, "elastic_goodput_ratio") == pytest.approx(1 - 4.6 / 12, abs=1e-3)
    assert one(found, "elastic_worker_heartbeat_timestamp_seconds", "0", "h") == pytest.approx(11.7)
    assert one(found, "elastic_worker_own_seconds", "0", "h") == 0.02


def test_a_run_that_says_nothing_has_no_pace_and_shows_since_when(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time", lambda: 500.0)
    found = exposed(Scripted(TRAINING))
    assert one(found, "elastic_samples_per_second") == 0
    assert one(found, "elastic_heard_timestamp_seconds") == 9.9


def test_a_run_that_has_ended_keeps_its_totals() -> None:
    found = exposed(Scripted(HEALED, BEATS))
    assert one(found, "elastic_job_running") == 0
    assert one(found, "elastic_samples_per_second") == 0
    assert one(found, "elastic_checkpoint_timestamp_seconds") == 13.5
    assert one(found, "elastic_checkpoint_duration_seconds") == 0.4
    assert one(found, "elastic_epoch_metric", "loss") == 0.5
    assert not any(name == "elastic_worker_step_seconds" for name, _ in found)


def test_steps_done_again_are_counted_apart() -> None:
    found = exposed(Scripted(RESTARTED))
    assert one(found, "elastic_step") == 90
    assert one(found, "elastic_steps_total") == 100
    assert one(found, "elastic_steps_redone_total") == 10


def test_a_run_without_facts_can_be_scraped() -> None:
    assert one(exposed(Scripted([])), "elastic_step") == 0


def test_what_only_grows_never_goes_back_though_a_moment_changes_its_phase() -> None:
    run = Scripted(TRAINING)
    collector = JobCollector(run)  # type: ignore[arg-type]
    before: dict[tuple[str, frozenset[str]], float] = {}
    for until in [9.9, 10.2, 10.55, 11.0, 12.0, 13.5, 30.0]:
        run.run = Run(run.run.directory, [r for r in HEALED if r.time <= until])
        after = exposed(run, collector)
        for key, value in before.items():
            if key[0].endswith("_total"):
                assert after[key] >= value, key
        before = after
    assert one(before, "elastic_recoveries_total", "crash") == 1


def test_names_follow_the_conventions() -> None:
    state = state_of(Run(RunDir(Path("/r")), HEALED, BEATS), 31.0)
    for family in families(state, BEATS):
        assert re.fullmatch(r"elastic_[a-z_]+", family.name)
        assert family.documentation.endswith(".")
        assert not re.search(r"_(ms|minutes|mb|percent)$", family.name)
        if family.type == "gauge":
            assert not family.name.endswith("_total")
        if re.search(r"duration|timestamp|age", family.name):
            assert family.name.endswith("_seconds")


def test_the_dashboard_asks_for_nothing_that_is_not_exposed() -> None:
    state = state_of(Run(RunDir(Path("/r")), [r for r in HEALED if r.time <= 13.5], BEATS), 13.6)
    known = {sample.name for family in families(state, BEATS) for sample in family.samples}
    raw = json.loads(DASHBOARD.read_text())
    asked = [t["expr"] for panel in raw["panels"] for t in panel["targets"]]
    asked += [a["expr"] for a in raw["annotations"]["list"]]
    named = {name for expr in asked for name in re.findall(r"elastic_[a-z_]+", expr)}
    assert named <= known
    assert len(named) > 15
    for expr in asked:  # what only grows is asked for its growth
        for name in re.findall(r"elastic_[a-z_]+_total", expr):
            assert re.search(rf"(rate|increase)\({name}", expr) or "redone" in name


def test_the_panels_of_the_dashboard_do_not_overlap() -> None:
    panels = json.loads(DASHBOARD.read_text())["panels"]
    taken: set[tuple[int, int]] = set()
    for p in panels:
        at = p["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken, p["title"]
        assert at["x"] + at["w"] <= 24
        taken |= cells


def test_metrics_are_served_over_http_while_the_run_grows(tmp_path: Path) -> None:
    log = EventLog(RunDir(tmp_path).events, host="h")
    port, close = serve(tmp_path, "127.0.0.1", 0)
    try:
        for step in (1, 7):
            log.emit(Committed(epoch=0, step=step))
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
                assert f"elastic_step {float(step)}\n" in answer.read().decode()
    finally:
        close()
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", port), timeout=1)


def test_a_port_that_is_taken_is_the_users_to_change(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=rf"127\.0\.0\.1:{port}.*another metrics\.port"):
            serve(tmp_path, "127.0.0.1", port)


def test_what_is_no_run_directory_is_not_served(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="expected the directory of a run"):
        metrics.serve_until_told(tmp_path, "127.0.0.1", 0)


def test_a_long_run_is_thinned_without_changing_what_it_comes_to() -> None:
    many = [progressed(20.0 + n, 80 + n, 2) for n in range(500)]
    records = [*[r for r in HEALED if r.time <= 13.0], *many]
    kept = thinned(records, 120.0)
    assert len(kept) < 150
    assert [r for r in kept if r.event != "Progressed"] == [r for r in records if r.event != "Progressed"]
    run = RunDir(Path("/r"))
    assert state_of(Run(run, kept), 520.0) == state_of(Run(run, records), 520.0)


def test_thinning_keeps_what_stands_beside_other_facts() -> None:
    assert thinned(BROKEN, 0.0) == BROKEN
    assert thinned([], 0.0) == []
