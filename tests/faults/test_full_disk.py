"""A coordinator that cannot write for a while: everything is kept, and it goes on by itself afterwards.

The kernel refuses its writes beyond a size of file, so a mailbox's log cannot grow while small files can.
"""

from pathlib import Path
from typing import Any

import pytest

from herd.core.errors import EligibilityUnverified, RecoveryRequired
from herd.core.identity import SessionName
from herd.core.paths import Layout
from herd.mail.receipts import ACCEPTED, DELIVERED, PENDING
from herd.mail.steps import COMMIT_BEFORE
from tests.faults.forked import Process
from tests.faults.forks import Forks
from tests.faults.pair import ALICE, BOB, Pair
from tests.faults.session import Session
from tests.faults.truth import look

FULL = 8_192
"""Bytes: a record fits, and the log of a mailbox that has been used is beyond it."""

NO_LIMIT = -1
BEFORE, ACCEPTED_BEFORE, MEANWHILE = "read before", "accepted before", "sent meanwhile"


async def disk_of(session: Session, size: int) -> None:
    """Let its writes fail beyond a size."""
    await session.process.ask("test.disk", bytes=size)


async def until_it_refuses(session: Session) -> None:
    """Ask for what costs a write until its coordinator refuses it."""
    while True:
        try:
            await session.process.ask("session.read")
        except RecoveryRequired:
            return


async def until_it_serves(session: Session) -> None:
    """Read until its coordinator is healthy again."""
    while True:
        try:
            await session.read_once()
        except RecoveryRequired:
            continue
        return


async def refuses(session: Session, method: str, **params: Any) -> None:
    with pytest.raises(RecoveryRequired):
        await session.process.ask(method, **params)


@pytest.mark.requirement("H-send-12")
@pytest.mark.parametrize("dies", [False, True])
async def test_a_receiver_that_cannot_write_for_a_while_keeps_everything_and_delivers_it_once(
    pair: Pair, layout: Layout, forks: Forks, dies: bool
):
    await pair.start()
    alice, bob = pair.alice, pair.bob
    first = await alice.send(BEFORE)
    assert await bob.read_once(wait_ms=10_000) == [BEFORE]
    second = await alice.send(ACCEPTED_BEFORE)
    await alice.until_told({first: ACCEPTED, second: ACCEPTED})
    before = look(layout, BOB)

    await disk_of(bob, FULL)
    third = await alice.send(MEANWHILE)
    await until_it_refuses(bob)
    await refuses(bob, "session.send", target=alice.target, message="no")
    await refuses(bob, "session.confirm", message_ids=[first], evidence="its session file")
    await nobody_else_writes_to(bob, layout, forks)
    await alice.ask_for_all()
    assert alice.told == {first: ACCEPTED, second: ACCEPTED, third: PENDING}
    assert look(layout, BOB) == before

    if dies:
        await bob.killed()
        await bob.receive(BEFORE, ACCEPTED_BEFORE, MEANWHILE)
        assert [one.again for one in bob.record if one.life == bob.life] == [True, False, False]
    else:
        await disk_of(bob, NO_LIMIT)
        await until_it_serves(bob)
        await bob.receive(ACCEPTED_BEFORE, MEANWHILE)
    await bob.confirm(*alice.sent)
    await alice.until_told(dict.fromkeys((first, second, third), DELIVERED))
    assert [row.content for row in look(layout, BOB).inbox] == alice.sent


async def nobody_else_writes_to(session: Session, layout: Layout, forks: Forks) -> None:
    """Find it listed nowhere, and a message to it refused and queued nowhere."""
    carol = SessionName("codex", "carol")
    process = await Process.started(forks, layout, carol)
    peers = (await process.ask("session.list"))["peers"]
    assert [peer["target"] for peer in peers] == [session.other.target]
    with pytest.raises(EligibilityUnverified):
        await process.ask("command.send", target=session.target, message="queued nowhere")
    await process.kill()
    assert look(layout, carol).outbox == []


@pytest.mark.requirement("H-send-12")
@pytest.mark.parametrize("dies", [False, True])
async def test_a_sender_that_cannot_write_for_a_while_queues_nothing_new_and_forgets_nothing_old(
    pair: Pair, layout: Layout, dies: bool
):
    await pair.start()
    alice, bob = pair.alice, pair.bob
    message_id = await alice.send(BEFORE)
    assert await bob.read_once(wait_ms=10_000) == [BEFORE]
    await disk_of(alice, FULL)
    await bob.confirm(BEFORE)  # its receipt cannot be recorded now
    for _ in range(2):
        await refuses(alice, "session.send", target=bob.target, message="queued nowhere")
    assert [row.content for row in look(layout, ALICE).outbox] == [BEFORE]
    assert (await bob.process.ask("session.list"))["peers"] == []

    if dies:
        await alice.killed()
    else:
        await disk_of(alice, NO_LIMIT)
        await until_it_serves(alice)
    await alice.until_told({message_id: DELIVERED})
    later = await alice.send("sent after")
    await bob.receive("sent after")
    await bob.confirm("sent after")
    await alice.until_told({later: DELIVERED})
    assert [row.content for row in look(layout, ALICE).outbox] == [BEFORE, "sent after"]


@pytest.mark.requirement("H-presence-23")
async def test_health_does_not_come_back_before_a_write_has_really_succeeded(
    pair: Pair, layout: Layout, folder: Path
):
    log = folder / "steps"
    await pair.start(bob={"log": str(log)})
    alice, bob = pair.alice, pair.bob
    await alice.send(BEFORE)
    await disk_of(bob, FULL)
    await until_it_refuses(bob)

    tried = log.read_text(encoding="utf-8").count(COMMIT_BEFORE)
    while log.read_text(encoding="utf-8").count(COMMIT_BEFORE) < tried + 3:
        assert (await alice.process.ask("session.list"))["peers"] == []
    await disk_of(bob, NO_LIMIT)
    await until_it_serves(bob)
    await bob.receive(BEFORE)
