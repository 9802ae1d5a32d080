"""Asking about a session's mailbox, whether it runs or not: its coordinator where it has one, or a visit."""

import os
import sqlite3
from collections.abc import Callable
from typing import Any, TypeVar

from herd.cli.caller import Caller
from herd.cli.calling import ask
from herd.cli.context import Context
from herd.core.errors import PeerOffline
from herd.core.limits import HISTORY_MESSAGES
from herd.mail.history import history
from herd.mail.visit import VisitWork, look
from herd.presence.session_file import SessionFile

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


_NOTHING: tuple[list[dict[str, Any]], bool] = ([], False)


def told_history(context: Context, caller: Caller, *, most: int, left: bool) -> list[dict[str, Any]]:
    """Give what `session.history` tells, in as many answers as that takes.

    Args:
        context: The command's surroundings.
        caller: Whose messages they are.
        most: How many at most, the newest.
        left: Only what former instances left unresolved; where nobody coordinates the session, all that is.
    """
    found: list[dict[str, Any]] = []
    while len(found) < most:
        wanted, skip = min(most - len(found), HISTORY_MESSAGES), len(found)
        page, more = asked_or_looked(
            context,
            caller,
            ("session.history", {"most": wanted, "skip": skip, "left": left}),
            _page,
            _looking(wanted, skip, left=left),
            _NOTHING,
        )
        found = [*page, *found]
        if not more and len(page) < wanted:
            break
    return found


def _page(answer: dict[str, Any]) -> tuple[list[dict[str, Any]], bool]:
    return answer["messages"], bool(answer.get("more"))


def _looking(most: int, skip: int, *, left: bool) -> VisitWork[tuple[list[dict[str, Any]], bool]]:
    others = "" if left else None

    def work(connection: sqlite3.Connection, _: SessionFile) -> tuple[list[dict[str, Any]], bool]:
        return history(connection, most=most, skip=skip, left_by_others_than=others), False

    return work
