"""What is said of mail that was handed over too often in vain, wherever it lies."""

from herd.cli.looking.finding import Finding


def set_aside(state: str, count: int, *, said: bool = False) -> Finding:
    """Give the finding of a session that is in order but for such mail.

    Args:
        state: What is said of the session.
        count: How many messages wait for a person.
        said: Whether `state` says so already.
    """
    if not count:
        return Finding("session", ok=True, detail=state)
    return Finding(
        "session",
        ok=False,
        detail=state if said else f"{state}, with {count} messages handed over in vain",
        next_step=(
            f"{count} wait for a person. Inside that session `herd inbox --look` shows them, "
            "and `herd inbox --message MESSAGE` takes one."
        ),
    )
