"""What a Keras callback remembers, as plain values that mean the same in any process."""

from collections import Counter, OrderedDict, defaultdict
from copy import copy
from typing import Any

import numpy as np
import tensorflow as tf


def capture(callback: Any) -> dict[str, Any]:
    """Return copies of a callback's plain attributes: numbers, texts, arrays, nests of them."""
    hidden = {"params", "_model"}
    if hasattr(callback, "_set_monitor_op"):
        hidden.add("min_delta")  # Keras turns its sign, once in each process, when it learns what better is
    found = {k: plain(v) for k, v in vars(callback).items() if k not in hidden}
    return {k: v for k, v in found.items() if v is not ALIEN}


def apply_state(callback: Any, state: dict[str, Any]) -> None:
    """Give a callback the attributes that `capture` returned."""
    for name, value in state.items():
        object.__setattr__(callback, name, value)


ALIEN = object()
_ATOMS = (bool, int, float, str, bytes, type(None), np.generic)


def plain(value: Any) -> Any:
    """Return a copy, of the same kind, of a value that means the same in any process; `ALIEN` for any other."""
    if isinstance(value, _ATOMS):
        return value
    if isinstance(value, tf.Tensor):
        return plain(value.numpy())
    if isinstance(value, np.ndarray):
        return ALIEN if value.dtype == object else value.copy()
    named = isinstance(value, tuple) and hasattr(value, "_make")
    if named or type(value) in (list, tuple, set):
        parts = [plain(v) for v in value]
        return ALIEN if any(p is ALIEN for p in parts) else (value._make if named else type(value))(parts)
    if type(value) in (dict, OrderedDict, Counter, defaultdict):
        twin = copy(value)  # with what a defaultdict makes
        for key in twin:
            twin[key] = ALIEN if plain(key) is ALIEN else plain(value[key])
        return ALIEN if any(part is ALIEN for part in twin.values()) else twin
    return ALIEN
