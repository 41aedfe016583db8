"""What a job can be told, as frozen values that check themselves. Durations end in `_s`.

`jobfile` reads them from YAML and the command line.
"""

from collections.abc import Mapping
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, PositiveInt, ValidationInfo, field_validator, model_validator

from discovery.config import Discovery

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
    `keras.datasets`, `module:function`, a pattern of TFRecord files (with `parse`), or a folder of
    images with a sub-folder a class (with `image_size`); for the last two, `validation` is another
    of the kind. `prepare` names a `module:function` that turns the arrays `(x, y)` of a part into
    what the model takes; `parse` one that turns a serialized record into a sample `(x, y)`; `map`
    one `(seed, x, y, ...) -> (x, y, ...)` that is applied to each training sample.
    """

    source: str
    validation: str | None = None
    parse: str | None = None
    image_size: tuple[PositiveInt, PositiveInt] | None = None
    prepare: str | None = None
    map: str | None = None
    args: dict[str, Any] = {}

    @field_validator("source")
    @classmethod
    def _known(cls, value: str) -> str:
        if ":" in value:
            return _reference(value)
        if value == "bundled" or value in KERAS_DATASETS or _is_path(value):
            return value
        raise ValueError(
            "expected 'bundled', the path of an .npz file, 'module:function', a pattern such as 'data/*.tfrecord', "
            f"a folder such as 'images/', or one of keras.datasets ({', '.join(KERAS_DATASETS)})"
        )

    @field_validator("prepare", "map", "parse")
    @classmethod
    def _function(cls, value: str | None) -> str | None:
        return value if value is None else _reference(value)

    @model_validator(mode="after")
    def _of_one_kind(self) -> Self:
        plain = ":" in self.source or not _is_path(self.source) or self.source.endswith(".npz")
        ways = [key for key in ("parse", "image_size") if getattr(self, key) is not None]
        if plain and (ways or self.validation):
            raise ValueError(
                f"source {self.source!r} brings its samples whole; 'parse', 'image_size' and 'validation' are for "
                "TFRecord files and folders of images"
            )
        if not plain and len(ways) != 1:
            raise ValueError(
                f"source {self.source!r} is a path: expected either 'parse: module:function', if it names TFRecord "
                "files, or 'image_size: [height, width]', if it is a folder of images"
            )
        if not plain and self.prepare:
            raise ValueError("'prepare' is for arrays; 'parse' and 'map' work on one sample")
        return self


def _is_path(source: str) -> bool:
    return source.endswith(".npz") or any(sign in source for sign in ("/", "*", "?", ".tfrecord"))


class Batch(Section):
    """Samples of one step: `per_worker` grows with the world, `global` does not.

    A worker computes its part in pieces of at most `micro` samples, one after the other.
    """

    per_worker: int | None = Field(default=None, gt=0)
    global_: int | None = Field(default=None, gt=0, alias="global")
    micro: int | None = Field(default=None, gt=0)

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
    """Durable copies in the run directory, the last `keep` of them.

    One is written at every `every_commits`-th commit, `every_s` after the last one, and every
    `every_steps` steps if given. `uri`: each is also copied to a folder there, named like the run
    directory, for hosts that share no file system.
    """

    enabled: bool = True
    uri: str | None = None
    keep: int = Field(default=3, ge=1)
    every_commits: int = Field(default=1, ge=1)
    every_s: float = Field(default=60.0, gt=0)
    every_steps: int | None = Field(default=None, gt=0)


class Network(Section):
    """How workers reach each other.

    `gloo_timeout_s` bounds how long a silent peer goes unnoticed, `join_s` how long a worker that
    the launcher has started may take to appear, `start_timeout_s` how long the launcher waits
    for enough slots. `interfaces`: names, comma-separated; by default `lo`
    for a job on this machine alone, otherwise those that lead to the other hosts.
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

    @field_validator("*", mode="before")
    @classmethod
    def _completed(cls, value: Any, info: ValidationInfo) -> Any:
        """Take what a budget does not say from its default."""
        if isinstance(value, Mapping) and info.field_name is not None:
            return cls.model_fields[info.field_name].default.model_dump() | dict(value)
        return value


class Metrics(Section):
    """Where `elastic run` serves metrics to Prometheus; without a port it does not."""

    port: int | None = Field(default=None, ge=1, le=65535)
    address: str = "127.0.0.1"


class Preemption(Section):
    """Whom a host asks whether it will be taken away, every `period_s`.

    `cloud`: `auto` finds out from the firmware; `none` asks nobody. `endpoint`: where its metadata
    server answers, if not where the cloud has it. `rebalance`: heed EC2's recommendations too, which say
    that an instance is at risk, not when it goes.
    """

    cloud: Literal["auto", "none", "ec2", "gce", "azure"] = "auto"
    endpoint: str | None = None
    period_s: float = Field(default=5.0, gt=0)
    rebalance: bool = False


