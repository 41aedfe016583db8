"""A job's configuration, read from YAML and the command line before anything starts.

Every error names the key, what was found, what was expected and, for an unknown key, the nearest
known one.
"""

import importlib.util
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from glob import glob
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from discovery.problems import explain
from elastic.config import Config, Data
from elastic.errors import ConfigError


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
    ways = {"global", "per_worker"}
    base, over = dict(base), dict(over)
    for key, long in (("data", "source"), ("batch", "per_worker")):
        if base.get(key) is not None and not isinstance(base[key], Mapping) and isinstance(over.get(key), Mapping):
            base[key] = {long: base[key]}
    if isinstance(base.get("batch"), Mapping) and isinstance(over.get("batch"), Mapping) and ways & set(over["batch"]):
        base["batch"] = {key: value for key, value in base["batch"].items() if key not in ways}
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
    raw = {} if script else read_yaml(job)
    if extra is not None:
        raw = merge(raw, read_yaml(extra))
    raw = merge(raw, parse_overrides(sets))
    raw.setdefault("name", job.stem)
    source = str(extra or job)
    try:
        config = Config.model_validate(raw)
    except ValidationError as error:
        raise ConfigError("\n".join(explain(source, error, Config))) from None
    if not script:
        _check_references(source, config)
    return config


def _check_syntax(script: Path) -> None:
    try:
        compile(script.read_bytes(), str(script), "exec")
    except (SyntaxError, ValueError) as error:
        where = f", line {error.lineno}" if isinstance(error, SyntaxError) else ""
        raise ConfigError(f"{script}{where}: not Python: {error}") from None


def read_yaml(path: Path) -> dict[str, Any]:
    """Return the keys and values of a YAML file; none when it is empty.

    Raises:
        ConfigError: when it cannot be read, is not YAML or holds something else.
    """
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


def _check_references(source: str, config: Config) -> None:
    if config.model is None:
        raise ConfigError(f"{source}: model: missing; expected 'module:function' that returns a compiled model")
    if config.data is None:
        raise ConfigError(f"{source}: data: missing; expected 'bundled', 'module:function' or a path")
    named = {
        "model": config.model,
        "callbacks": config.callbacks,
        "data.prepare": config.data.prepare,
        "data.map": config.data.map,
        "data.parse": config.data.parse,
    }
    if ":" in config.data.source:
        named["data.source"] = config.data.source
    _check_paths(source, config.data)
    for key, reference in named.items():
        if reference is not None:
            _check_module(source, key, reference)


def _check_paths(source: str, data: Data) -> None:
    if data.source.endswith(".npz") and not Path(data.source).is_file():
        raise ConfigError(f"{source}: data.source: no such file: {data.source}")
    for key, path in (("source", data.source), ("validation", data.validation)):
        if path is not None and data.parse is not None and not glob(path, recursive=True):  # noqa: PTH207 - as TFRecordFiles does
            raise ConfigError(f"{source}: data.{key}: no such file: {path}")
        if path is not None and data.image_size is not None and not Path(path).is_dir():
            raise ConfigError(f"{source}: data.{key}: no such folder: {path}")


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
