"""Skips what needs hosts of its own where none can be built; builds them, and jobs on them."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from elastic.chaos.net.hosts import Net, missing, missing_switch
from tests.hosts.jobs import OnHosts


@pytest.fixture(scope="session")
def buildable() -> None:
    """Skip, with the reason, where hosts cannot be built."""
    if why := missing():
        pytest.skip(why)


@pytest.fixture
def build(tmp_path: Path, buildable: None) -> Iterator[Callable[..., Net]]:
    """Builds one net of hosts, closed with the test."""
    built: list[Net] = []

    def build(count: int, without_sshd: Sequence[str] = (), **options: Any) -> Net:
        if options.get("switched") and (why := missing_switch()):
            pytest.skip(why)
        net = Net(tmp_path / "net", count, **options)
        built.append(net)
        net.open(without_sshd)
        return net

    yield build
    for net in built:
        net.close()


@pytest.fixture
def begin(tmp_path: Path, build: Callable[..., Net]) -> Iterator[Callable[..., OnHosts]]:
    """Begins a job on hosts of a net, and returns once it trains."""
    begun: list[OnHosts] = []

    def begin(net: Net, *names: str, size: int | None = None, **options: Any) -> OnHosts:
        job = OnHosts.start(net, tmp_path, *names, **options)
        begun.append(job)
        job.wait_stepping(size if size is not None else len(names))
        return job

    yield begin
    for job in begun:
        job.close()
