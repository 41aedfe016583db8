import io
import json
from dataclasses import asdict
from pathlib import Path

import pytest
from rich.console import Console

from elastic.events import Record
from elastic.heartbeats import Heartbeat
from elastic.rundir import RunDir
from elastic.views.load import Run
from elastic.views.state import State, state_of
from elastic.views.status import duration, page, show
from tests.runs import BROKEN, HEALED, RESTARTED, TRAINING, fact, kept

RUN = RunDir(Path("/runs/mnist-1"))
SLOW = fact(12.0, "WorkerStraggled", 2, 0, of_host="h", of_slot=1, of_rank=1, own_s=0.09, peers_s=0.02)
BEATS = [
    Heartbeat(11.9, "h", 0, 1, 100, 0, 2, "stepping", 0.01, 0.2, 75, step_s=0.1, own_s=0.02, standbys=0, warming=1),
    Heartbeat(11.8, "h", 1, 2, 201, 1, 2, "stepping", 0.01, 0.1, 75, step_s=0.1, own_s=0.09),
]


def state(records: list[Record], now: float, beats: list[Heartbeat] | None = None, epochs: int = 2) -> State:
    return state_of(Run(RUN, records, beats or [], {"epochs": epochs, "name": "from the config"}), now)


def upto(time: float) -> list[Record]:
    return [r for r in HEALED if r.time <= time]


def test_a_run_in_progress_says_where_it_is() -> None:
    found = state(upto(12.0), 12.2, BEATS)
    assert (found.job, found.phase, found.summary.status) == ("mnist", "training", "running")
    assert (found.epoch, found.epochs, found.consumed, found.owed) == (1, 2, 4800, 5000)
    assert (found.generation, found.size, found.samples_per_s) == (2, 2, 640.0)
    assert found.silent_s == pytest.approx(0.2)
    # from 6.0 to 12.0, the pause included, 55 steps of 64 samples; 5,200 of 10,000 are left
    assert found.eta_s == pytest.approx(5200 * 6.0 / (55 * 64) - 0.2, abs=0.1)


def test_workers_are_told_of_by_facts_and_heartbeats() -> None:
    zero, one = state([*upto(12.0), SLOW], 12.2, BEATS).members
    assert (zero.rank, zero.host, zero.slot, zero.pid, zero.state, zero.straggles) == (
        0,
        "h",
        0,
        100,
        "stepping",
        False,
    )
    assert zero.heartbeat_s == pytest.approx(0.3 + 0.2)  # written so long ago, and silent then
    assert (one.pid, one.own_s, one.straggles) == (201, 0.09, True)


def test_a_straggler_is_one_until_it_has_caught_up_or_another_world_is_there() -> None:
    up = fact(12.1, "WorkerCaughtUp", 2, 0, of_host="h", of_slot=1, of_rank=1, own_s=0.02)
    assert not state([*upto(12.0), SLOW, up], 12.2, BEATS).members[1].straggles
    before = fact(9.95, "WorkerStraggled", 1, 0, of_host="h", of_slot=1, of_rank=1, own_s=0.09, peers_s=0.02)
    assert not state(sorted([*upto(12.0), before], key=lambda r: r.time), 12.2, BEATS).members[1].straggles


def test_a_heartbeat_of_a_worker_that_was_replaced_is_not_its_successors() -> None:
    before = Heartbeat(10.0, "h", 1, 2, 101, 1, 1, "stepping", 0.0, 5.0, 60)
    one = state(upto(12.0), 12.2, [BEATS[0], before]).members[1]
    assert (one.pid, one.state, one.heartbeat_s) == (201, "?", None)


@pytest.mark.parametrize(
    ("records", "beats", "phase"),
    [
        (HEALED[:3], [], "starting"),
        (TRAINING, [], "training"),
        (TRAINING, [Heartbeat(9.9, "h", 0, 1, 100, 0, 1, "validating")], "validating"),
        (BROKEN, [], "recovering"),
        (HEALED, BEATS, "finished"),
        ([*TRAINING, fact(12.0, "JobFailed", 0, -1, reason="slot given up")], [], "failed"),
    ],
)
def test_the_phase_is_that_of_the_job(records: list[Record], beats: list[Heartbeat], phase: str) -> None:
    assert state(list(records), 12.0, beats).phase == phase


def test_standbys_are_those_that_wait() -> None:
    assert state(TRAINING, 10.0).standbys == 1
    assert state(BROKEN, 10.2).standbys == 0
    lost = fact(9.9, "StandbyLost", 1, 0, standby_pid=201, reason="died")
    assert state([*TRAINING, lost], 10.0).standbys == 0
    assert state(upto(12.0), 12.2, BEATS).warming == 1
    assert state(HEALED, 31.0, BEATS).warming == 0


