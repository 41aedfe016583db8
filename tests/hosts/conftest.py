"""Skips what needs hosts of its own where none can be built."""

import pytest

from elastic.chaos.net.hosts import missing


@pytest.fixture(scope="session")
def buildable() -> None:
    """Skip, with the reason, where hosts cannot be built."""
    if why := missing():
        pytest.skip(why)
