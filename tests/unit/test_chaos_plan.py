from pathlib import Path

import pytest

from elastic.channel import Phase
from elastic.chaos.kinds import Kind
from elastic.chaos.plan import Plan, load_plan, overrides, schedule
from elastic.errors import ConfigError
from elastic.jobfile import load, merge, parse_overrides

ROOT = Path(__file__).parents[2]
SHIPPED = sorted((ROOT / "configs" / "chaos").glob("*.yaml"))
DRAWN = {"kind": ["kill", "stop"], "target": ["rank 0", "rank 1", "random"], "times": 40}


def plan(*faults: dict[str, object], **keys: object) -> Plan:
    return Plan.model_validate({"faults": list(faults), **keys})


def test_faults_keep_their_order_and_are_numbered_from_one() -> None:
    found = schedule(plan({"kind": "kill", "target": "rank 1", "step": 50}, {"kind": "clock"}), seed=1)
    assert [(p.number, p.kind, p.target, p.step) for p in found] == [
        (1, Kind.KILL, "rank 1", 50),
        (2, Kind.CLOCK, "random", None),
    ]


def test_what_a_fault_does_not_say_comes_from_its_kind_and_the_plan() -> None:
    (found,) = schedule(plan({"kind": "clock", "during": "saving"}, settle_s=7), seed=1)
    assert (found.amount, found.settle_s, found.during, found.for_s) == (3600.0, 7.0, Phase.SAVING, 5.0)


@pytest.mark.parametrize(
    ("fault", "lasts_s"),
    [
        ({"kind": "stop", "target": "rank 0"}, None),  # its agent cures it
        ({"kind": "stop", "target": "driver"}, 3.0),  # nobody does
        ({"kind": "stop", "target": "agent 0"}, 3.0),
        ({"kind": "stop", "target": "standby", "for_s": 9}, 9.0),
        ({"kind": "kill", "target": "driver"}, None),
        ({"kind": "discovery_empty"}, 5.0),
    ],
)
def test_a_fault_that_nobody_cures_ends_by_itself(fault: dict[str, object], lasts_s: float | None) -> None:
    assert schedule(plan(fault), seed=1)[0].for_s == lasts_s


def test_the_same_plan_and_seed_give_the_same_schedule() -> None:
    storm = plan({**DRAWN, "every_s": 5})
    assert schedule(storm, seed=3) == schedule(storm, seed=3)
    assert schedule(storm, seed=3) != schedule(storm, seed=4)


def test_a_storm_draws_kinds_and_targets_and_goes_on_in_time() -> None:
    found = schedule(plan({**DRAWN, "every_s": 5, "at_s": 10}), seed=1)
    assert {p.kind for p in found} == {Kind.KILL, Kind.STOP}
    assert {p.target for p in found} == {"rank 0", "rank 1", "random"}
    times = [p.at_s or 0.0 for p in found]
    assert times == sorted(times)
    assert times[0] >= 10.0 + 2.5
    assert times[-1] <= 10.0 + 40 * 5


def test_a_storm_by_steps_names_its_steps() -> None:
    found = schedule(plan({**DRAWN, "every_steps": 100}), seed=1)
    steps = [p.step or 0 for p in found]
    assert steps == sorted(steps)
    assert 50 <= steps[0] <= 100
    assert all(p.at_s is None for p in found)


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        ({"kind": "kil"}, "faults.0.kind"),
        ({"kind": "kill", "tagret": "rank 0"}, "faults.0.tagret: unknown key; did you mean 'target'?"),
        ({"kind": "kill", "target": "rank one"}, "found 'rank one', expected 'rank N'"),
        ({"kind": "kill", "event": "WorldForms"}, "expected the name of an event: AgentStarted"),
        ({"kind": "kill", "during": "sleeping"}, "expected a phase: starting, waiting"),
        ({"kind": "kill", "times": 3}, "'times' needs exactly one of 'every_s' and 'every_steps'"),
        ({"kind": "raise", "target": "standby"}, "raise happens inside a worker; found the target 'standby'"),
        ({"kind": ["kill", "fds"], "target": "driver"}, "fds happens inside a worker; found the target 'driver'"),
    ],
)
def test_a_wrong_plan_is_refused_with_what_was_expected(
    tmp_path: Path, fault: dict[str, object], expected: str
) -> None:
    path = tmp_path / "plan.yaml"
    path.write_text(f"faults: [{fault}]")
    with pytest.raises(ConfigError) as refused:
        load_plan(path)
    assert expected in str(refused.value)
    assert str(refused.value).startswith(f"{path}: ")


def test_a_plan_that_is_not_there_or_has_no_faults_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such file; expected a plan"):
        load_plan(tmp_path / "plan.yaml")
    (tmp_path / "plan.yaml").write_text("faults: []")
    with pytest.raises(ConfigError, match="faults: found"):
        load_plan(tmp_path / "plan.yaml")


def test_what_a_plan_says_of_the_job_arrives_there() -> None:
    laid = {"batch": {"per_worker": 32}, "hosts": ["localhost:1", "127.0.0.1:1"], "name": "1e3", "audit": True}
    assert merge({}, parse_overrides(overrides(laid))) == laid


@pytest.mark.parametrize("path", SHIPPED, ids=lambda p: p.stem)
def test_the_shipped_plans_fit_the_main_job(path: Path) -> None:
    found = load_plan(path)
    assert found.name == path.stem
    assert schedule(found, found.seed)
    assert load(ROOT / "configs" / "mnist.yaml", list(overrides(found.job))).epochs > 1000


def test_the_plans_that_the_readme_tells_of_are_there() -> None:
    assert {"smoke", "kills", "freeze", "disk", "network", "storm", "hosts"} == {p.stem for p in SHIPPED}
    assert all(str(path.relative_to(ROOT)) in path.read_text() for path in SHIPPED)


def test_every_kind_of_fault_is_in_a_shipped_plan() -> None:
    assert {p.kind for path in SHIPPED for p in schedule(load_plan(path), seed=1)} == set(Kind)
