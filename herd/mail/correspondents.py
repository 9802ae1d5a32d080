"""Who writes and who is written to, as a mailbox tells them apart: a session, or one exact run of it.

Pure. A run is known by its peer id, which no other run and no session ever has; its mail and its replies are
its own, and whatever concerns the session alone has no run.
"""

_SEPARATOR, _BEHIND = ":", ";"  # one behind the other, so that a range between them holds every run


def identity_of(key: str, run: str | None) -> str:
    """Give what stands for a correspondent in a mailbox: its session key, for a run with the peer id behind.

    Args:
        key: The session key.
        run: The run's peer id; None for the session itself.
    """
    return key if run is None else f"{key}{_SEPARATOR}{run}"


def recipient_sql() -> str:
    """Give the expression for the identity of the recipient of a row of the outbox."""
    return f"CASE to_run WHEN 1 THEN recipient_key || '{_SEPARATOR}' || recipient ELSE recipient_key END"


def runs_of(key: str) -> tuple[str, str]:
    """Give the two bounds between which the identities of every run of a session lie."""
    return f"{key}{_SEPARATOR}", f"{key}{_BEHIND}"
