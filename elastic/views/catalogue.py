"""The table of all facts, made from their classes: `python -m elastic.views.catalogue > elastic/views/EVENTS.md`."""

import sys
from dataclasses import MISSING, Field, fields

from elastic.eventlog import SCHEMA
from elastic.events import Event

_HEAD = f"""# Facts

What happens in a run is one JSON object a line in `events.jsonl` of its directory (schema {SCHEMA}; made by
`python -m elastic.views.catalogue`). Every line has

| field | meaning |
| --- | --- |
| `schema` | the version of this format; absent: 1 |
| `time` | seconds since 1970, by the clock of the machine that wrote it |
| `event` | the name of the fact, below |
| `generation` | number of the world; 0: none yet |
| `host`, `slot` | where it was seen; slot -1: not in a slot |
| `pid` | of the process that wrote it |
| `rank` | of its worker; -1: none |

and the fact's own fields, times in seconds. Facts and fields may be added within a schema: ignore names that you do
not know, and expect older lines to lack newer fields. The number rises when a name is removed or changes its meaning.

Lines are whole, but for one that a full disk has cut off: skip what is no JSON. On a file system that machines share,
each writes `events-MACHINE.jsonl`; take all of them and sort by `time`. A worker's facts and its agent's carry the same
host and slot; `WorkerLost` and the like come from the agent.

| fact | fields | meaning |
| --- | --- | --- |
"""


def markdown() -> str:
    """Return the table as a page."""
    ours = {name: kind for name, kind in Event.registry.items() if kind.__module__.startswith("elastic.")}
    return _HEAD + "".join(_row(name, kind) for name, kind in sorted(ours.items()))


def _row(name: str, kind: type[Event]) -> str:
    told = ", ".join(_field(f) for f in fields(kind))
    lines = (kind.__doc__ or "").split("\n")
    meaning = " ".join(line.strip() for line in lines if line.strip())
    return f"| `{name}` | {told} | {meaning} |\n"


def _field(found: "Field[object]") -> str:
    optional = found.default is not MISSING or found.default_factory is not MISSING
    return f"`{found.name}`{' (optional)' if optional else ''}"


if __name__ == "__main__":
    sys.stdout.write(markdown())
