"""One server of forks for each module, and a data root in memory."""

import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from herd.core.paths import Layout
from tests.fakes.records import layout_at
from tests.faults.forks import Forks, ForkServer
from tests.faults.pair import Pair

_MEMORY = "/dev/shm"


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    """Give a server of forks."""
    one = ForkServer()
    yield one
    one.close()


@pytest_asyncio.fixture
async def forks(server: ForkServer) -> AsyncIterator[Forks]:
    """Give forks that are gone when the test is over."""
    async with server.forks() as some:
        yield some


@pytest.fixture
def folder() -> Iterator[Path]:
    """Give an empty private folder, in memory where there is such a place.

    What a killed process wrote lies in the kernel either way; there a sync costs nothing.
    """
    place = Path(tempfile.mkdtemp(prefix="herd-", dir=_MEMORY if os.access(_MEMORY, os.W_OK) else "/tmp"))
    yield place
    shutil.rmtree(place)


@pytest.fixture
def layout(folder: Path) -> Layout:
    """Give a data root with nothing on it."""
    return layout_at(folder)


@pytest.fixture
def pair(layout: Layout, forks: Forks) -> Pair:
    """Give Alice and Bob, who have not been started."""
    return Pair(layout, forks)
