"""Receipts for who subscribed to a message: each change is kept until that very one was confirmed."""

import sqlite3


def push(connection: sqlite3.Connection, sequence: int) -> None:
    """Keep the receipt that a row has now, in the transaction that changed it."""
    connection.execute(
        "INSERT INTO pushes (sequence, cursor, state, accepted_at, delivered_at, replied_at, outcome)"
        " SELECT sequence, cursor, state, accepted_at, delivered_at, replied_at, outcome FROM inbox"
        " WHERE sequence = ? AND subscribed = 1",
        (sequence,),
    )
