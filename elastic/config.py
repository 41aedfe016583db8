"""The job's YAML, validated into frozen values before anything starts.

Every error names the key, what was found, what was expected and, for an unknown key, the nearest
known one. Durations end in `_s`.
"""

import difflib
import importlib.util
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Self

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from elastic.errors import ConfigError

KERAS_DATASETS = (
    "boston_housing",
    "california_housing",
    "cifar10",
    "cifar100",
    "fashion_mnist",
    "imdb",
    "mnist",
    "reuters",
)


class Section(BaseModel):
    """A part of the configuration: frozen, and closed to unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=False)


class Data(Section):
    """Where samples come from.

    `source` is `bundled`, the path of an `.npz` with x_train, y_train (x_test, y_test), a name of
    `keras.datasets`, or `module:function`. `prepare` names a `module:function` that turns the
    arrays `(x, y)` of a part into what the model takes.
    """

    source: str
    prepare: str | None = None
    args: dict[str, Any] = {}

    @field_validator("source")
    @classmethod
    def _known(cls, value: str) -> str:
        if ":" in value:
            return _reference(value)
        if value == "bundled" or value.endswith(".npz") or value in KERAS_DATASETS:
            return value
        raise ValueError(
            "expected 'bundled', the path of an .npz file, 'module:function' or one of "
            f"keras.datasets ({', '.join(KERAS_DATASETS)})"
        )

    @field_validator("prepare")
    @classmethod
    def _function(cls, value: str | None) -> str | None:
        return value if value is None else _reference(value)


class Batch(Section):
    """Samples of one step: `per_worker` grows with the world, `global` does not."""

    per_worker: int | None = Field(default=None, gt=0)
    global_: int | None = Field(default=None, gt=0, alias="global")

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.per_worker is None) == (self.global_ is None):
            raise ValueError("expected exactly one of 'per_worker' and 'global'")
        return self

    def total(self, size: int) -> int:
        """Return the samples of one step over all `size` workers."""
        return self.global_ if self.global_ is not None else (self.per_worker or 0) * size


class LearningRate(Section):
    """How the learning rate follows the world size.

    The optimizer's own rate is taken as right for one worker; it is multiplied by the size
    (linear), its square root (sqrt) or nothing, reached linearly over `warmup_steps`.
    """

    scale: Literal["linear", "sqrt", "none"] = "none"
    warmup_steps: int = Field(default=0, ge=0)


class Workers(Section):
    """How many workers: training starts with `start` and goes on while there are `min`."""

    min: int = Field(default=1, ge=1)
    max: int = Field(default=2, ge=1)
    start: int | None = Field(default=None, ge=1)

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        start = self.start if self.start is not None else self.max
        if not self.min <= start <= self.max:
            raise ValueError(f"found min {self.min}, start {start}, max {self.max}; expected min <= start <= max")
        return self

    @property
    def first(self) -> int:
        """The number of workers that training starts with."""
        return self.start if self.start is not None else self.max


class Commit(Section):
    """When the state is committed: after each epoch, and every `steps` steps if given."""

    steps: int | None = Field(default=None, gt=0)


class Checkpoint(Section):
    """Durable copies in the run directory: at each commit, the last `keep` of them."""

    enabled: bool = True
    keep: int = Field(default=3, ge=1)
    every_commits: int = Field(default=1, ge=1)


class Network(Section):
    """How workers reach each other.

    `gloo_timeout_s` bounds how long a silent peer goes unnoticed, `join_s` how long the others
    wait for a worker that the launcher has started, `start_timeout_s` how long the launcher waits
    for enough slots. `interfaces`: names, comma-separated; by default `lo`
    for a job on this machine alone and Horovod's own search otherwise.
    """

    gloo_timeout_s: int = Field(default=5, ge=1)
    join_s: float = Field(default=120.0, gt=0)
    start_timeout_s: int = Field(default=60, ge=1)
    interfaces: str | None = None
    cooldown_s: tuple[int, int] = (5, 60)


class Standby(Section):
    """Warm processes a host keeps to take a lost worker's place at once.

    `size` a host, shared by its slots; 0 switches them off. `level`: `import` has loaded
    TensorFlow, `step` has also built the model and traced a step; `auto` is `step`, but `import`
    where there is a GPU, which a second process must not touch.
    """

    size: int = Field(default=1, ge=0)
    level: Literal["off", "import", "step", "auto"] = "auto"


class Hang(Section):
    """When a worker that is alive is given up.

    `heartbeat_s` without a sign of life (frozen, GIL held); `progress_s`, or ten median steps if
    that is longer, in one step's computation or one callback; the others for their own phases.
    """

    heartbeat_s: float = Field(default=5.0, gt=0)
    progress_s: float = Field(default=60.0, gt=0)
    start_s: float = Field(default=600.0, gt=0)
    compile_s: float = Field(default=600.0, gt=0)
    validation_s: float = Field(default=600.0, gt=0)
    saving_s: float = Field(default=300.0, gt=0)


class Budget(Section):
    """Restarts of a slot: `limit` within `window_s`; older ones are forgiven."""

    limit: int = Field(ge=0)
    window_s: float = Field(gt=0)


class Restart(Section):
    """How often a slot gets another worker, by why the last one ended."""

    crash: Budget = Budget(limit=5, window_s=60)
    hang: Budget = Budget(limit=3, window_s=300)
    reentry: Budget = Budget(limit=10, window_s=60)
    user_code: Budget = Budget(limit=3, window_s=300)
    preempted: Budget = Budget(limit=10, window_s=300)


class Job(Section):
    """How `elastic run` looks after the launcher.

    It is started again when it ends without the goal, or when neither a step nor another fact
    comes for `stall_s`; at most `max_restarts` times, after `backoff_s`, then twice that, ...
    """

    max_restarts: int = Field(default=3, ge=0)
    stall_s: float = Field(default=900.0, gt=0)
    backoff_s: float = Field(default=1.0, ge=0)


class Config(Section):
    """A job, whole and checked."""

    name: str = Field(default="job", pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    model: str | None = None
    model_args: dict[str, Any] = {}
    data: Data | None = None
    callbacks: str | None = None
    epochs: int = Field(default=1, ge=1)
    batch: Batch = Batch(per_worker=32)
    drop_last: bool = False
    seed: int = 1
    learning_rate: LearningRate = LearningRate()
    compression: Literal["none", "fp16"] = "none"
    workers: Workers = Workers()
    launcher: Literal["horovodrun"] = "horovodrun"
    hosts: tuple[str, ...] | None = None
    commit: Commit = Commit()
    checkpoint: Checkpoint = Checkpoint()
    tensorboard: bool = True
    network: Network = Network()
    standby: Standby = Standby()
    hang: Hang = Hang()
    restart: Restart = Restart()
    drain_s: float = Field(default=30.0, gt=0)
    job: Job = Job()

    @field_validator("data", mode="before")
    @classmethod
    def _short_data(cls, value: Any) -> Any:
        return {"source": value} if isinstance(value, str) else value

    @field_validator("batch", mode="before")
    @classmethod
    def _short_batch(cls, value: Any) -> Any:
        return {"per_worker": value} if isinstance(value, int) else value

    @field_validator("model", "callbacks")
    @classmethod
    def _function(cls, value: str | None) -> str | None:
        return value if value is None else _reference(value)


def _reference(value: str) -> str:
    module, _, function = value.partition(":")
    if not (function.isidentifier() and all(part.isidentifier() for part in module.split("."))):
        raise ValueError("expected 'module:function'")
    return value


class _Loader(yaml.SafeLoader):
    """YAML as people write it: 1e-3 is a number, as in YAML 1.2, though not in PyYAML's 1.1."""


