"""Alice and Bob on one machine, for tests that decide themselves what happens to them."""

from typing import Any

from herd.core.identity import SessionName
from herd.core.paths import Layout
from tests.faults.forks import Forks
from tests.faults.session import Session, Way

ALICE = SessionName("claude", "alice")
BOB = SessionName("claude", "bob")

_QUIET = Way(curious=False, late=False, forgetful=True)


class Pair:
    """Two sessions; each may be given a fate when it is started.

    Args:
        layout: The folders of their machine.
        forks: Where their processes come from.
    """

    def __init__(self, layout: Layout, forks: Forks) -> None:
        self.layout = layout
        self.alice, self.bob = (Session(layout, forks, one.session_id, _QUIET) for one in (ALICE, BOB))
        self.alice.other, self.bob.other = self.bob, self.alice

    async def start(self, *, alice: dict[str, Any] | None = None, bob: dict[str, Any] | None = None) -> None:
        """Start both, and let each be shown the other."""
        await self.alice.start(fate=alice)
        await self.bob.start(fate=bob)
        for one in (self.alice, self.bob):
            await one.see()
