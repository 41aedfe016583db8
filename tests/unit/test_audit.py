"""The audit finds what was used twice or left out, from the workers' records alone."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from elastic.cli import app
from elastic.errors import ConfigError
from elastic.progress import Progress
from elastic.views.audit import audit, tell
from elastic.worker.audit import AuditLog


class Story:
    """Writes the records of workers as they would."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def say(self, worker: str, **line: Any) -> "Story":
        with (self.folder / f"{worker}.jsonl").open("a") as file:
            file.write(json.dumps(line) + "\n")
        return self

    def world(self, generation: int, step: int, *workers: str, epoch: int = 0) -> "Story":
        for worker in workers:
            self.say(worker, world=generation, epoch=epoch, step=step)
        return self

    def step(self, generation: int, step: int, done: bool = True, epoch: int = 0, **fed: list[int]) -> "Story":
        for worker, indices in fed.items():
            self.say(worker, fed=generation, epoch=epoch, step=step, indices=indices)
        for worker in fed:
            if done:
                self.say(worker, done=generation, step=step)
        return self

    def ended(self, generation: int, worker: str, samples: int, owed: int | None = None, epoch: int = 0) -> "Story":
        return self.say(worker, ended=generation, epoch=epoch, samples=samples, owed=samples if owed is None else owed)


@pytest.fixture
def story(tmp_path: Path) -> Story:
    return Story(tmp_path)


def test_an_undisturbed_epoch_is_exact(story: Story) -> None:
    story.world(1, 0, "a", "b").step(1, 1, a=[3, 1], b=[0, 2]).step(1, 2, a=[5], b=[4]).ended(1, "a", 6)
    found = audit(story.folder)
    assert found.exact
    assert (found.steps, found.undone, found.workers, found.torn) == (2, 0, 2, 0)
    assert tell(found)[-1] == "exactly once"


def test_a_step_that_failed_and_was_done_again_by_others_counts_once(story: Story) -> None:
    story.world(1, 0, "a", "b").step(1, 1, a=[0], b=[1])
    story.step(1, 2, done=False, a=[2], b=[3])
    story.world(2, 1, "a", "c").step(2, 2, a=[2], c=[3]).ended(2, "a", 4)
    found = audit(story.folder)
    assert found.exact
    assert found.undone == 0


def test_a_step_that_only_a_killed_worker_saw_complete_counts_when_the_next_world_has_it(story: Story) -> None:
    story.world(1, 0, "a", "b").step(1, 1, done=False, a=[0], b=[1])
    story.world(2, 1, "a", "c").step(2, 2, a=[2], c=[3]).ended(2, "c", 4)
    assert audit(story.folder).exact


def test_steps_beyond_a_checkpoint_are_undone(story: Story) -> None:
    story.world(1, 0, "a").step(1, 1, a=[0]).step(1, 2, a=[1]).step(1, 3, a=[2])
    story.world(2, 1, "b").step(2, 2, b=[1]).step(2, 3, b=[2]).ended(2, "b", 3)
    found = audit(story.folder)
    assert found.exact
    assert (found.steps, found.undone) == (3, 2)


def test_a_world_that_did_nothing_hides_nothing(story: Story) -> None:
    story.world(1, 0, "a").step(1, 1, a=[0]).step(1, 2, a=[1])
    story.world(2, 2, "a")
    story.world(3, 2, "b").step(3, 3, b=[2]).ended(3, "b", 3)
    found = audit(story.folder)
    assert found.exact
    assert found.steps == 3


def test_a_sample_used_twice_is_named(story: Story) -> None:
    story.world(1, 0, "a").step(1, 1, a=[0, 1]).step(1, 2, a=[1, 2]).ended(1, "a", 3)
    found = audit(story.folder)
    assert not found.exact
    assert found.epochs[0].twice == (1,)
    assert "used more than once: 1" in tell(found)[0]
    assert tell(found)[-1] == "NOT exact"


def test_a_sample_left_out_is_named(story: Story) -> None:
    story.world(1, 0, "a").step(1, 1, a=[0, 2]).ended(1, "a", 4)
    assert audit(story.folder).epochs[0].missing == (1, 3)


def test_a_sample_that_does_not_exist_is_named(story: Story) -> None:
    story.world(1, 0, "a").step(1, 1, a=[0, 9]).ended(1, "a", 1)
    assert audit(story.folder).epochs[0].stray == (9,)


