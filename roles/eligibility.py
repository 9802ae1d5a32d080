"""Who may write to whom: from evidence to verdict, without looking at anything else.

Today there are ordinary Leads alone, the terminal's among them, on one machine; whoever is anything else
is denied until the evidence about it exists. Callers ask at discovery, at submission, at acceptance and at
delivery, each time under the authority lock and across their own commit.
"""

from typing import Protocol

from roles.model import LEAD, ORDINARY, Allowed, Denied, Party, Unverified, Verdict


class Judge(Protocol):
    """Turns the evidence about two sessions into a verdict."""

    def verdict(self, sender: Party, target: Party) -> Verdict:
        """Judge whether `sender` may write to `target`."""
        ...


class OrdinaryLeads:
    """Ordinary Leads of one user on one machine, whatever their sockets, repositories and folders."""

    def verdict(self, sender: Party, target: Party) -> Verdict:
        """See `Judge.verdict`."""
        if sender.key == target.key:
            return Denied("a session does not write to itself")
        for party, side in ((sender, "sender"), (target, "target")):
            if party.kind is None or party.role is None:
                return Unverified(f"the {side}'s kind and role are not proven by its records")
            if party.role != LEAD or party.kind != ORDINARY:
                return Denied(f"the {side} is a {party.kind} {party.role}, not an ordinary Lead")
        return Allowed()
