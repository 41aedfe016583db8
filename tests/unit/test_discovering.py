"""A job's own discovery: what it is told, what it says first, what it leaves behind."""

import os
import time
from pathlib import Path

import pytest

from discovery.config import read
from discovery.place import Place
from elastic.config import Config
from elastic.errors import ConfigError
from elastic.jobfile import dump, load
from elastic.launch.discovering import Discovering, settings_of
from elastic.launch.horovodrun import is_local
from elastic.rundir import RunDir

WITHIN_S = 10.0
JOB = "model: elastic.examples.mnist:model\ndata: bundled\n"


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunDir:
    (tmp_path / "runtime").mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "runtime"))
    monkeypatch.chdir(tmp_path)
    return RunDir(tmp_path / "run").create()


def config(text: str, folder: Path) -> Config:
    job = folder / "job.yaml"
    job.write_text(JOB + text)
    return load(job)


def test_by_default_the_hosts_are_those_of_a_file_in_the_run_directory(directory: RunDir) -> None:
    with Discovering(Config(), directory, ("localhost:2",)) as discovering:
        assert discovering.first(WITHIN_S) == ("localhost:2",)
        directory.hosts.write_text("localhost:1\n")
        ends = time.monotonic() + 10
        while discovering.first(WITHIN_S) != ("localhost:1",):
            assert time.monotonic() < ends
            time.sleep(0.05)
    assert "HostListed" in directory.decisions.read_text()
    assert [s.file for s in read(directory.discovery).sources] == [directory.hosts]


def test_nothing_runs_after_the_job(directory: RunDir) -> None:
    place = Place.of(directory.discovery)
    with Discovering(Config(), directory, ("localhost:2",)) as discovering:
        discovering.first(WITHIN_S)
        assert place.daemon() is not None
    assert place.daemon() is None
    assert not place.path.exists()


def test_other_sources_take_the_place_of_the_file(directory: RunDir, tmp_path: Path) -> None:
    (tmp_path / "more").write_text("localhost:3\n")
    found = config("discovery: {sources: [{command: cat more}], settle_s: 2}\n", tmp_path)
    assert settings_of(found, directory).settle_s == 2.0
    assert settings_of(found, directory).notices == directory.notices
    with Discovering(found, directory, ("localhost:2",)) as discovering:
        assert discovering.first(WITHIN_S) == ("localhost:3",)


def test_a_source_that_cannot_be_used_stops_the_job_before_its_start(
    directory: RunDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", "/no/such/file")
    monkeypatch.setenv("HOME", str(tmp_path))
    found = config("discovery: {sources: [{kubernetes: {selector: app=a}}]}\n", tmp_path)
    began = time.monotonic()
    with (
        pytest.raises(ConfigError, match=r"no cluster to ask|client is not installed"),
        Discovering(found, directory, ()) as discovering,
    ):
        discovering.first(WITHIN_S)
    assert time.monotonic() - began < 8.0


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("hosts: [a:1]\ndiscovery: {sources: [{file: b}]}\n", "both say where hosts come from"),
        ("discovery: {sources: [{fil: b}]}\n", "discovery.sources.0.fil: unknown key; did you mean 'file'?"),
        ("discovery: {gate: {chek: none}}\n", "discovery.gate.chek: unknown key; did you mean 'check'?"),
        ("discovery: {setle_s: 1}\n", "discovery.setle_s: unknown key; did you mean 'settle_s'?"),
        ("preemption: {cloud: aws}\n", "preemption.cloud: found 'aws'"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem.replace("?", r"\?")):
        config(text, tmp_path)


def test_a_job_with_sources_is_written_as_it_was_read(tmp_path: Path) -> None:
    found = config("discovery: {sources: [{slurm: {}}, {static: ['a:1']}], gate: {check: none}}\n", tmp_path)
    (tmp_path / "again.yaml").write_text(dump(found))
    assert load(tmp_path / "again.yaml") == found


@pytest.mark.parametrize(
    "source", ["file: hosts", "slurm:", "slurm: {job: 7}", "command: cat more", "ray: {per_slot: 2}"]
)
def test_a_worker_is_given_a_job_with_sources_as_it_was_read(tmp_path: Path, source: str) -> None:
    found = config(f"discovery: {{sources: [{{{source}}}]}}\n".replace("slurm:}", "slurm: }"), tmp_path)
    assert Config.model_validate(found.model_dump(mode="json", by_alias=True)) == found


def test_without_hosts_discovery_says_why_and_goes_on_looking(directory: RunDir) -> None:
    with Discovering(Config(), directory, ("nowhere.invalid:1",)) as discovering:
        assert discovering.first(8.0) == ()  # longer than a daemon waits for somebody to ask
        assert discovering.problem.startswith("no hosts yet: nowhere.invalid: no connection to its port 22")
        directory.hosts.write_text("localhost:1\n")
        assert discovering.first(WITHIN_S) == ("localhost:1",)


def test_no_known_hosts_are_not_this_machine() -> None:
    assert is_local(["localhost:2", f"{os.uname().nodename}:1"])
    assert not is_local(["localhost:2", "node1:1"])
