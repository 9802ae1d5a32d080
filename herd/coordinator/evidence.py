"""What verdicts rest on while the authority lock is held, and the verdicts themselves."""

from typing import NamedTuple, Self

from assignments.evidence import Scan
from assignments.worktrees.groups import Grouped
from herd.coordinator.topologies import NotFresh, Topologies
from herd.core.authority_lock import AuthorityHold
from herd.core.errors import EligibilityDenied, HerdError
from herd.mail.received import Admitted
from herd.presence.scopes import require_mutual
from roles.eligibility import Judge
from roles.model import Allowed, Denied, Folder, Party, Unverified, Verdict, require


class Judged(NamedTuple):
    """A verdict, and the sender as it was judged: with its group, where that counted."""

    verdict: Verdict
    sender: Party


class Evidence:
    """What verdicts rest on for the time of one hold.

    Args:
        judge: Turns it into verdicts.
        scan: What the assignment records prove.
        topologies: The worktree groups.
    """

    def __init__(self, judge: Judge, scan: Scan, topologies: Topologies) -> None:
        self._judge = judge
        self._scan = scan
        self._topologies = topologies

    def verdict(self, sender: Party, target: Party, *, reply: bool = False) -> Verdict:
        """Judge; see `judged`."""
        return self.judged(sender, target, reply=reply).verdict

    def judged(self, sender: Party, target: Party, *, reply: bool = False) -> Judged:
        """Judge whether `sender` may write to `target`; `reply` where it answers it.

        Raises:
            NotFresh: the verdict may rest on worktree groups that have to be looked up first.
        """
        verdict = self._judge.verdict(sender, target, self._scan, reply=reply)
        if isinstance(verdict, Unverified) and verdict.of_group:
            sender, target = self._grouped([sender, target])
            verdict = self._judge.verdict(sender, target, self._scan, reply=reply)
        return Judged(verdict, sender)

    def require(self, sender: Party, target: Party, *, reply: bool = False) -> None:
        """Let pass what may be written.

        Raises:
            EligibilityDenied, EligibilityUnverified: by the verdict.
            ScopeDenied: the scopes do not take each other in.
            NotFresh: see `judged`.
        """
        require(self.verdict(sender, target, reply=reply))
        require_mutual(sender.extent, target.extent)

    def admitted(self, sender: Party, target: Party) -> Admitted:
        """Let pass what may be written, or replies alone where only those may; raises as `require` does."""
        verdict, judged = self.judged(sender, target)
        closed: HerdError | None = None
        if isinstance(verdict, Denied) and self._answers_only(sender, target):
            closed = EligibilityDenied(verdict.reason)
        else:
            require(verdict)
        require_mutual(sender.extent, target.extent)
        membership, held = judged.membership, self._scan.held.get(sender.key, ())
        return Admitted(
            closed,
            membership.key if isinstance(membership, Grouped) else None,
            held[0].branch if held else None,
        )

    def _answers_only(self, sender: Party, target: Party) -> bool:
        # To a terminal session alone makes it a difference, whether it is answered.
        return target.terminal and self.verdict(sender, target, reply=True) == Allowed()

    def _grouped(self, parties: list[Party]) -> list[Party]:
        lacking: list[Folder] = []
        known: list[Party] = []
        for party in parties:
            membership = party.membership
            if party.folder is not None:
                membership = self._topologies.found(party.folder)
                if membership is None:
                    lacking.append(party.folder)
            known.append(party._replace(membership=membership))
        if lacking:
            raise NotFresh(lacking)
        return known


class Gathering:
    """Judges many by one evidence: whose worktree groups are lacking is noted, and unverified for now.

    Args:
        evidence: The evidence.

    Attributes:
        lacking: The folders to look up.
    """

    def __init__(self, evidence: Evidence) -> None:
        self._evidence = evidence
        self.lacking: list[Folder] = []

    def verdict(self, sender: Party, target: Party) -> Verdict:
        """See `Evidence.verdict`."""
        try:
            return self._evidence.verdict(sender, target)
        except NotFresh as fault:
            self.lacking += fault.folders
            return Unverified(str(fault), of_group=True)


class Ruling(Evidence):
    """A hold of the lock with its evidence: a context manager, or call `release`; again: nothing."""

    def __init__(self, hold: AuthorityHold, judge: Judge, scan: Scan, topologies: Topologies) -> None:
        super().__init__(judge, scan, topologies)
        self._hold = hold

    def release(self) -> None:
        """End the hold."""
        self._hold.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()
