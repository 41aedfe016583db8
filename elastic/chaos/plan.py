"""A plan of faults in YAML, and the schedule that it and a seed come to. Pure.

Theory of operation. A plan is a list of faults, in order. A fault is injected when everything that it
asks for has come true, in this sequence: the faults before it are over (unless `overlap`), training has
reached `step` or gone on for `at_s`, the `event` has been recorded `count` times since, `delay_s` have
passed, a standby is ready (where `warm`), and the target is in the phase `during`. An entry with
`times` stands for that many faults, `every_s` or `every_steps` apart, whose kind and target are drawn
from its lists. The seed alone decides what is drawn, so the same plan and seed give the same faults at
the same steps.
"""

import json
import random
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self, TypeVar

from pydantic import Field, PositiveInt, ValidationError, field_validator, model_validator

from discovery.problems import explain
from elastic.channel import Phase
from elastic.chaos.kinds import AMOUNTS, DISK, IN_WORKER, LASTS_S, STOPPED_S, Kind
from elastic.config import Section
from elastic.errors import ConfigError
from elastic.events import Event
from elastic.jobfile import read_yaml

TARGET = re.compile(r"rank \d+|agent \d+|host \S+|random|all|newcomer|standby|driver")
TARGETS = "'rank N', 'agent N', 'host NAME', random, all, newcomer, standby or driver"
WORKERS = re.compile(r"rank \d+|host \S+|random|all|newcomer")

T = TypeVar("T")


class Fault(Section):
    """One entry of a plan; see the module's head for when it is injected.

    Attributes:
        kind, target: or lists to draw from.
        for_s: how long it lasts; None: the kind's own time, or until it is cured.
        amount: mebibytes that `memory` and `oom` leave, seconds that `clock` jumps, what each way of a host's
            link does under `net_delay` (seconds), `net_loss` (a share) and `net_rate` (bytes a second).
        settle_s: how long the job may take to recover; None: the plan's.
    """

    kind: Kind | tuple[Kind, ...]
    target: str | tuple[str, ...] = "random"
    step: int | None = Field(default=None, ge=1)
    at_s: float | None = Field(default=None, ge=0)
    event: str | None = None
    count: PositiveInt = 1
    delay_s: float = Field(default=0.0, ge=0)
    warm: bool = False
    during: str | None = None
    overlap: bool = False
    for_s: float | None = Field(default=None, gt=0)
    amount: float | None = None
    settle_s: float | None = Field(default=None, gt=0)
    times: PositiveInt = 1
    every_s: float | None = Field(default=None, gt=0)
    every_steps: int | None = Field(default=None, gt=0)

    @field_validator("target")
    @classmethod
    def _targets(cls, value: str | tuple[str, ...]) -> str | tuple[str, ...]:
        for target in _listed(value):
            if not TARGET.fullmatch(target):
                raise ValueError(f"found {target!r}, expected {TARGETS}")
        return value

    @field_validator("event")
    @classmethod
    def _event(cls, value: str | None) -> str | None:
        if value is not None and value not in Event.registry:
            raise ValueError(f"expected the name of an event: {', '.join(sorted(Event.registry))}")
        return value

    @field_validator("during")
    @classmethod
    def _phase(cls, value: str | None) -> str | None:
        if value is not None and value.upper() not in Phase.__members__:
            raise ValueError(f"expected a phase: {', '.join(p.name.lower() for p in Phase)}")
        return value

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if self.times > 1 and (self.every_s is None) == (self.every_steps is None):
            raise ValueError("'times' needs exactly one of 'every_s' and 'every_steps'")
        inside = [kind for kind in _listed(self.kind) if kind in IN_WORKER]
        wrong = [target for target in _listed(self.target) if not WORKERS.fullmatch(target)]
        if inside and wrong:
            raise ValueError(f"{inside[0]} happens inside a worker; found the target {wrong[0]!r}")
        return self


