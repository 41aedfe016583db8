"""What discovery has decided, each with its reason: one JSON line each in `decisions.jsonl`."""

import json
from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """Decisions, in the past tense."""

    HOST_LISTED = "HostListed"
    HOST_DROPPED = "HostDropped"
    SLOTS_CHANGED = "SlotsChanged"
    LEFT_OUT = "LeftOut"
    SOURCE_FAILED = "SourceFailed"
    SOURCE_RECOVERED = "SourceRecovered"
    EMPTY_DOUBTED = "EmptyDoubted"
    EMPTY_BELIEVED = "EmptyBelieved"
    ANSWER_STALE = "AnswerStale"


@dataclass(frozen=True, slots=True)
class Decision:
    """One judgement.

    Attributes:
        what: the host, the line or the source that it is about.
    """

    kind: Kind
    what: str
    reason: str

    def line(self, wall_s: float) -> str:
        """Return the JSON line, with the time in seconds since 1970."""
        fields = {"time": round(wall_s, 3), "event": self.kind.value, "what": self.what, "reason": self.reason}
        return json.dumps(fields, ensure_ascii=False) + "\n"
