"""What a session's own calls need: each asks for its capability, whoever of the session makes it."""

from collections.abc import Collection

from herd.core.errors import CapabilityDenied
from herd.presence.record import RECEIVE, SEND, WAIT

NEEDS = {
    "session.send": SEND,
    "session.read": RECEIVE,
    "session.waiting": RECEIVE,
    "session.drain": RECEIVE,
}
"""The capability behind each method; the others tell a session what is its own, and need none."""


def require_capable(held: Collection[str], method: str, *, waits: bool = False) -> None:
    """Let a call pass for which the session has the capability.

    Args:
        held: What the session may do.
        method: What is called.
        waits: Whether it waits for mail, which is a capability of its own.

    Raises:
        CapabilityDenied: the session was started without it.
    """
    if method in NEEDS:
        for capability in (NEEDS[method], WAIT) if waits else (NEEDS[method],):
            require_held(held, method, capability)


def require_held(held: Collection[str], what: str, capability: str) -> None:
    """Let what needs a capability pass for a session that has it; raises as `require_capable` does."""
    if capability not in held:
        raise CapabilityDenied(
            f"{what} needs {capability}, which this session does not have",
            hint="Leave it to a session that has this capability; no message can confer one.",
        )
