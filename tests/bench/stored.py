"""Section stored: what a mailbox costs that holds 200,000 messages, beside one that holds none.

The rows are those of resolved messages, as years without retention would leave them, in the sender's outbox
and the receiver's inbox. Sending, sending again under the same id, and fetching may cost little more.
"""

import json
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from herd.core.identity import SessionName, target_of
from herd.core.paths import open_layout
from tests.bench.measuring import Sample, in_turn
from tests.bench.report import Figure, Finding, timed_figure, timed_floor
from tests.bench.workshop import TEXT, Workshop, session, target
from tests.fakes.herd_session import HerdSession

STORED = 200_000
_BOUND = 1.5
_SAMPLES = 40


def measure(workshop: Workshop) -> Iterator[Finding]:
    """Measure."""
    home = workshop.home(wide=True)
    for name in ("full-sender", "full-receiver"):
        with session(home, name) as once, session(home, f"{name}-s peer") as other:
            once.request("session.list")
            once.request("session.send", target=target(other), message="its mailbox is made")
    fill(home, "full-sender", "outbox", STORED)
    fill(home, "full-receiver", "inbox", STORED)
    with (
        session(home, "sender") as sender,
        session(home, "receiver") as receiver,
        session(home, "full-sender") as full_sender,
        session(home, "full-receiver") as full_receiver,
    ):
        pairs = {"empty": (sender, receiver), "full": (full_sender, full_receiver)}
        cases: dict[str, Sample] = {}
        for name, (one, other) in pairs.items():
            one.request("session.list")
            to = target(other)
            cases |= {f"{what}, {name}": case for what, case in _cases(one, other, to).items()}
        timings = in_turn(cases, samples=_SAMPLES)
    for what in ("send", "send again", "fetch"):
        floor = timed_floor("the same, nothing stored", timings[f"{what}, empty"])
        yield timed_figure(f"{what}, {STORED:,} stored", timings[f"{what}, full"], floor, _BOUND)
    yield Figure("the mailbox that holds them", _size(home, "full-receiver") / 2**20, "MiB")


def fill(home: Path, session_id: str, table: str, count: int) -> None:
    """Put rows of resolved messages into the mailbox of a session that does not run."""
    key = SessionName("bench", session_id).key
    peer = SessionName("bench", "somebody else").key
    with closing(sqlite3.connect(open_layout(str(home)).mailbox(key), isolation_level=None)) as connection:
        cursor = connection.execute(f"SELECT * FROM {table} LIMIT 0")
        columns = [column[0] for column in cursor.description]
        common = {
            "sender_key": peer,
            "recipient": target_of("lead", peer if table == "outbox" else key),
            "recipient_key": peer,
            "digest": "d" * 64,
            "sender": json.dumps(
                {"key": peer, "target": target_of("lead", peer), "role": "lead", "host": "x"}
            ),
            "content": TEXT,
            "correlation_id": "c",
            "conversation_id": "c",
            "depth": 0,
            "no_reply_needed": 0,
            "created_at": 1,
            "state": "delivered",
            "accepted_at": 1,
            "delivered_at": 1,
            "handovers": 1,
            "evidence": "bench",
            "owed": 0,
        }
        connection.execute("BEGIN IMMEDIATE")
        names = [
            name for name in columns if name in {*common, "message_id", "cursor"}
        ]  # the others have defaults
        start = connection.execute("SELECT value FROM counter").fetchone()[0]
        rows = (
            tuple(
                {**common, "message_id": f"stored-{number}", "cursor": start + number}.get(name)
                for name in names
            )
            for number in range(1, count + 1)
        )
        marks = ", ".join("?" * len(names))
        connection.executemany(f"INSERT INTO {table} ({', '.join(names)}) VALUES ({marks})", rows)
        connection.execute("UPDATE counter SET value = ?, told = ?", (start + count, start + count))
        connection.execute("COMMIT")


def _cases(one: HerdSession, other: HerdSession, to: str) -> dict[str, Sample]:
    number = iter(range(10**9))

    def send() -> float:
        return _timed_send(one, to, f"call {next(number)}")

    def again() -> float:
        return _timed_send(one, to, "call 0")

    def fetch() -> float:
        began = time.perf_counter()
        messages = other.request("session.read")["messages"]
        ids = [message["message_id"] for message in messages]
        other.request("session.confirm", message_ids=ids, evidence="bench")
        return time.perf_counter() - began

    return {"send": send, "send again": again, "fetch": fetch}


def _timed_send(one: HerdSession, to: str, call_id: str) -> float:
    began = time.perf_counter()
    one.request("session.send", target=to, message=TEXT, call_id=call_id)
    elapsed = time.perf_counter() - began
    one.request("session.read")
    return elapsed


def _size(home: Path, session_id: str) -> int:
    return Path(open_layout(str(home)).mailbox(SessionName("bench", session_id).key)).stat().st_size
