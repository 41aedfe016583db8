"""The shell around `listing.decide`: it asks, waits, and writes down what was decided.

Theory of operation. One thread owns the state and waits on a queue. Each source is asked in a thread
of its own; names are looked up and hosts looked at by a few more; all of them put what they find on
the queue. Whatever hangs therefore holds up nothing else. The answer is written anew each second, so
that whoever reads it can tell a daemon that is alive from one that is not.
"""

import json
import math
import os
import queue
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from discovery import memory
from discovery.decisions import Decision
from discovery.gate import UNSEEN, Look, look_for
from discovery.hosts import Host, Hosts, SourceError
from discovery.listing import News, Rules, State, decide
from discovery.notices.posted import Posted
from discovery.place import FOR_EVER_S, Place, replace
from discovery.resolve import Resolver
from discovery.source import Source
from discovery.trust import Failure

BEAT_S = 1.0
LEASE_S = 6.0
LOOKS_AT_ONCE = 32
GRACE_S = 1.0  # a source that does not keep to its time


@dataclass(frozen=True, slots=True)
class Answered:
    """What a source has said."""

    source: str
    answer: Hosts | Failure


@dataclass(frozen=True, slots=True)
class Looked:
    """What a look at a host has found wrong."""

    host: str
    wrong: str


@dataclass(frozen=True, slots=True)
class Resolved:
    """What a lookup has found."""

    name: str
    addresses: frozenset[str]


