"""Sessions, instances and records that are right in every field, for tests to spoil or to publish.

It owns examples and holds no rule: what makes a record valid is written out in the tests.
"""

import base64
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from herd.core.build import Build
from herd.core.identity import SessionName
from herd.core.locks import HeldLock, Owner
from herd.core.paths import Layout, open_layout
from herd.presence.publisher import Instance, Publisher
from herd.presence.record import RECEIVE, SEND, WAIT, Presence, Record

PUBLIC_KEY = base64.b64encode(bytes.fromhex("302a300506032b6570032100") + bytes(range(32))).decode()
"""The published form of an Ed25519 key: a fixed prefix of 12 bytes, then the 32 bytes of the key."""

BUILD = Build("0.1.0", "5" * 64)
LEAD = Presence(role="lead", socket="none", cwd="/home/me/project", name="api-worker")


def layout_at(home: Path) -> Layout:
    """Give the folders of a machine below a data root, made now."""
    return open_layout(str(home), machine="a machine of the tests")


def session_of(number: int, host: str = "claude") -> SessionName:
    """Give one of many sessions."""
    return SessionName(host, f"session-{number}")


ALICE, BOB, CAROL, DAVE = session_of(1), session_of(2, "pi"), session_of(3, "codex"), session_of(4)
"""The sessions of most tests, each of another host but the last."""


def instance_of(session: SessionName, instance_id: str = "", pid: int = 4_711) -> Instance:
    """Give an instance of a session; its id names the session where none is given."""
    ident = instance_id or f"instance-{session.key[:12]}"
    return Instance(
        session=session,
        kind="ordinary",
        pid=pid,
        start="boot:4026531836:99",
        host_pid=pid - 1,
        host_start="boot:4026531836:98",
        instance_id=ident,
        endpoint=f"/run/{ident}.sock",
        public_key=PUBLIC_KEY,
        capabilities=(SEND, RECEIVE, WAIT),
        build=BUILD,
    )


def record_of(
    session: SessionName, presence: Presence | None = LEAD, *, kind: str = "ordinary", instance_id: str = ""
) -> Record:
    """Give the record of a session, with a claim that fits its presence."""
    one = instance_of(session, instance_id)
    return Record(
        session=session,
        kind=kind,
        claim=Owner(one.pid, one.start, f"claim-{session.key[:12]}" if presence else None),
        host_pid=one.host_pid,
        host_start=one.host_start,
        instance_id=one.instance_id,
        protocol=1,
        endpoint=one.endpoint,
        public_key=one.public_key,
        capabilities=one.capabilities,
        build=one.build,
        presence=presence,
    )


def shape_of(record: Record) -> dict[str, Any]:
    """Give the JSON object of a record's file, written out here once more, apart from what is tested."""
    shape: dict[str, Any] = {
        "version": 3,
        "session": {
            "host": record.session.host,
            "session_id": record.session.session_id,
            "created": record.session.created,
        },
        "kind": record.kind,
        "claim": {"pid": record.claim.pid, "start": record.claim.start, "id": record.claim.id},
        "host": {"pid": record.host_pid, "start": record.host_start},
        "instance": {
            "id": record.instance_id,
            "protocol": record.protocol,
            "socket": record.endpoint,
            "public_key": record.public_key,
            "capabilities": list(record.capabilities),
        },
        "build": {"version": record.build.version, "sha256": record.build.sha256},
    }
    if record.presence is not None:
        given = record.presence._asdict()
        shape["presence"] = {name: value for name, value in given.items() if value is not None}
    return shape


def bytes_of(shape: object) -> bytes:
    """Give a JSON value as a file holds it."""
    return json.dumps(shape, ensure_ascii=False).encode("utf-8", "surrogatepass")


def put(path: str | Path, data: bytes, mode: int = 0o600) -> None:
    """Write a file with exactly this mode, whatever the umask."""
    Path(path).write_bytes(data)
    os.chmod(path, mode)


class Seen(NamedTuple):
    """What a file is, apart from when it was last read: two equal ones mean that nobody touched it."""

    mode: int
    size: int
    inode: int
    links: int
    changed_ns: int


def seen(path: str | Path) -> Seen:
    """Look at a file and not where it leads, without reading it."""
    found = os.lstat(path)
    return Seen(found.st_mode, found.st_size, found.st_ino, found.st_nlink, found.st_ctime_ns)


class Living(NamedTuple):
    """A session whose lock this test holds."""

    lock: HeldLock
    publisher: Publisher


@contextmanager
def living(layout: Layout, session: SessionName, presence: Presence | None = LEAD) -> Iterator[Living]:
    """Hold a session's lock and publish it, or announce it where it has no presence."""
    with HeldLock.acquire(layout.session_lock(session.key)) as lock:
        publisher = Publisher(layout, lock, instance_of(session, pid=os.getpid()))
        if presence is None:
            publisher.announce()
        else:
            publisher.publish(presence)
        yield Living(lock, publisher)
