"""Sessions on record: real records under locks that are really held, without the processes; and ended ones.

Whoever lists sees no difference, since it looks at records and locks and at nothing else.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from herd.core.build import running_build
from herd.core.identity import SessionName
from herd.core.locks import HeldLock
from herd.core.paths import Layout, open_layout
from herd.presence.publisher import Instance, Publisher
from herd.presence.record import RECEIVE, SEND, WAIT, Presence
from herd.presence.session_file import SessionFile, write_session_file
from herd.rpc.handshake import KeyPair


@contextmanager
def on_record(home: Path, count: int) -> Iterator[Layout]:
    """Have `count` sessions listed in a data root until the block ends."""
    layout = open_layout(str(home))
    key = KeyPair.generate().public_key
    with ExitStack() as held:
        for number in range(count):
            session = SessionName("bench", f"session-{number}")
            lock = held.enter_context(HeldLock.acquire(layout.session_lock(session.key)))
            publisher = Publisher(layout, lock, _instance(layout, session, key))
            publisher.publish(_presence(number))
        yield layout


def ended_sessions(home: Path, count: int) -> None:
    """Leave in a data root what `count` sessions leave that have ended and never had mail."""
    layout = open_layout(str(home))
    for number in range(count):
        write_session_file(layout, SessionFile(SessionName("bench", f"ended-{number}")))


def _instance(layout: Layout, session: SessionName, public_key: str) -> Instance:
    instance_id = f"00000000-0000-4000-8000-{session.key[:12]}"
    return Instance(
        session=session,
        kind="ordinary",
        pid=1,
        start="a-boot:a-namespace:1",
        host_pid=0,
        host_start="",
        instance_id=instance_id,
        endpoint=f"{layout.run}/{instance_id}.sock",
        public_key=public_key,
        capabilities=(SEND, RECEIVE, WAIT),
        build=running_build(),
    )


def _presence(number: int) -> Presence:
    return Presence(
        role="lead",
        socket="none",
        cwd=f"/home/somebody/projects/project-{number}",
        name=f"project-{number}-abcd",
        repo=f"project-{number}",
        branch="main",
        activity="working",
        since=1_700_000_000_000,
    )
