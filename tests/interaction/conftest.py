"""Sessions that run in the test's own event loop; a test file that needs others has fixtures of its own."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from herd.core.paths import Layout
from tests.fakes.coordinators import Running, running
from tests.fakes.raw_peer import RawPeer, RawServer
from tests.fakes.records import ALICE, BOB, layout_at


@pytest.fixture
def layout(home: Path) -> Layout:
    """Give the folders of an empty data root."""
    return layout_at(home)


@pytest.fixture
async def alice(layout: Layout) -> AsyncIterator[Running]:
    """Run a session."""
    async with running(layout, ALICE) as one:
        yield one


@pytest.fixture
async def bob(layout: Layout) -> AsyncIterator[Running]:
    """Run another session."""
    async with running(layout, BOB) as one:
        yield one


@pytest.fixture
async def pair(alice: Running, bob: Running) -> tuple[Running, Running]:
    """Give two sessions that were shown each other."""
    await alice.sees(bob)
    await bob.sees(alice)
    return alice, bob


@pytest.fixture
async def hand(layout: Layout) -> AsyncIterator[RawServer]:
    """Give a peer made by hand that takes calls, and answers what the test answers."""
    async with RawPeer(BOB).listening(layout) as server:
        yield server
