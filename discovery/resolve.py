"""Addresses of names, looked up beside everything else: a name server that hangs holds up nobody."""

import socket
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor

from discovery.merge import HERE

THREADS = 16
PATIENCE_S = 2.0  # then a name counts as one that does not resolve
AGAIN_S = 60.0


class Resolver:
    """Remembers the addresses of names; owned by one thread.

    Args:
        deliver: called on another thread with what was found, to be handed to `learn`.
        lookup: returns the addresses of a name, or raises `OSError`.
    """

    def __init__(
        self,
        deliver: Callable[[str, frozenset[str]], None],
        lookup: Callable[[str], frozenset[str]] | None = None,
    ) -> None:
        self._deliver = deliver
        self._lookup = lookup or addresses_of
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="resolve")
        self._known: dict[str, frozenset[str]] = {}
        self._asked: dict[str, float] = {}
        self._pending: set[str] = set()

    @property
    def known(self) -> Mapping[str, frozenset[str]]:
        """What is known: no addresses for a name that does not resolve."""
        return self._known

    def want(self, names: Iterable[str], now: float) -> None:
        """Look names up that are new, or were looked up long ago."""
        for name in names:
            if name in self._pending or now - self._asked.get(name, -AGAIN_S) < AGAIN_S:
                continue
            self._asked[name] = now
            self._pending.add(name)
            self._pool.submit(self._find, name)

    def learn(self, name: str, found: frozenset[str]) -> None:
        """Take what was found; a name that has had addresses keeps them when it has none now."""
        self._pending.discard(name)
        if found or not self._known.get(name):
            self._known[name] = found

    def give_up_waiting(self, now: float) -> bool:
        """Let names count as unknown whose lookup takes too long; True if there are such."""
        late = [n for n in self._pending if n not in self._known and now - self._asked[n] > PATIENCE_S]
        self._known |= dict.fromkeys(late, frozenset[str]())
        return bool(late)

    def close(self) -> None:
        """Look up no more."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _find(self, name: str) -> None:
        try:
            found = self._lookup(name)
        except (OSError, UnicodeError):
            found = frozenset()
        self._deliver(name, found)


def addresses_of(name: str) -> frozenset[str]:
    """Return a name's addresses; `HERE` alone when it is this machine.

    Raises:
        OSError: when it does not resolve.
    """
    found = {str(entry[4][0]) for entry in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)}
    return frozenset({HERE}) if any(map(is_here, found)) else frozenset(found)


def is_here(address: str) -> bool:
    """Tell whether an address is this machine's: whether one can listen there."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((address.partition("%")[0], 0))
    except OSError:
        return False
    return True
