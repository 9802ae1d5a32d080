"""A coordinator that cannot write for a while: everything is kept, and it goes on by itself afterwards.

The kernel refuses its writes beyond a size of file, so a mailbox's log cannot grow while small files can.
"""

import asyncio

import pytest

from herd.core.errors import EligibilityUnverified, RecoveryRequired
from herd.core.identity import SessionName
from herd.core.paths import Layout
from herd.mail.receipts import ACCEPTED, DELIVERED, PENDING
from tests.faults.forked import Process
from tests.faults.forks import Forks
from tests.faults.story import Session
from tests.faults.test_custody import ALICE, BOB, Pair, pair  # noqa: F401 - a fixture
from tests.faults.truth import look

FULL = 8_192
"""Bytes: a record fits, and the log of a mailbox that has been used is beyond it."""

EMPTY = -1


async def fill_disk_of(session: Session) -> None:
    """Let its writes fail, and have it notice."""
    await session.process.ask("test.disk", bytes=FULL)


async def until_refused(session: Session) -> None:
    """Read until its coordinator is unhealthy."""
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


@pytest.mark.parametrize("dies", [False, True])
async def test_a_receiver_that_cannot_write_for_a_while_keeps_everything_and_delivers_it_once(
    pair: Pair,  # noqa: F811
    layout: Layout,
    forks: Forks,
    dies: bool,
):
    await pair.start()
    alice, bob = pair.alice, pair.bob
    first = await alice.send("read before, confirmed after")
    assert await bob.read_once(wait_ms=10_000) == ["read before, confirmed after"]
    second = await alice.send("accepted before")
    await alice.until_told({first: ACCEPTED, second: ACCEPTED})
    before = look(layout, BOB)

    await fill_disk_of(bob)
    third = await alice.send("sent meanwhile")
    assert alice.told[third] == "queued"
    await until_refused(bob)
    for method, params in {
        "session.send": {"target": alice.target, "message": "no"},
        "session.confirm": {"message_ids": [first], "evidence": "its session file"},
        "session.list": {},
    }.items():
        if method != "session.list":
            with pytest.raises(RecoveryRequired):
                await bob.process.ask(method, **params)
    carol = await Process.started(forks, layout, SessionName("codex", "carol"))
    assert [peer["target"] for peer in (await carol.ask("session.list"))["peers"]] == [alice.target]
    with pytest.raises(EligibilityUnverified):
        await carol.ask("command.send", target=bob.target, message="refused, and queued nowhere")
    await alice.ask_for_all()
    assert alice.told == {first: ACCEPTED, second: ACCEPTED, third: PENDING}
    assert look(layout, BOB) == before

    if dies:
        await bob.killed()
        texts = ["read before, confirmed after", "accepted before", "sent meanwhile"]
        await bob.receive(*texts)
        assert [one.again for one in bob.record if one.life == bob.life] == [True, False, False]
    else:
        await bob.process.ask("test.disk", bytes=EMPTY)
        await until_it_serves(bob)
        await bob.receive("accepted before", "sent meanwhile")
    await bob.confirm(*alice.sent)
    await alice.until_told(dict.fromkeys((first, second, third), DELIVERED))
    assert [row.content for row in look(layout, BOB).inbox] == alice.sent
    assert look(layout, SessionName("codex", "carol")).outbox == []
    await carol.kill()


@pytest.mark.parametrize("dies", [False, True])
async def test_a_sender_that_cannot_write_for_a_while_queues_nothing_new_and_forgets_nothing_old(
    pair: Pair,  # noqa: F811
    layout: Layout,
    dies: bool,
):
    await pair.start()
    alice, bob = pair.alice, pair.bob
    message_id = await alice.send("sent before")
    assert await bob.read_once(wait_ms=10_000) == ["sent before"]
    await fill_disk_of(alice)
    await bob.confirm("sent before")  # its receipt cannot be recorded now
    for _ in range(2):
        with pytest.raises(RecoveryRequired):
            await alice.process.ask("session.send", target=bob.target, message="never")
    await until_refused(alice)
    assert [row.content for row in look(layout, ALICE).outbox] == ["sent before"]
    answer = await bob.process.ask("session.list")
    assert answer["peers"] == []

    if dies:
        await alice.killed()
    else:
        await alice.process.ask("test.disk", bytes=EMPTY)
        await until_it_serves(alice)
    await alice.until_told({message_id: DELIVERED})
    assert [row.content for row in look(layout, ALICE).outbox] == ["sent before"]
    later = await alice.send("sent after")
    await bob.receive("sent after")
    await bob.confirm("sent after")
    await alice.until_told({later: DELIVERED})
    await asyncio.sleep(0)