class _Dumper(yaml.SafeDumper):
    """Quotes the texts that `_Loader` would take for numbers."""


for _kind in (_Loader, _Dumper):
    _kind.add_implicit_resolver(
        "tag:yaml.org,2002:float", re.compile(r"[-+]?(\.\d+|\d+(\.\d*)?)[eE][-+]?\d+$", re.ASCII), list("-+.0123456789")
    )


def _parse(text: str) -> Any:
    return yaml.load(text, _Loader)  # noqa: S506 - a SafeLoader


def parse_overrides(pairs: Iterable[str]) -> dict[str, Any]:
    """Turn `--set a.b=value` pairs into a nested mapping; values are read as YAML."""
    result: dict[str, Any] = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals or not key:
            raise ConfigError(f"--set {pair}: expected KEY=VALUE, such as --set epochs=3")
        try:
            value = _parse(text)
        except yaml.YAMLError as error:
            raise ConfigError(f"--set {pair}: the value is not YAML: {error}") from None
        here = result
        *parents, last = key.split(".")
        for parent in parents:
            here = here.setdefault(parent, {})
            if not isinstance(here, dict):
                raise ConfigError(f"--set {pair}: '{parent}' was already given a plain value")
        here[last] = value
    return result


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration `base` with `over` laid on it, key by key through nested mappings.

    A short form such as `data: bundled` gives way to its long one, and one way to give the batch to
    the other.
    """
    base, over = dict(base), dict(over)
    for key, long in (("data", "source"), ("batch", "per_worker")):
        if base.get(key) is not None and not isinstance(base[key], Mapping) and isinstance(over.get(key), Mapping):
            base[key] = {long: base[key]}
    if isinstance(over.get("batch"), Mapping) and {"global", "per_worker"} & set(over["batch"]):
        base.pop("batch", None)
    if isinstance(base.get("data"), Mapping) and isinstance(over.get("data"), str):
        over["data"] = {"source": over["data"]}
    return _laid_on(base, over)


def _laid_on(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    result = dict(base)
    for key, value in over.items():
        old = result.get(key)
        result[key] = _laid_on(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return result


def load(job: Path, sets: Sequence[str] = (), extra: Path | None = None) -> Config:
    """Read, complete and check the configuration of a job.

    Args:
        job: the YAML file, or the user's Python script (whose options come from the others).
        sets: `key=value` pairs that win over the files.
        extra: a YAML file beside a script (`--config`).

    Raises:
        ConfigError: with every problem found, one a line.
    """
    if not job.is_file():
        raise ConfigError(f"{job}: no such file; expected a YAML configuration or a Python script")
    script = job.suffix == ".py"
    if script:
        _check_syntax(job)
    raw = {} if script else _read_yaml(job)
    if extra is not None:
        raw = merge(raw, _read_yaml(extra))
    raw = merge(raw, parse_overrides(sets))
    raw.setdefault("name", job.stem)
    source = str(extra or job)
    try:
        config = Config.model_validate(raw)
    except ValidationError as error:
        raise ConfigError("\n".join(_explain(source, error))) from None
    if not script:
        _check_references(source, config)
    return config


def _check_syntax(script: Path) -> None:
    try:
        compile(script.read_bytes(), str(script), "exec")
    except (SyntaxError, ValueError) as error:
        where = f", line {error.lineno}" if isinstance(error, SyntaxError) else ""
        raise ConfigError(f"{script}{where}: not Python: {error}") from None


def _read_yaml(path: Path) -> dict[str, Any]:
    try:
        raw = _parse(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: not YAML: {error}") from None
    if raw is None:
        return {}
    if not isinstance(raw, dict):
        raise ConfigError(f"{path}: found a {type(raw).__name__}, expected keys and values")
    return raw


def _explain(source: str, error: ValidationError) -> Iterable[str]:
    for problem in error.errors():
        where = ".".join(str(part) for part in problem["loc"])
        found = problem["input"]
        if problem["type"] == "extra_forbidden":
            known = _keys_at(problem["loc"][:-1])
            near = difflib.get_close_matches(str(problem["loc"][-1]), known, n=1)
            hint = f"did you mean '{near[0]}'?" if near else f"known keys: {', '.join(known)}"
            yield f"{source}: {where}: unknown key; {hint}"
        else:
            message = problem["msg"].removeprefix("Value error, ")
            yield f"{source}: {where or 'the file'}: found {found!r}: {message}"


def _keys_at(location: Sequence[int | str]) -> list[str]:
    section: type[BaseModel] = Config
    for part in location:
        annotation = section.model_fields[str(part)].annotation
        choices = [annotation, *getattr(annotation, "__args__", ())]
        section = next(c for c in choices if isinstance(c, type) and issubclass(c, BaseModel))
    return [field.alias or name for name, field in section.model_fields.items()]


def _check_references(source: str, config: Config) -> None:
    if config.model is None:
        raise ConfigError(f"{source}: model: missing; expected 'module:function' that returns a compiled model")
    if config.data is None:
        raise ConfigError(f"{source}: data: missing; expected 'bundled', an .npz path or 'module:function'")
    named = {"model": config.model, "callbacks": config.callbacks, "data.prepare": config.data.prepare}
    if ":" in config.data.source:
        named["data.source"] = config.data.source
    elif config.data.source.endswith(".npz") and not Path(config.data.source).is_file():
        raise ConfigError(f"{source}: data.source: no such file: {config.data.source}")
    for key, reference in named.items():
        if reference is not None:
            _check_module(source, key, reference)


def _check_module(source: str, key: str, reference: str) -> None:
    module = reference.partition(":")[0]
    for folder in (str(Path(source).resolve().parent), str(Path.cwd())):
        if folder not in sys.path:
            sys.path.insert(0, folder)  # a user's module lies beside the job or where the command is typed
    problem = f"there is no module '{module}'"
    try:
        found = importlib.util.find_spec(module)
    except (ImportError, ValueError) as error:
        found = None
        if not (isinstance(error, ModuleNotFoundError) and f"{module}.".startswith(f"{error.name}.")):
            problem = f"module '{module}' cannot be imported: {error}"  # by the package that it is in
    if found is None:
        raise ConfigError(
            f"{source}: {key}: found {reference!r}, but {problem}; "
            f"expected a module beside the job, in {Path.cwd()} or an installed one"
        )


def dump(config: Config) -> str:
    """Return the configuration as YAML, complete with defaults, in a form `load` accepts."""
    return yaml.dump(config.model_dump(mode="json", by_alias=True, exclude_none=True), Dumper=_Dumper, sort_keys=False)
