"""`elastic-discover`: which hosts there are, and why each is in or out."""

import argparse
import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from discovery import memory
from discovery.build import looker_of, sources_of
from discovery.config import Discovery, DiscoveryConfigError, of_hosts_file, read
from discovery.daemon import Daemon, Watch, keep_s, own_session
from discovery.hosts import SourceError
from discovery.notices.posted import Posted
from discovery.place import Place, PlaceError

ONCE_S = 30.0
HUNG_S = 30.0


def main(words: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code: 0, or 2 when something must be changed first."""
    told = _parser().parse_args(words)
    path: Path = told.config or told.hosts
    place = Place.of(path)
    try:
        config = read(path) if told.config is not None else of_hosts_file(path)
        watch = _watch(config, place, fresh=not told.daemon)
    except (DiscoveryConfigError, SourceError, PlaceError) as error:
        print(f"elastic-discover: {error}", file=sys.stderr)
        if told.daemon:
            with contextlib.suppress(OSError):
                place.write_problem(str(error))
        return 2
    if told.daemon:
        return _daemon(watch, config, place, told.log)
    if told.watch:
        return _follow(watch, place)
    found = _look(watch, place)
    if told.explain:
        print("\n".join(_table(found)))
    else:
        print("".join(f"{name}:{slots}\n" for name, slots in found["listed"]), end="")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="elastic-discover", description=__doc__)
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--config", type=Path, metavar="FILE", help="YAML: where hosts come from, and when they count")
    where.add_argument("--hosts", type=Path, metavar="FILE", help="a hosts file, with the defaults for all else")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--explain", action="store_true", help="print each host with why it is in or out")
    what.add_argument("--watch", action="store_true", help="print decisions as they are made, until Ctrl-C")
    what.add_argument(
        "--daemon", action="store_true", help="keep the answer of discover_hosts.sh: it starts this itself"
    )
    parser.add_argument("--log", type=Path, metavar="FILE", help="where the daemon also writes its decisions")
    return parser


def _watch(config: Discovery, place: Place, *, fresh: bool) -> Watch:
    place.create()
    sources = sources_of(config)
    state = memory.load(None if fresh else place.read_state(), list(sources), memory.boot())
    posted = Posted(config.notices) if config.notices is not None else None
    return Watch(sources, config.rules, config.timeout_s, looker_of(config).look, posted, state)


def _daemon(watch: Watch, config: Discovery, place: Place, log: Path | None) -> int:
    own_session()
    lock = place.take_lock(os.getpid()) or _take_over(place)
    if lock is None:
        return 0  # there is one already
    place.problem.unlink(missing_ok=True)
    daemon = Daemon(watch, place, keep_s(config.when_stale, config.stale_s), log)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: daemon.stop())
    daemon.run()
    os._exit(0)  # a thread may hang in a source for ever


def _take_over(place: Place) -> int | None:
    """Take the place of a daemon that is there and has written nothing for long, such as a frozen one."""
    try:
        silent_s = time.time() - place.answer.stat().st_mtime
    except OSError:
        return None
    if silent_s < HUNG_S:
        return None
    place.end_daemon(signal.SIGKILL)
    time.sleep(0.2)
    return place.take_lock(os.getpid())


def _look(watch: Watch, place: Place) -> dict[str, Any]:
    """Return what the daemon of this configuration knows, or else what one look of our own finds."""
    if place.daemon() is not None and (raw := place.read_state()) is not None:
        return raw | {"whose": "as the daemon of this configuration has it"}
    watch.start()
    ends = time.monotonic() + ONCE_S
    while time.monotonic() < ends and not watch.settled:
        watch.step(0.1)
    watch.close()
    return memory.dump(watch.state, memory.boot()) | {"whose": "one look; no daemon runs for this configuration"}


def _table(found: dict[str, Any]) -> Iterator[str]:
    rows = [(f"{name}:{slots}", "in", "it can take workers") for name, slots in found["listed"]]
    rows += [(what, "out", why) for what, why in found["out"].items()]
    rows += [(name, "source", f"no answer: {s['failing']}") for name, s in found["sources"].items() if s["failing"]]
    width = max((len(row[0]) for row in rows), default=0)
    yield f"# {found['whose']}"
    for what, where, why in rows:
        yield f"{what:<{width}}  {where:<6}  {why}"
    if not rows:
        yield "no source names any host"


def _follow(watch: Watch, place: Place) -> int:
    signal.signal(signal.SIGINT, signal.default_int_handler)  # shells start what runs in the background deaf to it
    try:
        if place.daemon() is not None:
            for line in _lines_of(place.decisions):
                told = json.loads(line)
                _print(told["time"], told["event"], told["what"], told["reason"])
        watch.start()
        while True:
            for decision in watch.step(1.0):
                _print(time.time(), decision.kind, decision.what, decision.reason)
    except KeyboardInterrupt:
        return 0


def _print(wall_s: float, event: str, what: str, reason: str) -> None:
    clock = time.strftime("%H:%M:%S", time.localtime(wall_s))
    print(f"{clock}  {event:<16}  {what}: {reason}", flush=True)


def _lines_of(path: Path) -> Iterator[str]:
    """Yield the lines of a file, and each that is added."""
    with path.open(encoding="utf-8") as file:
        rest = ""
        while True:
            rest += file.readline()
            if rest.endswith("\n"):
                yield rest
                rest = ""
            else:
                time.sleep(0.2)


if __name__ == "__main__":
    sys.exit(main())
