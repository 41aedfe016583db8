"""One function from what was heard to what the launcher is told. The daemon acts on what it returns."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from discovery.damp import ABOUT_TO_JOIN, Damping, DampRule, damp
from discovery.decisions import Decision, Kind
from discovery.gate import UNSEEN, GateRule, Health, due_at, judge
from discovery.hosts import Host, Hosts
from discovery.merge import merge, plain
from discovery.trust import Failure, Trust, TrustRule, age, hear

LOOKED_UP = "its address is being looked up"
PASSING = frozenset({LOOKED_UP, ABOUT_TO_JOIN, UNSEEN.why})  # not worth a decision: it comes by itself


@dataclass(frozen=True, slots=True)
class Rules:
    """How to judge."""

    trust: TrustRule = field(default_factory=TrustRule)
    damp: DampRule = field(default_factory=DampRule)
    gate: GateRule = field(default_factory=GateRule)
    canonical: bool = True


@dataclass(frozen=True, slots=True)
class News:
    """What was heard since the last time.

    Attributes:
        answers: of sources.
        looks: at hosts, what was wrong; empty if nothing.
        addresses: all that are known, of each name that a source gave; a name that has none yet is waited for.
        notices: hosts that will be taken away, with the reason.
    """

    answers: Mapping[str, Hosts | Failure] = field(default_factory=dict)
    looks: Mapping[str, str] = field(default_factory=dict)
    addresses: Mapping[str, frozenset[str]] = field(default_factory=dict)
    notices: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class State:
    """What is remembered from one time to the next.

    Attributes:
        trusts: by source, in the order in which they count.
        health: of hosts that are not this machine.
        out: what is not listed, with its reason.
    """

    trusts: Mapping[str, Trust]
    health: Mapping[str, Health] = field(default_factory=dict)
    damping: Damping = field(default_factory=Damping)
    out: Mapping[str, str] = field(default_factory=dict)

    @property
    def listed(self) -> tuple[Host, ...]:
        return self.damping.listed


@dataclass(frozen=True, slots=True)
class Outcome:
    """What follows.

    Attributes:
        unresolved: names whose addresses are needed.
        due: hosts to look at now.
        ready: every source has said something, and its hosts' addresses are known: the list is one to go by.
        wake_at: when to decide again, whatever happens.
    """

    state: State
    decisions: list[Decision]
    unresolved: tuple[str, ...]
    due: tuple[str, ...]
    ready: bool
    wake_at: float


def begin(sources: Sequence[str]) -> State:
    """Return what is known before anything was heard."""
    return State({source: Trust() for source in sources})


def decide(state: State, news: News, now: float, rules: Rules) -> Outcome:
    """Judge what was heard: the only place where it is decided who is listed."""
    decisions: list[Decision] = []
    trusts = _believe(state, news, now, rules, decisions)
    found = [trust.believed(rules.trust) for trust in trusts.values()]
    unresolved = _unresolved(found, news) if rules.canonical or rules.gate.check != "none" else ()
    waiting = frozenset(unresolved)
    if waiting:
        found = [Hosts(tuple(h for h in hosts.hosts if h.name not in waiting), hosts.left_out) for hosts in found]
    merged = merge(found, news.addresses, frozenset(state.damping.order), canonical=rules.canonical)
    out = {left.what: left.reason for left in merged.left_out}
    out |= dict.fromkeys(unresolved, LOOKED_UP)
    health, due, wake_at = _health(state, merged.hosts, merged.local, news, now, rules.gate)
    there = []
    for host in merged.hosts:
        why = news.notices.get(host.name) or _closed(host, merged.local, health, rules.gate)
        if why:
            out[host.name] = why
        else:
            there.append(host)
    if waiting and state.damping.order:  # a name that is listed is not dropped for a lookup
        looked_up = {plain(name) if rules.canonical else name for name in waiting}
        kept = [host for host in state.listed if host.name in looked_up]
        there += kept
        health |= {h.name: state.health[h.name] for h in kept if h.name in state.health}  # nor is it to be shown anew
    damped = damp(state.damping, there, out, now, rules.damp)
    out |= damped.held
    decisions += damped.decisions
    left_out = ((what, why) for what, why in out.items() if state.out.get(what) != why and why not in PASSING)
    decisions += [Decision(Kind.LEFT_OUT, what, why) for what, why in left_out]
    after = State(trusts, health, damped.damping, out)
    answered = all(trust.hosts is not None or trust.failing for trust in trusts.values())
    ready = answered and (bool(after.damping.order) or not unresolved)
    return Outcome(after, decisions, unresolved, due, ready, min(wake_at, damped.wake_at))


def _believe(state: State, news: News, now: float, rules: Rules, decisions: list[Decision]) -> dict[str, Trust]:
    trusts = {}
    for source, before in state.trusts.items():
        trust = before
        if source in news.answers:
            trust, told = hear(trust, source, news.answers[source], now, rules.trust)
            decisions += told
        trust, told = age(trust, source, now, rules.trust)
        decisions += told
        trusts[source] = trust
    return trusts


def _unresolved(found: Sequence[Hosts], news: News) -> tuple[str, ...]:
    return tuple(host.name for hosts in found for host in hosts.hosts if host.name not in news.addresses)


def _health(
    state: State, hosts: Sequence[Host], local: Collection[str], news: News, now: float, rule: GateRule
) -> tuple[dict[str, Health], tuple[str, ...], float]:
    """Return what is known of each host, which to look at now, and when to look again."""
    if rule.check == "none":
        return {}, (), math.inf
    health: dict[str, Health] = {}
    due: list[str] = []
    wake_at = math.inf
    for host in hosts:
        if host.name in local:
            continue
        known = state.health.get(host.name, UNSEEN)
        if host.name in news.looks:
            known = judge(known, news.looks[host.name], now, rule)
        health[host.name] = known
        at = due_at(known, rule)
        if at <= now:
            due.append(host.name)
        else:
            wake_at = min(wake_at, at)
    return health, tuple(due), wake_at


def _closed(host: Host, local: Collection[str], health: Mapping[str, Health], rule: GateRule) -> str:
    if rule.check == "none" or host.name in local:
        return ""
    known = health[host.name]
    return "" if known.open else known.why
