"""What discovery can be told, as values that check themselves. Durations end in `_s`.

Loaded by the daemon and the command line, never on the path of `discover_hosts.sh`.
"""

import shlex
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from discovery.damp import DampRule
from discovery.gate import GateRule
from discovery.hosts import SourceError, parse
from discovery.listing import Rules
from discovery.problems import explain
from discovery.trust import TrustRule


class DiscoveryConfigError(Exception):
    """The user must change the configuration; every problem is named, one a line."""


class Section(BaseModel):
    """A part of the configuration: frozen, and closed to unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class KubernetesSection(Section):
    """Pods of a `selector`, or endpoints of a `service`.

    `slots` counts where neither the annotation `slots_annotation` nor the resource `slots_resource`
    of a pod says anything. `name_is`: what the launcher calls a pod.
    """

    selector: str | None = None
    service: str | None = None
    namespace: str | None = None
    context: str | None = None
    kubeconfig: str | None = None
    slots: int = Field(default=1, ge=1)
    slots_annotation: str = "elastic/slots"
    slots_resource: str = "nvidia.com/gpu"
    name_is: Literal["ip", "hostname"] = "ip"

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.selector is None) == (self.service is None):
            raise ValueError("expected exactly one of 'selector' and 'service'")
        return self


class SlurmSection(Section):
    """A job's nodes; by default those of the job that this runs in."""

    job: str = ""
    slots: int | None = Field(default=None, ge=1)

    @field_validator("job", mode="before")
    @classmethod
    def _number(cls, value: Any) -> Any:
        return str(value) if isinstance(value, int) else value


class RaySection(Section):
    """A Ray cluster's nodes; `resource` makes slots, `per_slot` of it each."""

    address: str = "auto"
    resource: str | None = None
    per_slot: float = Field(default=1.0, gt=0)


class SourceSection(Section):
    """One source: exactly one key."""

    static: tuple[str, ...] | None = None
    file: Path | None = None
    command: tuple[str, ...] | None = None
    kubernetes: KubernetesSection | None = None
    slurm: SlurmSection | None = None
    ray: RaySection | None = None

    @model_validator(mode="before")
    @classmethod
    def _given(cls, value: Any) -> Any:
        """Take a source's plain form, in which the other keys are there without a value."""
        if isinstance(value, dict) and len(value) > 1:
            return {key: given for key, given in value.items() if given is not None}
        return value

    @field_validator("command", mode="before")
    @classmethod
    def _words(cls, value: Any) -> Any:
        return tuple(shlex.split(value)) if isinstance(value, str) else value

    @field_validator("command")
    @classmethod
    def _some(cls, value: tuple[str, ...] | None) -> tuple[str, ...] | None:
        if value is not None and not value:
            raise ValueError("expected a program and its arguments")
        return value

    @field_validator("static")
    @classmethod
    def _lines(cls, value: tuple[str, ...] | None) -> tuple[str, ...] | None:
        try:
            found = parse("\n".join(value or ()))
        except SourceError as error:
            raise ValueError(str(error)) from None
        if found.left_out:
            raise ValueError(f"{found.left_out[0].what}: {found.left_out[0].reason}")
        return value

    @field_validator("kubernetes", "slurm", "ray", mode="before")
    @classmethod
    def _empty(cls, value: Any) -> Any:
        return {} if value is None else value

    @model_validator(mode="after")
    def _one(self) -> Self:
        given = [name for name in type(self).model_fields if getattr(self, name) is not None]
        if len(given) != 1:
            known = ", ".join(type(self).model_fields)
            raise ValueError(f"found {', '.join(given) or 'nothing'}; expected exactly one of {known}")
        return self


