"""What is wrong with a configuration, in words: the key, what was found, what was expected, the nearest known key."""

import difflib
from collections.abc import Iterator, Sequence
from typing import Any

from pydantic import BaseModel, ValidationError

_SHOWN = 80  # characters of what was found


def explain(source: str, error: ValidationError, model: type[BaseModel]) -> Iterator[str]:
    """Yield each problem that `model` has with what `source` says, a line each."""
    for problem in error.errors():
        where = ".".join(str(part) for part in problem["loc"])
        if problem["type"] == "extra_forbidden":
            known = _keys_at(model, problem["loc"][:-1])
            near = difflib.get_close_matches(str(problem["loc"][-1]), known, n=1)
            hint = f"did you mean '{near[0]}'?" if near else f"known keys: {', '.join(known)}"
            yield f"{source}: {where}: unknown key; {hint}"
        else:
            message = problem["msg"].removeprefix("Value error, ")
            yield f"{source}: {where or 'the file'}: found {_short(problem['input'])}: {message}"


def _keys_at(section: type[BaseModel], location: Sequence[int | str]) -> list[str]:
    for part in location:
        if not isinstance(part, int):  # the place in a list
            section = next(_sections(section.model_fields[part].annotation))
    return [field.alias or name for name, field in section.model_fields.items()]


def _sections(annotation: Any) -> Iterator[type[BaseModel]]:
    """Yield the sections that a key may hold, such as those of `X | None` and of `tuple[X, ...]`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for choice in getattr(annotation, "__args__", ()):
        yield from _sections(choice)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."
