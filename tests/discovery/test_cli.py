"""`elastic-discover`: what a person sees."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.discovery.conftest import Asker


def discover(asker: Asker, *words: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "discovery.cli", *words]
    return subprocess.run(
        line, env=asker.whole_env, cwd=asker.folder, capture_output=True, text=True, timeout=60, check=False
    )


@pytest.fixture
def config(asker: Asker) -> Path:
    path = asker.folder / "discovery.yaml"
    path.write_text("sources: [{file: hosts}, {command: 'cat more'}]\nnames: given\ngate: {check: none}\n")
    (asker.folder / "hosts").write_text("a:2\nb:0\nc:x\n")
    (asker.folder / "more").write_text('["d:1"]')
    return path


def test_it_prints_the_hosts(asker: Asker, config: Path) -> None:
    done = discover(asker, "--config", str(config))
    assert (done.returncode, done.stdout) == (0, "a:2\nd:1\n"), done.stderr


def test_it_explains_each_host(asker: Asker, config: Path) -> None:
    (asker.folder / "more").unlink()
    lines = discover(asker, "--config", "discovery.yaml", "--explain").stdout.splitlines()
    said = [line.split(maxsplit=1)[0] + " " + line.split("  ")[-1].strip() for line in lines[1:]]
    assert "one look; no daemon runs" in lines[0]
    assert said[0] == "a:2 it can take workers"
    assert any("it offers 0 slots" in line and " out " in line for line in lines)
    assert any("expected a whole number" in line and " out " in line for line in lines)
    assert any("command cat" in line and "No such file" in line and " source " in line for line in lines)


def test_it_explains_what_the_daemon_has_decided(asker: Asker, config: Path) -> None:
    asking = asker.at(ELASTIC_DISCOVERY=str(config))
    asking.wait_hosts("a:2", "d:1")
    lines = discover(asker, "--config", str(config), "--explain").stdout.splitlines()
    assert "as the daemon" in lines[0]
    assert [line.split()[:2] for line in lines[1:3]] == [["a:2", "in"], ["d:1", "in"]]


def test_watching_prints_decisions_as_they_are_made(asker: Asker, config: Path) -> None:
    line = [sys.executable, "-m", "discovery.cli", "--config", str(config), "--watch"]
    with subprocess.Popen(line, env=asker.whole_env, cwd=asker.folder, stdout=subprocess.PIPE, text=True) as watching:
        assert watching.stdout is not None
        for text in watching.stdout:
            if "HostListed        d" in text:
                break
        (asker.folder / "hosts").write_text("e:1\n")
        told = [next(watching.stdout) for _ in range(2)]
        watching.send_signal(signal.SIGINT)
        assert watching.wait(10) == 0
    assert ["HostDropped" in told[0], "HostListed" in told[1]] == [True, True]
    assert "no source names it any more" in told[0]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("sources: [{file: a}]\nsettle: 3\n", "settle: unknown key; did you mean 'settle_s'?"),
        ("sources: [{file: a, slurm: {}}]\n", "expected exactly one of static, file, command, kubernetes, slurm, ray"),
        ("sources: [{}]\n", "found nothing; expected exactly one of"),
        ("sources: []\n", "sources: there is none"),
        ("settle_s: 3\n", "sources: there is none"),
        ("sources: [{static: ['a:x']}]\n", "expected a whole number"),
        ("sources: [{kubernetes: {}}]\n", "expected exactly one of 'selector' and 'service'"),
        ("sources: [{kubernetes: {selecter: a}}]\n", "did you mean 'selector'?"),
        ("sources: [{file: a}]\ngate: {check: maybe}\n", "gate.check: found 'maybe'"),
        ("sources: [{file: a}]\nempty_times: 0\n", "empty_times: found 0"),
        ("- a\n", "found list, expected keys"),
        ("{", "cannot be read"),
    ],
)
def test_a_wrong_configuration_is_named(asker: Asker, text: str, problem: str) -> None:
    path = asker.folder / "discovery.yaml"
    path.write_text(text)
    done = discover(asker, "--config", str(path))
    assert done.returncode == 2
    assert problem in done.stderr
    assert "Traceback" not in done.stderr


def test_a_section_of_a_job_will_do(asker: Asker) -> None:
    (asker.folder / "hosts").write_text("localhost:3\n")
    path = asker.folder / "job.yaml"
    path.write_text("model: a:b\ndiscovery:\n  sources: [{file: hosts}]\n")
    assert discover(asker, "--config", str(path)).stdout == "localhost:3\n"


def test_the_daemon_writes_its_decisions_where_it_is_told_to(asker: Asker, config: Path) -> None:
    log = asker.folder / "decisions.jsonl"
    asking = asker.at(ELASTIC_DISCOVERY=str(config), ELASTIC_DISCOVERY_LOG=str(log))
    asking.wait_hosts("a:2", "d:1")
    assert '"event": "HostListed", "what": "a"' in log.read_text()


def test_a_daemon_that_is_told_to_end_leaves_no_answer(asker: Asker, config: Path) -> None:
    asking = asker.at(ELASTIC_DISCOVERY=str(config))
    asking.wait_hosts("a:2", "d:1")
    pid = asking.daemon()
    os.kill(pid, signal.SIGTERM)
    while asking.place.daemon() == pid:
        pass
    assert not asking.place.answer.exists()