def test_a_run_that_has_ended_has_nothing_to_go() -> None:
    found = state(HEALED, 1000.0, BEATS)
    assert (found.eta_s, found.silent_s, found.epoch, found.epochs) == (None, None, 2, 2)
    assert found.summary.metrics == {"loss": 0.5}
    assert [m.state for m in found.members] == ["?", "?"]


def test_losses_and_checkpoints_are_counted() -> None:
    found = state(HEALED, 31.0)
    assert found.lost == {"crash": 1}
    assert found.checkpoints == 1
    assert found.checkpoint is not None
    assert (found.checkpoint.step, found.checkpoint.took_s, found.checkpoint.blocked_s) == (79, 0.4, 0.25)
    assert state(RESTARTED, 21.0).lost == {"crash": 2}


def test_the_latest_facts_are_in_plain_words_and_a_recovery_is_one() -> None:
    texts = [text for _, text in state(upto(12.0), 12.2).latest]
    assert texts == [
        "world 1: 2 workers, from step 0",
        "rank 1 on h was killed by SIGKILL; replaced from standby in 0.60 s; 0 steps done again",
    ]


def test_a_run_without_facts_is_starting() -> None:
    found = state([], 12.0)
    assert (found.job, found.phase, found.members, found.latest) == ("from the config", "starting", (), ())


def test_json_holds_all_of_it() -> None:
    raw = json.loads(json.dumps(asdict(state([*upto(12.0), SLOW], 12.2, BEATS))))
    assert raw["members"][1]["straggles"] is True
    assert raw["seconds"]["useful"] > 0
    assert raw["recoveries"][0]["cause"] == "crash"
    assert raw["summary"]["goodput"] == pytest.approx(1 - 4.6 / 12, abs=1e-3)


def shown(found: State, now: float, width: int = 110) -> str:
    console = Console(width=width, record=True, file=io.StringIO(), color_system=None)
    console.print(page(found, now))
    return console.export_text()


def test_the_page_says_what_matters() -> None:
    text = shown(state([*upto(12.0), SLOW], 12.2, BEATS), 12.2)
    for words in (
        "mnist  training",
        "1/2",
        "4800/5000 samples",
        "640 samples/s, ",
        "2: 2 workers; 0 standbys ready, 1 warming",
        "rank 1 on h was killed by SIGKILL; replaced from standby in 0.60 s",
        "stepping, slow",
        "20 ms",
        "/runs/mnist-1",
    ):
        assert words in text
    assert "silence" not in text


def test_a_run_that_says_nothing_is_said_to() -> None:
    assert "nothing heard for 10 min 0 s" in shown(state(TRAINING, 609.9), 609.9)
    assert "silence" not in shown(state(HEALED, 10_000.0), 10_000.0)


def test_words_of_others_are_shown_as_they_are() -> None:
    reason = "[bold]ValueError[/]: [/nonsense]"
    text = shown(state([*TRAINING, fact(12.0, "JobFailed", 0, -1, reason=reason)], 13.0), 13.0)
    assert reason in text


def test_a_narrow_terminal_is_enough() -> None:
    text = shown(state(upto(12.0), 12.2, BEATS), 12.2, width=60)
    assert all(len(line) <= 60 for line in text.splitlines())


@pytest.mark.parametrize(
    ("took_s", "words"),
    [
        (-1.0, "0.0 s"),
        (8.14, "8.1 s"),
        (59.94, "59.9 s"),
        (200, "3 min 20 s"),
        (7500, "2 h 5 min"),
        (273600, "3 d 4 h"),
    ],
)
def test_durations_are_for_people(took_s: float, words: str) -> None:
    assert duration(took_s) == words


def test_a_run_that_has_ended_is_watched_to_its_end_which_is_now(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = kept(tmp_path / "run", HEALED)
    show(run.path, watch=True, as_json=False)
    assert "mnist  finished" in capsys.readouterr().out
    show(run.path, watch=True, as_json=True)
    (line,) = capsys.readouterr().out.splitlines()
    assert json.loads(line)["phase"] == "finished"


def test_a_run_is_watched_until_it_ends(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = kept(tmp_path / "run", BROKEN)
    rest = [asdict(r) for r in HEALED[len(BROKEN) :]]

    def next_second(_: float) -> None:
        with run.events.open("a") as file:
            for raw in (rest.pop(0) for _ in range(min(4, len(rest)))):
                file.write(json.dumps(raw | raw.pop("fields")) + "\n")

    monkeypatch.setattr("elastic.views.status.time.sleep", next_second)
    show(run.path, watch=True, as_json=True)
    phases = [json.loads(line)["phase"] for line in capsys.readouterr().out.splitlines()]
    assert list(dict.fromkeys(phases)) == ["recovering", "training", "finished"]
    assert rest == []