class Plan(Section):
    """Faults in order, and the job they are for.

    Attributes:
        until: when the job is stopped: once all `faults` are over, or never, as it reaches its `goal`.
        limit_s: the whole run ends then, whatever is left.
        settle_s: how long after a fault the job must be whole again.
        hosts: so many hosts of one slot each, on this machine, with a network of their own that can be broken,
            in the place of the job's; None: the job's.
        disk_mb: size of the file system that faults of the disk fill.
        job: laid on the job's configuration.
    """

    name: str = "chaos"
    seed: int = 1
    until: Literal["faults", "goal"] = "faults"
    limit_s: float = Field(default=1800.0, gt=0)
    settle_s: float = Field(default=60.0, gt=0)
    hosts: PositiveInt | None = None
    disk_mb: PositiveInt = 256
    job: dict[str, Any] = Field(default_factory=dict)
    faults: tuple[Fault, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _one_ground(self) -> Self:
        on_disk = [kind for fault in self.faults for kind in _listed(fault.kind) if kind in DISK]
        if self.hosts is not None and on_disk:
            raise ValueError(f"{on_disk[0]} is for jobs on this machine's own file system; leave out 'hosts'")
        return self


@dataclass(frozen=True, slots=True)
class Planned:
    """A fault of the schedule: one kind, one target, a number from 1.

    Attributes:
        draw: in [0, 1), says which of several candidates a target means.
        for_s: how long it lasts before it is undone; None: until the job has cured it.
    """

    number: int
    kind: Kind
    target: str
    draw: float
    step: int | None
    at_s: float | None
    event: str | None
    count: int
    delay_s: float
    warm: bool
    during: Phase | None
    overlap: bool
    for_s: float | None
    amount: float
    settle_s: float


def load_plan(path: Path) -> Plan:
    """Read and check a plan.

    Raises:
        ConfigError: with every problem found, one a line.
    """
    if not path.is_file():
        raise ConfigError(f"{path}: no such file; expected a plan of faults such as configs/chaos/smoke.yaml")
    raw = read_yaml(path)
    raw.setdefault("name", path.stem)
    try:
        return Plan.model_validate(raw)
    except ValidationError as error:
        raise ConfigError("\n".join(explain(str(path), error, Plan))) from None


def schedule(plan: Plan, seed: int) -> tuple[Planned, ...]:
    """Return the faults that a plan and a seed come to, in the order of their injection."""
    chance = random.Random(seed)  # noqa: S311 - to be repeated, not to be secret
    found: list[Planned] = []
    for fault in plan.faults:
        for turn in range(fault.times):
            found.append(_planned(fault, turn, len(found) + 1, chance, plan.settle_s))
    return tuple(found)


def _planned(fault: Fault, turn: int, number: int, chance: random.Random, settle_s: float) -> Planned:
    kind, target = chance.choice(_listed(fault.kind)), chance.choice(_listed(fault.target))
    step, at_s = fault.step, fault.at_s
    if fault.every_steps is not None:
        step = (step or 0) + round(fault.every_steps * (turn + chance.uniform(0.5, 1.0)))
    if fault.every_s is not None:
        at_s = round((at_s or 0.0) + fault.every_s * (turn + chance.uniform(0.5, 1.0)), 3)
    return Planned(
        number=number,
        kind=kind,
        target=target,
        draw=chance.random(),
        step=step,
        at_s=at_s,
        event=fault.event,
        count=fault.count,
        delay_s=fault.delay_s,
        warm=fault.warm,
        during=Phase[fault.during.upper()] if fault.during is not None else None,
        overlap=fault.overlap,
        for_s=fault.for_s if fault.for_s is not None else _lasts_s(kind, target),
        amount=fault.amount if fault.amount is not None else AMOUNTS.get(kind, 0.0),
        settle_s=fault.settle_s if fault.settle_s is not None else settle_s,
    )


def _lasts_s(kind: Kind, target: str) -> float | None:
    """Return how long a fault lasts; a worker that is stopped is cured by its agent, nobody else is by anybody."""
    if kind is Kind.STOP and not WORKERS.fullmatch(target):
        return STOPPED_S
    return LASTS_S.get(kind)


def overrides(laid: Mapping[str, Any], before: str = "") -> Iterator[str]:
    """Yield a nested mapping as `--set` takes it: `a.b=value`."""
    for key, value in laid.items():
        if isinstance(value, Mapping):
            yield from overrides(value, f"{before}{key}.")
        else:
            yield f"{before}{key}={json.dumps(value)}"


def _listed(value: T | tuple[T, ...]) -> tuple[T, ...]:
    return value if isinstance(value, tuple) else (value,)
