"""Every command of the README runs as it stands, or says beside it why not (`uv run pytest -m docs`)."""

import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from elastic.events import Record, read
from tests.docs.sandbox import Sandbox, script_of
from tests.readme import Block, blocks

pytestmark = [pytest.mark.docs, pytest.mark.timeout(600)]

WITHIN_S = 400.0
HEALED_S = 120.0
NAMED = "runs/mnist-20261130-120000"  # the run that the page calls by name
KILL, HOSTS = "kill -9", "ELASTIC_HOSTS_FILE"  # blocks that are steps of a story
STORIES = (KILL, HOSTS, "--set epochs=40", "grep -h WorldFormed")


def in_a_story(block: Block) -> bool:
    return any(part in c.line for part in STORIES for c in block.commands)


def block_with(part: str) -> Block:
    (found,) = [block for block in blocks() if any(part in c.line for c in block.commands)]
    return found


@pytest.fixture(scope="session")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Sandbox:
    """Return a clone in which a run has already ended."""
    found = Sandbox(tmp_path_factory.mktemp("clone"))
    found.open()
    found.run(f"elastic run configs/mnist.yaml --set audit=true --set epochs=2 --run-dir {NAMED}", WITHIN_S)
    return found


@pytest.fixture
def fresh(tmp_path: Path) -> Sandbox:
    found = Sandbox(tmp_path)
    found.open()
    return found


@pytest.mark.parametrize("block", [b for b in blocks() if b.script and not in_a_story(b)], ids=lambda b: b.name)
def test_a_command_runs_as_it_stands(block: Block, sandbox: Sandbox) -> None:
    sandbox.run(script_of(block), WITHIN_S)


@pytest.mark.parametrize("script", ["on_ray.py"])
def test_a_snippet_that_is_a_program_runs(script: str, sandbox: Sandbox) -> None:
    assert float(sandbox.run(f"python {script}", WITHIN_S).strip().splitlines()[-1]) >= 0


def wait_for(folder: Path, process: "subprocess.Popen[str]", what: Callable[[list[Record]], bool]) -> None:
    """Return when the facts of the folder's only run are as they should be."""
    deadline = time.monotonic() + WITHIN_S
    while time.monotonic() < deadline:
        files = list(folder.glob("runs/*/events.jsonl"))
        if files and what(list(read(files[0]))):
            return
        assert process.poll() is None, process.communicate()[0][-4000:]
        time.sleep(0.1)
    raise AssertionError("it did not happen")


def trains(records: list[Record], world: int, size: int) -> bool:
    """Tell whether all workers of a world of that size have done a step, `world` being its least number."""
    formed = [r for r in records if r.event == "WorldFormed" and r.get("size") == size and r.generation >= world]
    newest = max((r.generation for r in formed), default=0)
    return len({r.rank for r in records if r.event == "FirstStepDone" and r.generation == newest > 0}) == size


def test_a_killed_worker_heals_within_two_minutes(fresh: Sandbox) -> None:
    if not fresh.is_alone:
        pytest.skip("needs a process namespace, or `pgrep` finds other jobs' workers (root, and util-linux's unshare)")
    run, kill, grep = (block_with(part).script for part in ("--set epochs=40", KILL, "grep -h WorldFormed"))
    begun = "until grep -qs FirstStepDone runs/*/events.jsonl; do sleep 0.2; done"
    began = time.monotonic()
    process = fresh.start(f"{run} &\n{begun}\n{kill}\n{grep}\nwait %1")
    wait_for(fresh.folder, process, lambda records: trains(records, 2, 2))
    assert time.monotonic() - began < HEALED_S
    output, _ = process.communicate(timeout=WITHIN_S)
    assert process.returncode == 0, output
    assert '"event":"WorldFormed"' in output
    assert '"rank"' in output
    shown = {line.split("  ")[0]: line.split("  ")[-1].strip() for line in output.splitlines() if "  " in line}
    assert shown["workers lost"] == "1", output
    assert shown["steps done again"] == "0", output
    assert shown["worlds"] == "2 -> 2", output


def test_hosts_join_and_leave_as_their_file_says(fresh: Sandbox) -> None:
    begin, launch, join, leave = block_with(HOSTS).script.splitlines()
    lines = [begin, launch, "until [ -e joins ]; do sleep 0.1; done", join, "until [ -e leaves ]; do sleep 0.1; done"]
    process = fresh.start("\n".join([*lines, leave, "until [ -e ends ]; do sleep 0.1; done", "kill %1"]))
    wait_for(fresh.folder, process, lambda records: trains(records, 1, 1))
    (fresh.folder / "joins").touch()
    wait_for(fresh.folder, process, lambda records: trains(records, 2, 2))
    (fresh.folder / "leaves").touch()
    wait_for(fresh.folder, process, lambda records: trains(records, 3, 1))
    (fresh.folder / "ends").touch()
    output, _ = process.communicate(timeout=WITHIN_S)
    assert process.returncode == 0, output