class Job(Section):
    """How `elastic run` looks after the launcher.

    It is started again when it ends without the goal, or when neither a step nor another fact
    comes for `stall_s`; at most `max_restarts` times in a row without training getting any further,
    after `backoff_s`, then twice that, ...
    """

    max_restarts: int = Field(default=3, ge=0)
    stall_s: float = Field(default=900.0, gt=0)
    backoff_s: float = Field(default=1.0, ge=0)


class Ray(Section):
    """A Ray cluster, and what a slot takes of it.

    `address`: of the cluster, or `auto` for the one that runs here; by default what RAY_ADDRESS
    names, or else a cluster of the job's own on this machine, as with `local`. `cpus`, `gpus` and
    `resources` are for one slot. `placement`: `spread` gives each node as few slots as will do,
    `pack` fills one node after the other. `gpus_seen`: a worker sees the GPU of its own slot, or
    those of all slots of its `node`. `autoscale`: ask the autoscaler for nodes. `runtime_env` is
    Ray's, for the whole job.
    """

    address: str | None = None
    cpus: float = Field(default=1.0, ge=0)
    gpus: float = Field(default=0.0, ge=0)
    resources: dict[str, float] = {}
    placement: Literal["spread", "pack"] = "spread"
    gpus_seen: Literal["own", "node"] = "own"
    autoscale: bool = True
    runtime_env: dict[str, Any] = {}

    @model_validator(mode="after")
    def _takes_something(self) -> Self:
        if not (self.cpus or self.gpus or any(self.resources.values())):
            raise ValueError("found a slot that takes nothing; expected one of 'cpus', 'gpus' and 'resources' above 0")
        if wrong := {"CPU", "GPU"} & set(self.resources):
            raise ValueError(f"resources: found {', '.join(sorted(wrong))}; these are given as 'cpus' and 'gpus'")
        return self


class Config(Section):
    """A job, whole and checked.

    `deterministic`: the same bits for any number of workers that come and go; each step is cut into
    `shards` parts to that end.
    """

    name: str = Field(default="job", pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    model: str | None = None
    model_args: dict[str, Any] = {}
    data: Data | None = None
    callbacks: str | None = None
    epochs: int = Field(default=1, ge=1)
    batch: Batch = Batch.model_validate({"global": 256})
    drop_last: bool = False
    seed: int = 1
    learning_rate: LearningRate = LearningRate()
    compression: Literal["none", "fp16"] = "none"
    deterministic: bool = False
    shards: int = Field(default=4, ge=1)
    workers: Workers = Workers()
    launcher: Literal["horovodrun", "ray"] = "horovodrun"
    hosts: tuple[str, ...] | None = None
    discovery: Discovery | None = None
    preemption: Preemption = Preemption()
    ray: Ray = Ray()
    commit: Commit = Commit()
    checkpoint: Checkpoint = Checkpoint()
    tensorboard: bool = True
    metrics: Metrics = Metrics()
    audit: bool = False
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
        if isinstance(value, dict) and set(value) == {"micro"}:
            return {"global": cls.model_fields["batch"].default.global_, **value}
        return {"per_worker": value} if isinstance(value, int) else value

    @model_validator(mode="after")
    def _determined(self) -> Self:
        if not self.deterministic:
            return self
        problems = []
        if self.batch.global_ is None:
            problems.append("batch.global, as the samples of a step must not depend on the number of workers")
        if self.learning_rate.scale != "none":
            problems.append(f"learning_rate.scale 'none' instead of '{self.learning_rate.scale}'")
        if self.compression != "none":
            problems.append(f"compression 'none' instead of '{self.compression}'")
        if self.shards < self.workers.max:
            problems.append(f"shards of at least workers.max, found {self.shards} for {self.workers.max} workers")
        if problems:
            raise ValueError(f"deterministic needs {'; and '.join(problems)}")
        return self

    @field_validator("model", "callbacks")
    @classmethod
    def _function(cls, value: str | None) -> str | None:
        return value if value is None else _reference(value)

    @model_validator(mode="after")
    def _hosts_once(self) -> Self:
        if self.hosts is not None and self.discovery is not None and self.discovery.sources:
            raise ValueError("'hosts' and 'discovery.sources' both say where hosts come from; expected one of them")
        return self


def _reference(value: str) -> str:
    module, _, function = value.partition(":")
    if not (function.isidentifier() and all(part.isidentifier() for part in module.split("."))):
        raise ValueError("expected 'module:function'")
    return value
