"""Sources that a test scripts, judged by the one function that decides, with a clock of the test's."""

from collections.abc import Mapping

from discovery.decisions import Decision, Kind
from discovery.hosts import Host, Hosts
from discovery.listing import News, Outcome, Rules, State, begin, decide
from discovery.trust import Failure


def hosts(*lines: str) -> Hosts:
    """Return hosts from `name:slots`."""
    pairs = (line.rpartition(":") for line in lines)
    return Hosts(tuple(Host(name, int(slots)) for name, _, slots in pairs))


class World:
    """What discovery is told, time by time; names are known to be hosts of their own unless told otherwise."""

    def __init__(self, rules: Rules, *sources: str) -> None:
        self.rules = rules
        self.now = 1000.0
        self.state: State = begin(sources or ("source",))
        self.addresses: dict[str, frozenset[str]] = {}
        self.notices: dict[str, str] = {}
        self.decisions: list[Decision] = []
        self.listings: list[tuple[str, ...]] = []
        self.outcome: Outcome | None = None

    @property
    def listed(self) -> tuple[str, ...]:
        return tuple(host.line for host in self.state.listed)

    def hear(self, answer: Hosts | Failure | str, source: str = "source") -> tuple[str, ...]:
        """Let a source answer, `a:1 b:2` for short; return what is listed."""
        given = hosts(*answer.split()) if isinstance(answer, str) else answer
        return self.judge(answers={source: given})

    def look(self, **wrong: str) -> tuple[str, ...]:
        """Let hosts be looked at; return what is listed."""
        return self.judge(looks=wrong)

    def after(self, seconds: float) -> tuple[str, ...]:
        """Let time pass; return what is listed."""
        self.now += seconds
        return self.judge()

    def judge(
        self, answers: Mapping[str, Hosts | Failure] | None = None, looks: Mapping[str, str] | None = None
    ) -> tuple[str, ...]:
        for answer in (answers or {}).values():
            if isinstance(answer, Hosts):
                for host in answer.hosts:
                    self.addresses.setdefault(host.name, frozenset({f"address of {host.name}"}))
        news = News(answers or {}, looks or {}, self.addresses, self.notices)
        self.outcome = decide(self.state, news, self.now, self.rules)
        before, self.state = self.listed, self.outcome.state
        self.decisions += self.outcome.decisions
        if self.listed != before:
            self.listings.append(self.listed)
        return self.listed

    def told(self, kind: Kind) -> list[Decision]:
        return [d for d in self.decisions if d.kind is kind]

    def why_out(self, what: str) -> str:
        return self.state.out[what]
