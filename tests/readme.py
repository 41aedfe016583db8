"""The README's commands and snippets, and the marks beside them that say what is not run, and why.

A command is a line of a `sh` block, or a code span that begins with `uv run`. All are run as they stand (by
`tests/docs`), but for those with a mark in the same section, an HTML comment:

    <!-- not run: REASON -->               right before a block: the whole block
    <!-- not run (PART): REASON -->        the section's commands that PART is a part of
    <!-- until stopped (PART): REASON -->  likewise: started, and stopped after a while
"""

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SECTION = re.compile(r"^## (.+)$", re.MULTILINE)
MARK = re.compile(r"<!-- (not run|until stopped)(?: \(([^)]+)\))?: ((?:(?!-->).)+?) -->", re.DOTALL)
SPAN = re.compile(r"`(uv run (?:--group \w+ )?[^`-][^`]*)`")


@dataclass(frozen=True, slots=True)
class Mark:
    """What is said beside commands; `part` is None for a whole block."""

    kind: str
    part: str | None
    reason: str


@dataclass(frozen=True, slots=True)
class Command:
    """A command of the page, the section that it is in, and the mark that it has."""

    line: str
    section: str
    mark: Mark | None = None


@dataclass(frozen=True, slots=True)
class Block:
    """Commands that follow one another: a `sh` block, or a single code span."""

    commands: tuple[Command, ...]

    @property
    def script(self) -> str:
        """What is run of it."""
        return "\n".join(c.line for c in self.commands if c.mark is None or c.mark.kind != "not run")

    @property
    def name(self) -> str:
        return re.sub(r"[^\w.]+", "-", self.commands[0].line)[:60].strip("-")


def sections(page: str = README) -> list[tuple[str, str]]:
    """Return name and text of each section; the first has no name."""
    parts = SECTION.split(page)
    return [("", parts[0]), *zip(parts[1::2], parts[2::2], strict=True)]


def marks(text: str) -> list[Mark]:
    return [Mark(kind, part or None, " ".join(reason.split())) for kind, part, reason in MARK.findall(text)]


def blocks(page: str = README) -> list[Block]:
    """Return all commands of the page."""
    found = []
    for section, text in sections(page):
        partial = [mark for mark in marks(text) if mark.part is not None]

        def command(line: str, whole: Mark | None, section: str = section, partial: list[Mark] = partial) -> Command:
            fitting = [mark for mark in partial if mark.part is not None and mark.part in line]
            return Command(line, section, whole or (fitting[0] if fitting else None))

        for fence in FENCE.finditer(text):
            if fence[1] == "sh":
                before = re.search(rf"{MARK.pattern}\s*\Z", text[: fence.start()], re.DOTALL)
                whole = Mark(before[1], None, before[3]) if before and before[2] is None else None
                found.append(Block(tuple(command(line, whole) for line in fence[2].splitlines() if line.strip())))
        prose = FENCE.sub("", text)
        found += [Block((command(line, None),)) for line in SPAN.findall(prose)]
    return list(dict.fromkeys(found))
