"""The look at a session that does not run: the whole of its mailbox, on a copy."""

from herd.cli.looking.finding import Finding, Findings
from herd.cli.looking.waiting import set_aside
from herd.core.errors import PeerOffline, ResourceBusy
from herd.core.paths import Layout
from herd.mail.examining import Examined, examine
from herd.presence.session_file import SessionFile

_NOTHING = Examined(0, 0, 0, 0)


def sleeping(layout: Layout, file: SessionFile, label: str) -> Findings:
    """Look at a session that no coordinator holds.

    Args:
        layout: The folders of this machine.
        file: What its `session.json` says.
        label: What it is called.

    Raises:
        HerdError: its mailbox cannot be used; the message names it.
        OSError, sqlite3.Error: it cannot be read now.
    """
    try:
        found = examine(layout, file) or _NOTHING
    except PeerOffline:
        yield Finding("session", ok=True, detail=f"{label} is being started or written to just now")
        return
    except ResourceBusy as fault:
        yield Finding(
            "session",
            ok=False,
            detail=(
                f"{label}: {fault.message}: its lock files were removed while it ran, "
                "or another program has its mailbox open"
            ),
            next_step="End that process, and start the session again; its accepted mail is kept.",
        )
        return
    state = f"{label} sleeps with {found.waiting} undelivered messages, {found.set_aside} handed over in vain"
    if found.unsent:
        state += f", and {found.unsent} to be sent when it runs again"
    yield set_aside(state, found.set_aside, said=True)
    if found.unreadable:
        yield Finding(
            "session",
            ok=False,
            detail=f"{label}: {found.unreadable} of its messages are stored and cannot be read",
            next_step="`herd inbox --look` inside that session names them; the others come all the same.",
        )
