"""Hosts, and the forms in which people and programs write them down."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any

MOST_SLOTS = 1024
EXPECTED = "expected host, host:slots or host slots=N"

_LINE = re.compile(
    r"(?:\[(?P<v6>[^\]\s]+)\]|(?P<name>[^\s:\[\]]+))(?::(?P<colon>[^\s:]*))?(?:[ \t]+slots[ \t]*=[ \t]*(?P<word>\S*))?"
)
_NAME = re.compile(
    r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?(?:\.[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?)*\.?"
)
_SIMPLE = re.compile(r"([a-z][a-z0-9-]{0,30}[a-z0-9](?:\.[a-z0-9][a-z0-9-]{0,30}[a-z0-9]){0,5}):([1-9][0-9]{0,2})")
_PLAIN_LIST = re.compile(r"\[[0-9A-Fa-f:.%\w]+\]")
_NUMBER = re.compile(r"[0-9]{1,9}")


@dataclass(frozen=True, slots=True)
class Host:
    """A host and how many workers it takes."""

    name: str
    slots: int

    @property
    def line(self) -> str:
        """The form that Horovod's launcher reads."""
        return f"{self.name}:{self.slots}"


@dataclass(frozen=True, slots=True)
class LeftOut:
    """What a source named that is not to be used, and why; `reason` is the same each time it is asked."""

    what: str
    reason: str


@dataclass(frozen=True, slots=True)
class Hosts:
    """What a source has found, in its order."""

    hosts: tuple[Host, ...] = ()
    left_out: tuple[LeftOut, ...] = ()


class SourceError(Exception):
    """A source has no answer: nothing is known, which is not the same as that there are no hosts."""


def parse(text: str, default_slots: int = 1) -> Hosts:
    """Read a list of hosts, plain or JSON.

    Plain: one `host`, `host:slots` or `host slots=N` a line, IPv6 addresses in brackets, `#` begins a
    comment. JSON: a list of such texts or of `{"host": ..., "slots": ...}`, a mapping from host to
    slots, or either under the key `hosts`. What cannot be read is left out and named.

    Raises:
        SourceError: when it is broken as a whole: JSON that ends early, or no line of any use.
    """
    text = text.removeprefix("\ufeff")
    start = text.lstrip()[:300]
    is_json = start.startswith("{") or (start.startswith("[") and _PLAIN_LIST.match(start) is None)
    hosts: list[Host] = []
    left_out: list[LeftOut] = []
    broken = 0
    for what, found in _json(text, default_slots) if is_json else _plain(text, default_slots):
        if isinstance(found, Host):
            hosts.append(found)
        else:
            left_out.append(LeftOut(what, found))
            broken += found != _NO_SLOTS
    if broken and broken == len(left_out) and not hosts:
        first = left_out[0]
        raise SourceError(f"none of {broken} entries can be used; the first, {first.what}: {first.reason}")
    return Hosts(tuple(hosts), tuple(left_out))


_NO_SLOTS = "it offers 0 slots"


def _plain(text: str, default_slots: int) -> Iterator[tuple[str, Host | str]]:
    for number, line in enumerate(text.splitlines(), 1):
        simple = _SIMPLE.fullmatch(line)  # nearly all lines of a long file
        if simple is not None:
            yield "", Host(simple[1], int(simple[2]))
            continue
        entry = line.partition("#")[0].strip()
        if entry:
            found = _entry(entry, default_slots)
            yield ("" if isinstance(found, Host) else f"line {number}, {_shown(entry)}"), found


def _json(text: str, default_slots: int) -> Iterator[tuple[str, Host | str]]:
    try:
        whole = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SourceError(f"not JSON as a whole: {error}") from None
    if isinstance(whole, dict) and isinstance(whole.get("hosts"), (list, dict)):
        whole = whole["hosts"]
    entries: list[Any] = [[k, v] for k, v in whole.items()] if isinstance(whole, dict) else whole
    for number, entry in enumerate(entries, 1):
        found = _json_entry(entry, default_slots)
        yield f"entry {number}, {_shown(json.dumps(entry))}", found


def _json_entry(entry: Any, default_slots: int) -> Host | str:
    if isinstance(entry, str):
        return _entry(entry.strip(), default_slots)
    if isinstance(entry, dict):
        entry = [entry.get("host", entry.get("name")), entry.get("slots")]
    if not (isinstance(entry, list) and len(entry) == 2 and isinstance(entry[0], str)):
        return 'expected "host:slots" or {"host": "...", "slots": N}'
    name, slots = entry
    if slots is None:
        slots = default_slots
    if isinstance(slots, bool) or not isinstance(slots, int):
        return f"found {slots!r} slots, expected a whole number"
    return host(name.removeprefix("[").removesuffix("]"), slots)


def _entry(entry: str, default_slots: int) -> Host | str:
    found = _LINE.fullmatch(entry)
    if found is None:
        if entry.count(":") > 1 and _is_address(entry.partition(" ")[0]):
            return "an IPv6 address needs brackets: [address]:slots"
        return EXPECTED
    v6, name, colon, word = found.group("v6", "name", "colon", "word")
    if colon is not None and word is not None:
        return "slots are given twice"
    given = colon if colon is not None else word
    if given is None:
        slots = default_slots
    elif _NUMBER.fullmatch(given):
        slots = int(given)
    else:
        return f"found {given!r} slots, expected a whole number"
    if v6 is not None and ":" not in v6:
        return f"brackets are for IPv6 addresses, found {v6!r}"
    return host(v6 or name, slots)


def host(name: str, slots: int) -> Host | str:
    """Return the host, or what is wrong with it.

    A name that could be an option of `ssh`, or anything else than a name, is refused.
    """
    if slots == 0:
        return _NO_SLOTS
    if not 0 < slots <= MOST_SLOTS:
        return f"found {slots} slots, expected 1 to {MOST_SLOTS}"
    if ":" in name:
        return Host(name, slots) if _is_address(name) else f"{name!r} is no IPv6 address"
    if len(name) > 253 or _NAME.fullmatch(name) is None:
        return f"{_shown(name)} is no host name: expected letters, digits, '-', '_' and '.'"
    if name.replace(".", "").isdigit() and not _is_address(name):
        return f"{name!r} is no IPv4 address"
    return Host(name, slots)


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def _shown(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:57] + "...")
