"""The tables of one mailbox: a script for each version of them, of which an older mailbox runs the rest.

`inbox` holds what this session accepted and owes receipts for, `outbox` what it sent and what it knows of
it, `shown` which peers this session has been shown and may therefore write to. `counter` numbers events:
every change of a row's state takes the next value as its cursor, and `told` is the cursor up to which this
session's host has been told receipts.

Of a message, `run` is the exact run of this session that sent it or that it came for, `instance_id` the
instance that was there then (none, where a visitor took it), `lifetime_ms` what it had left to live at the
moment `since`, and `parts` what of it lies outside the row: `bodies` holds that, each in `chunks`, and
so it does what this session's agents have made, its `results`. `bindings` are the references under which
attached results came. What belongs to a row goes with it. `settled` is the moment at which a message was
found resolved, and a `stripped` row has lost its text to retention. `entered` is the cursor
it came in with, which orders what was sent and received among one another. A run is named by its peer id, and
a message without one is the session's own; `sender_key` has the peer id behind the session key where a run
sent it, and `to_run` says that `recipient` is a run.

`pushes` holds the receipts of messages whose sender subscribed to them (`subscribed`), one for each change
until it has confirmed that very one. `events` is the journal of what a host may be told of: the arrival of
mail and its end without a hand-over, and each change of a receipt.
"""

import sqlite3
from contextlib import closing

from herd.core.limits import MAILBOX_VERSION

_FIRST = """
CREATE TABLE custody (
    only INTEGER PRIMARY KEY CHECK (only = 1),
    custody_id TEXT NOT NULL,
    session_key TEXT NOT NULL
) STRICT;

CREATE TABLE counter (
    only INTEGER PRIMARY KEY CHECK (only = 1),
    value INTEGER NOT NULL,
    told INTEGER NOT NULL
) STRICT;
INSERT INTO counter VALUES (1, 0, 0);

CREATE TABLE inbox (
    sequence INTEGER PRIMARY KEY AUTOINCREMENT,
    sender_key TEXT NOT NULL,
    message_id TEXT NOT NULL,
    recipient TEXT NOT NULL,
    digest TEXT NOT NULL,
    sender TEXT NOT NULL,
    content TEXT NOT NULL,
    topic TEXT,
    reply_to TEXT,
    correlation_id TEXT NOT NULL,
    conversation_id TEXT NOT NULL,
    depth INTEGER NOT NULL,
    no_reply_needed INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    state TEXT NOT NULL,
    cursor INTEGER NOT NULL,
    accepted_at INTEGER NOT NULL,
    delivered_at INTEGER,
    replied_at INTEGER,
    outcome TEXT,
    handovers INTEGER NOT NULL DEFAULT 0,
    evidence TEXT,
    owed INTEGER NOT NULL DEFAULT 1,
    UNIQUE (message_id, sender_key, recipient)
) STRICT;
CREATE INDEX inbox_waiting ON inbox (sequence) WHERE state = 'accepted';
CREATE INDEX inbox_owed ON inbox (sender_key, sequence) WHERE owed = 1;

CREATE TABLE outbox (
    position INTEGER PRIMARY KEY AUTOINCREMENT,
    message_id TEXT NOT NULL UNIQUE,
    recipient TEXT NOT NULL,
    recipient_key TEXT NOT NULL,
    digest TEXT NOT NULL,
    sender TEXT NOT NULL,
    content TEXT NOT NULL,
    topic TEXT,
    reply_to TEXT,
    correlation_id TEXT NOT NULL,
    conversation_id TEXT NOT NULL,
    depth INTEGER NOT NULL,
    no_reply_needed INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    custody_id TEXT,
    state TEXT NOT NULL,
    cursor INTEGER NOT NULL,
    accepted_at INTEGER,
    delivered_at INTEGER,
    replied_at INTEGER,
    outcome TEXT
) STRICT;
CREATE INDEX outbox_pending ON outbox (position) WHERE state = 'pending';
CREATE INDEX outbox_cursor ON outbox (cursor);

CREATE TABLE shown (
    target TEXT PRIMARY KEY,
    session_key TEXT NOT NULL,
    name TEXT,
    shown_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
"""