class Watch:
    """Asks sources and judges what they say; the owner of all state.

    Args:
        sources: by name, in the order in which they count.
        rules: of judgement.
        timeout_s: for each question to a source.
        look: looks at a host and returns what is wrong.
        posted: reads notices; None without.
        state: what is known to begin with.
        now: the clock.
    """

    def __init__(
        self,
        sources: Mapping[str, Source],
        rules: Rules,
        timeout_s: float,
        look: Callable[[str, Look], str],
        posted: Posted | None,
        state: State,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._sources = sources
        self._rules = rules
        self._timeout_s = timeout_s
        self._look = look
        self._posted = posted
        self._now = now
        self._queue: queue.SimpleQueue[Answered | Looked | Resolved | None] = queue.SimpleQueue()
        self._resolver = Resolver(lambda name, found: self._queue.put(Resolved(name, found)))
        self._lookers = ThreadPoolExecutor(LOOKS_AT_ONCE, thread_name_prefix="look")
        self._looking: set[str] = set()
        self._heard_at: dict[str, float] = {}
        self._closed = threading.Event()
        self._wake_at = 0.0
        self._lookups_due = False
        self.state = state
        self.ready = False

    @property
    def settled(self) -> bool:
        """Whether nothing is on its way that could change the list soon."""
        batching = self.state.damping.waiting_since is not None
        return self.ready and not self._looking and not self._lookups_due and not batching

    def start(self) -> None:
        """Begin to ask."""
        for name, source in self._sources.items():
            self._heard_at[name] = self._now()
            threading.Thread(target=self._ask, args=(name, source), name=name, daemon=True).start()

    def step(self, wait_s: float) -> list[Decision]:
        """Wait for something to judge, `wait_s` at most; return what was decided."""
        news = self._gather(max(0.0, min(wait_s, self._wake_at - self._now())))
        now = self._now()
        done = decide(self.state, news, now, self._rules)
        self.state, self.ready, self._wake_at = done.state, done.ready, done.wake_at
        self._lookups_due = bool(done.unresolved)
        self._resolver.want((*done.unresolved, *(h.name for h in self._named())), now)
        for host in done.due:
            if host not in self._looking:
                self._looking.add(host)
                self._lookers.submit(self._look_at, host, look_for(self.state.health.get(host, UNSEEN)))
        return done.decisions

    def wake(self) -> None:
        """Let `step` return."""
        self._queue.put(None)

    def close(self) -> None:
        """Ask no more."""
        self._closed.set()
        for source in self._sources.values():
            source.close()
        self._resolver.close()
        self._lookers.shutdown(wait=False, cancel_futures=True)

    def _named(self) -> list[Host]:
        if not self._rules.canonical and self._rules.gate.check == "none":
            return []
        return [h for t in self.state.trusts.values() for h in t.believed(self._rules.trust).hosts]

    def _gather(self, wait_s: float) -> News:
        answers: dict[str, Hosts | Failure] = {}
        looks: dict[str, str] = {}
        try:
            found = self._queue.get(timeout=wait_s) if wait_s else self._queue.get_nowait()
            while True:
                if isinstance(found, Answered):
                    answers[found.source] = found.answer
                    self._heard_at[found.source] = self._now()
                elif isinstance(found, Looked):
                    looks[found.host] = found.wrong
                    self._looking.discard(found.host)
                elif isinstance(found, Resolved):
                    self._resolver.learn(found.name, found.addresses)
                found = self._queue.get_nowait()
        except queue.Empty:
            pass
        now = self._now()
        for name, source in self._sources.items():
            if now - self._heard_at[name] > source.period_s + self._timeout_s + GRACE_S:
                answers.setdefault(name, Failure(f"no answer within {self._timeout_s:g} s, and it does not give up"))
        self._resolver.give_up_waiting(now)
        notices = self._posted.read(now) if self._posted is not None else {}
        return News(answers, looks, self._resolver.known, notices)

    def _ask(self, name: str, source: Source) -> None:
        """Ask one source again and again; what it repeats is passed on once a beat."""
        last: Hosts | Failure | None = None
        told_at = -math.inf
        while not self._closed.is_set():
            answer: Hosts | Failure
            try:
                answer = source.find(self._timeout_s)
            except SourceError as error:
                answer = Failure(str(error))
            except Exception as error:  # noqa: BLE001 - a source's bug must not end discovery
                answer = Failure(f"{type(error).__name__}: {error}")
            if self._now() - told_at >= BEAT_S or (answer is not last and answer != last):
                self._queue.put(Answered(name, answer))
                last, told_at = answer, self._now()
            self._closed.wait(source.period_s)

    def _look_at(self, host: str, how: Look) -> None:
        try:
            wrong = self._look(host, how)
        except Exception as error:  # noqa: BLE001 - a host that cannot be looked at may not be listed
            wrong = f"{type(error).__name__}: {error}"
        self._queue.put(Looked(host, wrong))


class Daemon:
    """Keeps the answer of a place until nobody asks for it any more.

    Args:
        watch: what is judged.
        place: where the answer lies.
        keep_s: how long it may be used without this daemon.
        log: where decisions are written, besides the place's own file.
    """

    def __init__(self, watch: Watch, place: Place, keep_s: float, log: Path | None) -> None:
        self._watch = watch
        self._place = place
        self._keep_s = keep_s
        self._logs = [place.decisions] + ([log] if log is not None else [])
        self._boot = memory.boot()
        self._stopped = False

    def run(self) -> None:
        """Ask, judge and write until told to stop, or until nobody has asked for `LEASE_S`."""
        self._place.asked.touch()
        self._watch.start()
        beat = -math.inf
        written: tuple[Host, ...] | None = None
        while not self._stopped and self._is_asked():
            decisions = self._watch.step(BEAT_S)
            self._note(decisions)
            if not self._watch.ready:
                continue
            listed, now = self._watch.state.listed, time.monotonic()
            if listed != written or now - beat >= BEAT_S:
                self._place.write_answer(listed, time.time(), self._keep_s)
                beat = now
            if decisions or listed != written:
                self._remember()
                self._explain_nothing()
                written = listed
        self._remember()
        self._watch.close()
        if self._stopped:
            self._place.clear()

    def stop(self) -> None:
        """End soon, and leave no answer behind."""
        self._stopped = True
        self._watch.wake()

    def _explain_nothing(self) -> None:
        """Let whoever asks know why there is no host, if there is none."""
        state = self._watch.state
        if state.listed:
            self._place.problem.unlink(missing_ok=True)
            return
        lines = [f"{name}: {trust.failing}" for name, trust in state.trusts.items() if trust.failing]
        lines += [f"{what}: {why}" for what, why in state.out.items()]
        self._place.write_problem("no hosts yet: " + ("; ".join(lines[:5]) or "no source names any"))

    def _is_asked(self) -> bool:
        try:
            return time.time() - self._place.asked.stat().st_mtime < LEASE_S
        except OSError:
            return False

    def _note(self, decisions: list[Decision]) -> None:
        if not decisions:
            return
        wall = time.time()
        text = "".join(decision.line(wall) for decision in decisions)
        for path in self._logs:
            try:
                with path.open("a", encoding="utf-8") as file:
                    file.write(text)
            except OSError as error:
                print(f"elastic-discover: {path} cannot be written: {error.strerror}", flush=True)
                self._logs.remove(path)
                break

    def _remember(self) -> None:
        try:
            replace(self._place.state, json.dumps(memory.dump(self._watch.state, self._boot)))
        except OSError as error:
            print(f"elastic-discover: {self._place.state} cannot be written: {error.strerror}", flush=True)


def keep_s(when_stale: str, stale_s: float) -> float:
    """Return how long an answer may be used without its daemon."""
    return FOR_EVER_S if when_stale == "keep" else stale_s


def own_session() -> None:
    """Leave the session of whoever started this process, whose end must not end it."""
    try:
        os.setsid()
    except PermissionError:
        return  # it leads one already
