"""Where a run's launcher is, as its agents leave it for hosts without a slot."""

from pathlib import Path

import pytest

from elastic.agent.slot import read_slot
from elastic.agent.word import Launched, leave_word, read_word
from elastic.rundir import RunDir

LAUNCHED = {
    "HOROVOD_HOSTNAME": "h1",
    "HOROVOD_GLOO_RENDEZVOUS_ADDR": "10.0.0.1",
    "HOROVOD_GLOO_RENDEZVOUS_PORT": "5000",
    "ELASTIC_LAUNCHER": "elastic run",
}


def test_what_an_agent_leaves_is_found(tmp_path: Path) -> None:
    leave_word(RunDir(tmp_path), read_slot(LAUNCHED), Path("/jobs/job.yaml"))
    assert read_word(RunDir(tmp_path)) == Launched("10.0.0.1", 5000, "elastic run", "/jobs/job.yaml")


def test_the_newest_launcher_counts(tmp_path: Path) -> None:
    for port in ("5000", "5001"):
        leave_word(RunDir(tmp_path), read_slot(LAUNCHED | {"HOROVOD_GLOO_RENDEZVOUS_PORT": port}), Path("/job.yaml"))
    found = read_word(RunDir(tmp_path))
    assert found is not None
    assert found.port == 5001


def test_a_worker_without_a_launcher_leaves_no_word(tmp_path: Path) -> None:
    leave_word(RunDir(tmp_path), read_slot({}), Path("/job.yaml"))
    assert read_word(RunDir(tmp_path)) is None


@pytest.mark.parametrize("text", ["", "{", "[]", '{"address": "a"}', '{"host": 1}'])
def test_what_is_no_word_is_none(tmp_path: Path, text: str) -> None:
    RunDir(tmp_path).launched.write_text(text)
    assert read_word(RunDir(tmp_path)) is None


def test_nobody_fails_to_train_because_no_word_can_be_left(tmp_path: Path) -> None:
    leave_word(RunDir(tmp_path / "gone"), read_slot(LAUNCHED), Path("/job.yaml"))
