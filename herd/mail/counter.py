"""The event counter of one mailbox: every change of a row takes the next value as its cursor."""

import sqlite3


def next_cursor(connection: sqlite3.Connection) -> int:
    """Take the next cursor, inside the caller's transaction."""
    # Two plain statements took 2.5 us where one with RETURNING took 4.2.
    connection.execute("UPDATE counter SET value = value + 1")
    return last_cursor(connection)


def last_cursor(connection: sqlite3.Connection) -> int:
    """Give the cursor of the newest event."""
    return int(connection.execute("SELECT value FROM counter").fetchone()[0])


def told(connection: sqlite3.Connection) -> int:
    """Give the cursor up to which the session's host has been told receipts."""
    return int(connection.execute("SELECT told FROM counter").fetchone()[0])


def tell(connection: sqlite3.Connection, cursor: int) -> None:
    """Note that the host has been told every receipt up to `cursor`."""
    connection.execute("UPDATE counter SET told = max(told, ?)", (cursor,))
