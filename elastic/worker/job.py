"""Load what a job names: a model function, a data source, a user's script."""

import importlib
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np

from elastic.config import Config, Data
from elastic.errors import ConfigError
from elastic.worker.fit import fit
from elastic.worker.images import ImageFolder
from elastic.worker.tfrecord import TFRecordFiles

BUNDLED = Path(__file__).parent.parent / "examples" / "data" / "mnist_6k.npz"


def run_job(job: Path, config: Config) -> None:
    """Run a YAML job, or a user's script up to its end."""
    sys.path.insert(0, str(job.resolve().parent))
    if job.suffix != ".py":
        sys.path.insert(0, str(Path.cwd()))
    keras.utils.set_random_seed(config.seed)
    if job.suffix == ".py":
        sys.argv = [str(job)]
        runpy.run_path(str(job), run_name="__main__")
        return
    if config.model is None or config.data is None:
        raise ConfigError(f"{job}: a YAML job needs 'model' and 'data'")
    model = call(config.model, **config.model_args)
    if not isinstance(model, keras.Model):
        raise ConfigError(f"model: {config.model} returned {type(model).__name__}, expected a compiled keras.Model")
    data, validation = load_data(config.data)
    callbacks = call(config.callbacks) if config.callbacks else ()
    augment = named(config.data.map) if config.data.map else None
    fit(model, data, validation_data=validation, callbacks=callbacks, map=augment)


def call(reference: str, *args: Any, **kwargs: Any) -> Any:
    """Call the function that `module:function` names."""
    return named(reference)(*args, **kwargs)


def named(reference: str) -> Callable[..., Any]:
    """Return the function that `module:function` names."""
    module, _, name = reference.partition(":")
    function = getattr(importlib.import_module(module), name, None)
    if not callable(function):
        raise ConfigError(f"{reference}: module '{module}' has no function '{name}'")
    return function  # type: ignore[no-any-return]


def load_data(data: Data) -> tuple[Any, Any]:
    """Return training and validation data (None where there is none), prepared."""
    if data.parse is not None:
        parse = named(data.parse)
        return TFRecordFiles(data.source, parse), TFRecordFiles(data.validation, parse) if data.validation else None
    if data.image_size is not None:
        size = data.image_size
        return ImageFolder(data.source, size), ImageFolder(data.validation, size) if data.validation else None
    if ":" in data.source:
        found = call(data.source, **data.args)
        parts = found if _is_pair(found) else (found, None)
    elif data.source == "bundled":
        parts = _npz(BUNDLED)
    elif data.source.endswith(".npz"):
        parts = _npz(Path(data.source))
    else:
        parts = importlib.import_module(f"keras.datasets.{data.source}").load_data(**data.args)
    first, second = (_prepared(data, part) for part in parts)
    return first, second


def _is_pair(found: Any) -> bool:
    """Tell ((x, y), (x_val, y_val)) or (source, source) from (x, y)."""
    if not isinstance(found, tuple) or len(found) != 2:
        return False
    return not any(hasattr(part, "shape") for part in found) and (
        isinstance(found[0], tuple) or not isinstance(found[0], (list, dict))
    )


def _npz(path: Path) -> tuple[Any, Any]:
    try:
        with np.load(path) as file:
            arrays = {name: file[name] for name in file.files}
    except (OSError, ValueError) as error:
        raise ConfigError(f"data.source: {path} cannot be read: {error}") from None
    if not {"x_train", "y_train"} <= set(arrays):
        raise ConfigError(f"data.source: {path} holds {sorted(arrays)}, expected x_train and y_train (x_test, y_test)")
    test = (arrays["x_test"], arrays["y_test"]) if {"x_test", "y_test"} <= set(arrays) else None
    return (arrays["x_train"], arrays["y_train"]), test


def _prepared(data: Data, part: Any) -> Any:
    return part if part is None or data.prepare is None else call(data.prepare, *part)