def test_many_indices_at_fault_are_not_all_listed(story: Story) -> None:
    story.world(1, 0, "a").ended(1, "a", 100)
    assert "and 80 more" in str(audit(story.folder).epochs[0].fault)


def test_a_dropped_last_batch_is_not_owed(story: Story) -> None:
    story.world(1, 0, "a").step(1, 1, a=[4, 0]).step(1, 2, a=[1, 2]).ended(1, "a", 5, owed=4)
    assert audit(story.folder).exact
    story.step(1, 3, a=[3])
    assert audit(story.folder).epochs[0].fault == "5 samples used, 4 owed"


def test_the_same_samples_in_the_next_epoch_are_no_repetition(story: Story) -> None:
    story.world(1, 0, "a").step(1, 1, a=[0, 1]).ended(1, "a", 2)
    story.step(1, 2, a=[1, 0], epoch=1).ended(1, "a", 2, epoch=1)
    found = audit(story.folder)
    assert found.exact
    assert [e.used for e in found.epochs] == [2, 2]


def test_an_epoch_in_progress_owes_nothing_yet_but_repeats_nothing_either(story: Story) -> None:
    story.world(1, 0, "a").step(1, 1, a=[0, 1])
    found = audit(story.folder)
    assert found.exact
    assert tell(found)[0] == "epoch 1: in progress, 2 samples so far: none used twice"
    story.step(1, 2, a=[1])
    assert not audit(story.folder).exact


def test_a_last_line_cut_off_by_a_kill_is_counted_and_left_out(story: Story) -> None:
    story.world(1, 0, "a").step(1, 1, a=[0]).ended(1, "a", 1)
    with (story.folder / "a.jsonl").open("a") as file:
        file.write('{"fed": 1, "epo')
    found = audit(story.folder)
    assert found.exact
    assert found.torn == 1


def test_a_broken_line_in_the_middle_is_an_error_that_names_it(story: Story) -> None:
    (story.folder / "a.jsonl").write_text('{"world": 1, "epoch": 0, "step": 0}\nnonsense\n')
    with pytest.raises(ValueError, match=r"a\.jsonl, line 2: found b'nonsense'"):
        audit(story.folder)


def test_a_line_of_an_unknown_kind_is_an_error(story: Story) -> None:
    story.say("a", eaten=3)
    with pytest.raises(ValueError, match="expected one of world, fed, done, ended"):
        audit(story.folder)


def test_no_records_prove_nothing(story: Story) -> None:
    assert not audit(story.folder).exact


@pytest.mark.parametrize(("ended", "code"), [(2, 0), (3, 1)])
def test_the_command_proves_or_refutes(tmp_path: Path, ended: int, code: int) -> None:
    (tmp_path / "audit").mkdir()
    Story(tmp_path / "audit").world(1, 0, "a").step(1, 1, a=[0, 1]).ended(1, "a", ended)
    result = CliRunner().invoke(app, ["audit", str(tmp_path)])
    assert result.exit_code == code
    assert result.output.splitlines()[-1] == ("exactly once" if code == 0 else "NOT exact")


def test_a_run_without_records_is_told_how_to_get_them(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["audit", str(tmp_path)])
    assert isinstance(result.exception, ConfigError)
    assert "--set audit=true" in str(result.exception)


def test_what_a_worker_writes_is_what_the_audit_reads(tmp_path: Path) -> None:
    log = AuditLog(tmp_path, "alpha-0-1")
    at = Progress()
    log.world(1, at)
    for indices in ([2, 0], [1]):
        log.fed(np.array(indices))
        at = at.after_step(len(indices))
        log.done(at)
    log.fed(np.zeros(0, np.int64))
    log.ended(at, samples=3, owed=3)
    log.epoch(at.after_epoch())
    log.fed(np.array([1]))
    found = audit(tmp_path)
    assert found.exact
    assert [(e.ended, e.used) for e in found.epochs] == [(True, 3)]
    log.done(at.after_epoch().after_step(1))
    assert [(e.ended, e.used) for e in audit(tmp_path).epochs] == [(True, 3), (False, 1)]


def test_a_disk_that_takes_no_more_stops_the_worker(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left"):
        AuditLog(tmp_path, "a").world(1, Progress())
