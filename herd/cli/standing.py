"""Asking about a session's mailbox, whether it runs or not: its coordinator where it has one, or a visit."""

import os
from collections.abc import Callable
from typing import Any, TypeVar

from herd.cli.caller import Caller
from herd.cli.calling import ask
from herd.cli.context import Context
from herd.core.errors import PeerOffline
from herd.mail.visit import VisitWork, look

Result = TypeVar("Result")


def asked_or_looked(
    context: Context,
    caller: Caller,
    question: tuple[str, dict[str, Any]],
    read: Callable[[dict[str, Any]], Result],
    work: VisitWork[Result],
    nothing: Result,
) -> Result:
    """Ask the caller's coordinator, or look into its mailbox where it has none.

    Args:
        context: The command's surroundings.
        caller: Whose mailbox it is.
        question: The method and its params, for a coordinator.
        read: Gives what the answer says.
        work: What a visit does instead.
        nothing: What there is where the session was never started, or has no mailbox.

    Raises:
        PeerOffline: somebody else visits the mailbox just now.
    """
    if caller.record is None:
        if not os.path.exists(context.layout.session_file(caller.session.key)):
            return nothing
        try:
            found = look(context.layout, caller.session.key, work)
        except PeerOffline:
            caller = Caller(caller.session, context.living(caller.session))
            if caller.record is None:
                raise  # a visitor has the mailbox for a moment, and no coordinator is begun for a look
        else:
            return nothing if found is None else found
    return read(ask(context, caller, *question))