class GateSection(Section):
    """What a host other than this one must show before it is listed.

    `check`: `none`; `tcp`: its sshd answers; `ssh`: also the same versions, `disk_bytes` free at
    `folder`, a name of its own that others can reach, and success of `command` there. That may take
    `timeout_s`; a listed host's sshd must greet within `pulse_s`, which outlasts a lost packet.
    """

    check: Literal["none", "tcp", "ssh"] = "ssh"
    port: int = Field(default=22, ge=1, le=65535)
    identity: str | None = None
    fails: int = Field(default=3, ge=1)
    period_s: float = Field(default=5.0, gt=0)
    retry_s: float = Field(default=1.0, gt=0)
    timeout_s: float = Field(default=5.0, gt=0)
    pulse_s: float = Field(default=2.0, gt=0)
    disk_bytes: int = Field(default=2**28, ge=0)
    folder: str = "/tmp"  # noqa: S108 - where Python and TensorFlow put their own files
    command: str | None = None


class Discovery(Section):
    """Where hosts come from, and when they count.

    `slots` of a host that a source names without any. `timeout_s` for each question to a source.
    `names`: `canonical` takes names with the same address for one host, `given` takes each for its own.
    `empty_times`, `stale_s`, `when_stale`: see `trust`; `settle_s` to `forgive_s`: see `damp`.
    `notices`: a folder in which hosts post that they will be taken away. `folder`: where commands run
    and relative paths begin; by default the configuration's own.
    """

    sources: tuple[SourceSection, ...] = ()
    slots: int = Field(default=1, ge=1)
    timeout_s: float = Field(default=10.0, gt=0)
    names: Literal["canonical", "given"] = "canonical"
    empty_times: int = Field(default=3, ge=1)
    stale_s: float = Field(default=600.0, gt=0)
    when_stale: Literal["keep", "drop"] = "keep"
    settle_s: float = Field(default=0.5, ge=0)
    hold_s: float = Field(default=30.0, ge=0)
    hold_most_s: float = Field(default=600.0, ge=0)
    forgive_s: float = Field(default=600.0, ge=0)
    gate: GateSection = GateSection()
    notices: Path | None = None
    folder: Path | None = None

    @property
    def rules(self) -> Rules:
        """The same as rules of judgement."""
        return Rules(
            TrustRule(self.empty_times, self.stale_s, self.when_stale),
            DampRule(self.settle_s, self.hold_s, self.hold_most_s, self.forgive_s),
            GateRule(self.gate.check, self.gate.fails, self.gate.period_s, self.gate.retry_s),
            self.names == "canonical",
        )

    def from_folder(self, folder: Path) -> "Discovery":
        """Return the configuration with relative paths made whole, from a folder or from the one it names."""
        folder = folder if self.folder is None else folder / self.folder
        sources = tuple(s if s.file is None else SourceSection(file=folder / s.file) for s in self.sources)
        notices = None if self.notices is None else folder / self.notices
        return self.model_copy(update={"sources": sources, "notices": notices, "folder": folder})


def read(path: Path) -> Discovery:
    """Read a configuration from YAML: the keys of `Discovery`, or the same under `discovery`.

    Raises:
        DiscoveryConfigError: with every problem.
    """
    import yaml

    try:
        raw = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise DiscoveryConfigError(f"{path}: cannot be read: {error}") from None
    if isinstance(raw, dict) and isinstance(raw.get("discovery"), dict):
        raw = raw["discovery"]
    if not isinstance(raw, dict):
        raise DiscoveryConfigError(f"{path}: found {type(raw).__name__}, expected keys such as 'sources'")
    try:
        config = Discovery.model_validate(raw)
    except ValidationError as error:
        raise DiscoveryConfigError("\n".join(explain(str(path), error, Discovery))) from None
    if not config.sources:
        raise DiscoveryConfigError(f"{path}: sources: there is none; expected a list such as [file: hosts]")
    return config.from_folder(path.absolute().parent)


def of_hosts_file(path: Path) -> Discovery:
    """Return the configuration of nothing but a hosts file."""
    return Discovery(sources=(SourceSection(file=path.absolute()),))