_SECOND = """
ALTER TABLE inbox ADD COLUMN run TEXT;
ALTER TABLE inbox ADD COLUMN instance_id TEXT;
ALTER TABLE inbox ADD COLUMN lifetime_ms INTEGER;
ALTER TABLE inbox ADD COLUMN since TEXT;
ALTER TABLE inbox ADD COLUMN parts TEXT;

ALTER TABLE outbox ADD COLUMN run TEXT;
ALTER TABLE outbox ADD COLUMN instance_id TEXT;
ALTER TABLE outbox ADD COLUMN lifetime_ms INTEGER;
ALTER TABLE outbox ADD COLUMN since TEXT;
ALTER TABLE outbox ADD COLUMN parts TEXT;

ALTER TABLE inbox ADD COLUMN handed_at INTEGER;
ALTER TABLE inbox ADD COLUMN settled TEXT;
ALTER TABLE inbox ADD COLUMN stripped INTEGER NOT NULL DEFAULT 0;
ALTER TABLE outbox ADD COLUMN settled TEXT;
ALTER TABLE outbox ADD COLUMN stripped INTEGER NOT NULL DEFAULT 0;

DROP INDEX outbox_pending;
CREATE INDEX outbox_unresolved ON outbox (position) WHERE state IN ('pending', 'accepted');
ALTER TABLE outbox ADD COLUMN to_run INTEGER NOT NULL DEFAULT 0;
DROP INDEX inbox_waiting;
CREATE INDEX inbox_waiting ON inbox (run, sequence) WHERE state = 'accepted';

CREATE TABLE results (
    result_id INTEGER PRIMARY KEY AUTOINCREMENT,
    ref TEXT NOT NULL UNIQUE,
    canonical TEXT NOT NULL UNIQUE,
    branch TEXT,
    sha256 TEXT NOT NULL,
    bytes INTEGER NOT NULL
) STRICT;

CREATE TABLE bodies (
    body_id INTEGER PRIMARY KEY,
    outbox_position INTEGER REFERENCES outbox (position) ON DELETE CASCADE,
    inbox_sequence INTEGER REFERENCES inbox (sequence) ON DELETE CASCADE,
    result_id INTEGER REFERENCES results (result_id) ON DELETE CASCADE,
    part INTEGER NOT NULL
) STRICT;
CREATE INDEX bodies_sent ON bodies (outbox_position) WHERE outbox_position IS NOT NULL;
CREATE INDEX bodies_received ON bodies (inbox_sequence) WHERE inbox_sequence IS NOT NULL;
CREATE INDEX bodies_results ON bodies (result_id) WHERE result_id IS NOT NULL;

CREATE TABLE chunks (
    body_id INTEGER NOT NULL REFERENCES bodies (body_id) ON DELETE CASCADE,
    number INTEGER NOT NULL,
    data BLOB NOT NULL,
    UNIQUE (body_id, number)
) STRICT;

CREATE TABLE bindings (
    inbox_sequence INTEGER NOT NULL REFERENCES inbox (sequence) ON DELETE CASCADE,
    ref TEXT NOT NULL,
    canonical TEXT NOT NULL,
    part INTEGER NOT NULL
) STRICT;
CREATE INDEX bindings_received ON bindings (inbox_sequence);
CREATE INDEX bindings_ref ON bindings (ref);
CREATE INDEX bindings_canonical ON bindings (canonical);

ALTER TABLE inbox ADD COLUMN entered INTEGER NOT NULL DEFAULT 0;
ALTER TABLE inbox ADD COLUMN subscribed INTEGER NOT NULL DEFAULT 0;
ALTER TABLE outbox ADD COLUMN entered INTEGER NOT NULL DEFAULT 0;
CREATE INDEX inbox_exchange ON inbox (correlation_id) WHERE depth > 0 OR reply_to IS NOT NULL;
CREATE INDEX outbox_exchange ON outbox (correlation_id) WHERE depth > 0 OR reply_to IS NOT NULL;

CREATE TABLE pushes (
    sequence INTEGER NOT NULL,
    cursor INTEGER NOT NULL,
    state TEXT NOT NULL,
    accepted_at INTEGER NOT NULL,
    delivered_at INTEGER,
    replied_at INTEGER,
    outcome TEXT,
    PRIMARY KEY (sequence, cursor)
) STRICT, WITHOUT ROWID;

CREATE TABLE events (
    cursor INTEGER PRIMARY KEY,
    kind TEXT NOT NULL,
    message_id TEXT NOT NULL,
    target TEXT NOT NULL,
    state TEXT NOT NULL,
    correlation_id TEXT NOT NULL,
    at INTEGER NOT NULL,
    outcome TEXT,
    run TEXT
) STRICT;
CREATE INDEX events_expired ON events (cursor) WHERE kind = 'message' AND state = 'expired';
"""

_THIRD = """
-- A stored sender may name its worktree group and its branch, which no earlier version can read.
"""

SCRIPTS = (_FIRST, _SECOND, _THIRD)
"""What makes each version of the tables out of the one before it, from nothing to `MAILBOX_VERSION`."""


def bring_up(connection: sqlite3.Connection, version: int) -> None:
    """Bring the tables from a version to the newest, inside the caller's transaction.

    Args:
        connection: The mailbox.
        version: What its tables are now; 0 for none at all.
    """
    for script in SCRIPTS[version:]:
        for statement in script.split(";\n"):
            connection.execute(statement)
    connection.execute(f"PRAGMA user_version = {MAILBOX_VERSION}")


def deviations(connection: sqlite3.Connection, version: int) -> list[str]:
    """Give how an open mailbox differs from these tables, such as `no table shown` or `a trigger t`.

    Indexes are not counted: without one everything is true, and slower.

    Args:
        connection: The mailbox.
        version: The version of its tables that it names.

    Raises:
        sqlite3.Error: it cannot be read.
    """
    with closing(sqlite3.connect(":memory:")) as whole:
        for script in SCRIPTS[:version]:
            whole.executescript(script)
        wanted = _columns(whole)
    found = _columns(connection)
    lost = sorted({table for table, _ in wanted} - {table for table, _ in found})
    differing = [f"no table {table}" for table in lost]
    differing += [f"no column {table}.{name}" for table, name in sorted(wanted - found) if table not in lost]
    for table in ("counter", "custody"):
        if table not in lost and not connection.execute(f"SELECT 1 FROM {table}").fetchone():  # noqa: S608
            differing.append(f"no row in {table}")
    # One would act on every row that is written, and Herd has none.
    triggers = connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger' ORDER BY name")
    return differing + [f"a trigger {name}" for (name,) in triggers]


def _columns(connection: sqlite3.Connection) -> set[tuple[str, str]]:
    return set(
        connection.execute(
            "SELECT tables.name, columns.name FROM sqlite_master AS tables,"
            " pragma_table_info(tables.name) AS columns WHERE tables.type = 'table'"
        )
    )
