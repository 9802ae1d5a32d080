"""A judge whose verdicts are chosen, for tests; it keeps the same contract as the real one."""

from collections.abc import Callable

from assignments.evidence import Scan
from roles.model import Allowed, Party, Verdict


class FakeJudge:
    """Gives one verdict for everybody until another one is chosen.

    Args:
        verdict: The verdict at first.
        meanwhile: Called whenever it is asked, before it answers.

    Attributes:
        now: The verdict that is given; a test may change it at any time.
        asked: The pairs it was asked about, sender first, in order.
    """

    def __init__(
        self, verdict: Verdict | None = None, *, meanwhile: Callable[[Party, Party], None] | None = None
    ) -> None:
        self.now: Verdict = Allowed() if verdict is None else verdict
        self.asked: list[tuple[Party, Party]] = []
        self._meanwhile = meanwhile

    def verdict(self, sender: Party, target: Party, scan: Scan, *, reply: bool = False) -> Verdict:
        """See `Judge.verdict`."""
        del scan, reply
        self.asked.append((sender, target))
        if self._meanwhile is not None:
            self._meanwhile(sender, target)
        return self.now
