"""Hosts that any program prints: a script that worked with another launcher works here."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from discovery.hosts import Hosts, parse
from discovery.source import output_of


@dataclass(frozen=True, slots=True)
class Command:
    """Runs a program in a folder and reads what it prints; see `hosts.parse`."""

    line: Sequence[str]
    slots: int = 1
    folder: Path | None = None
    period_s: float = 2.0

    @property
    def name(self) -> str:
        return f"command {self.line[0]}"

    def find(self, timeout_s: float) -> Hosts:
        """Return what the program prints."""
        return parse(output_of(self.line, timeout_s, folder=self.folder), self.slots)

    def close(self) -> None:
        """Nothing is open."""
