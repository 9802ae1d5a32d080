"""A coordinator that cannot write its state, or has lost its socket: what it stops, keeps and takes up."""

import asyncio
import itertools
import os
import shutil
import sqlite3
import subprocess
import tempfile
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest

from herd.coordinator.health import Health
from herd.coordinator.listening import Listening
from herd.core.clock import FakeClock
from herd.core.errors import HerdError, NewerState, RecoveryRequired, UnsafeEndpoint
from herd.core.limits import HEALTH_RETRY_MS, HEALTH_SOONEST_MS
from herd.core.locks import probe
from herd.core.watch import FolderWatch
from herd.mail.mailbox_file import open_mailbox
from herd.mail.steps import COMMIT_BEFORE, OFFER_BEFORE
from herd.presence.registry import Registry
from herd.presence.session_file import read_session_file
from tests.fakes.bounds import UNHURRIED
from tests.fakes.coordinators import IN_TIME_S, Steps, asked, content_of, running, until
from tests.fakes.raw_peer import RawPeer
from tests.fakes.records import ALICE, BOB, CAROL, layout_at, put


async def refused(asking, kind=HerdError):
    with pytest.raises(kind) as refusal:
        await asking
    return refusal.value


def begun(asking):
    return asyncio.ensure_future(asking)


def broken_disk():
    return sqlite3.OperationalError("disk I/O error")


def claim_of(layout, session):
    return probe(layout.session_lock(session.key)).owner


async def passes_until(clock, condition):
    """Let time pass for whatever waits until something holds."""
    async with asyncio.timeout(IN_TIME_S):
        while not condition():
            clock.advance(60)
            await asyncio.sleep(0)


def is_healthy(session):
    return session.coordinator.health.fault is None


def exists(path):
    return os.path.lexists(path)


# --- a mailbox that cannot be written --------------------------------------------------------------


@pytest.mark.requirement("H-presence-20", "H-presence-21", "H-send-12", "H-presence-30")
async def test_a_write_that_fails_withdraws_the_presence_and_keeps_the_instance(layout, bob):
    steps, clock = Steps(), FakeClock()
    raw = RawPeer(CAROL)
    with raw.registered(layout, None):
        async with running(layout, ALICE, step=steps, clock=clock) as alice:
            await alice.sees(bob)
            await bob.sees(alice)
            before = alice.record()
            steps.faults[COMMIT_BEFORE] = broken_disk
            failed = await refused(alice.send(bob), RecoveryRequired)
            after = alice.record()

            assert layout.mailbox(ALICE.key) in failed.message
            assert after == before._replace(claim=before.claim._replace(id=None), presence=None)
            assert claim_of(layout, ALICE) == after.claim
            assert (await bob.ask("list"))["peers"] == []
            await refused(alice.send(bob), RecoveryRequired)
            async with await raw.proved(after) as connection:
                assert (
                    await connection.refused("peer.send", raw.envelope(alice.target)) == "RECOVERY_REQUIRED"
                )


@pytest.mark.requirement("H-presence-22", "H-presence-23")
async def test_the_first_write_that_succeeds_brings_it_back_under_a_claim_never_used(layout, bob):
    steps, clock = Steps(), FakeClock()
    claims = []
    async with running(layout, ALICE, step=steps, clock=clock) as alice:
        await alice.sees(bob)
        await bob.sees(alice)
        kept = await bob.send(alice, "kept")
        for _ in range(3):
            claims.append(alice.record().claim.id)
            steps.faults[COMMIT_BEFORE] = broken_disk
            await refused(alice.send(bob), RecoveryRequired)
            for _ in range(2):  # two tries fail, the third does not
                tried = steps.taken(COMMIT_BEFORE)
                await passes_until(clock, lambda: steps.taken(COMMIT_BEFORE) > tried)  # noqa: B023
                assert alice.record().presence is None
            del steps.faults[COMMIT_BEFORE]
            await passes_until(clock, lambda: is_healthy(alice))
            assert claim_of(layout, ALICE) == alice.record().claim

        assert len({*claims, alice.record().claim.id}) == 4
        assert alice.coordinator.health.fault is None
        assert (await alice.send(bob, "sent"))["status"] == "accepted"
        assert [one["message_id"] for one in (await alice.read())["messages"]] == [kept["message_id"]]


@pytest.mark.requirement("H-presence-23")
async def test_a_write_that_succeeds_meanwhile_is_not_waited_out(layout, bob):
    steps, clock = Steps(), FakeClock()
    async with running(layout, ALICE, step=steps, clock=clock) as alice:
        await alice.sees(bob)
        steps.faults[COMMIT_BEFORE] = broken_disk
        await refused(alice.send(bob), RecoveryRequired)
        await clock.wait_for_sleepers()
        del steps.faults[COMMIT_BEFORE]
        await alice.coordinator.mailbox.run(lambda c: c.execute("UPDATE counter SET value = value").rowcount)
        await until(lambda: alice.record().presence is not None)

        assert clock.elapsed() == 0


@pytest.mark.requirement("H-presence-30")
async def test_an_unhealthy_coordinator_still_offers_the_receipts_it_owes(layout):
    steps, clock = Steps(), FakeClock()
    raw = RawPeer(CAROL)
    with raw.registered(layout):
        async with running(layout, ALICE, step=steps, clock=clock) as alice:
            async with await raw.proved(alice.record()) as connection:
                await connection.accepted("peer.send", raw.envelope(alice.target, messageId="m-1"))
                await alice.read()
                steps.faults[OFFER_BEFORE] = broken_disk
                await alice.ask("confirm", message_ids=["m-1"], evidence="test")
                await steps.reached(OFFER_BEFORE)
            del steps.faults[OFFER_BEFORE]
            alice.coordinator.health.observed(RecoveryRequired("the disk is full"))
            async with await raw.proved(alice.record()) as connection:
                offered = await connection.asked()

    assert offered["params"]["receipt"]["state"] == "delivered"


@pytest.mark.requirement("H-presence-22")
async def test_what_was_queued_goes_on_once_health_is_back(layout):
    steps, clock = Steps(), FakeClock()
    raw = RawPeer(CAROL)
    async with raw.listening(layout) as server, running(layout, ALICE, step=steps, clock=clock) as alice:
        await alice.ask("list")
        sending = begun(alice.send(raw.target, "queued"))
        connection = await server.proved()
        connection.refuse(await connection.message(), "PEER_OFFLINE")
        await clock.wait_for_sleepers(2)
        steps.faults[COMMIT_BEFORE] = broken_disk
        await refused(alice.coordinator.mailbox.run(lambda c: None), RecoveryRequired)
        assert alice.record().presence is None
        del steps.faults[COMMIT_BEFORE]
        await clock.wait_for_sleepers(3)
        clock.advance(60)
        request = await connection.message()
        connection.accept(request)
        assert (await sending)["message_id"] == request["params"]["messageId"]
        await alice.until_state(request["params"]["messageId"], "accepted")


async def test_nobody_is_refused_by_a_session_that_is_listed(layout):
    """Presence and health come back in one step, and go in one."""
    steps, clock = Steps(), FakeClock()
    async with running(layout, ALICE, step=steps, clock=clock) as alice:
        await alice.ask("list")
        health = alice.coordinator.health
        seen = []

        def look(_):
            record = Registry(layout).record(ALICE.key)
            seen.append((record is not None and record.presence is not None, health.fault is None))

        with FolderWatch(layout.peers, look):
            for _ in range(3):
                health.observed(RecoveryRequired("the disk is full"))
                await passes_until(clock, lambda: is_healthy(alice))
            await until(lambda: seen[-1:] == [(True, True)])

    assert (True, True) in seen
    assert (True, False) not in seen


async def test_health_that_is_lost_while_it_comes_back_stays_lost():
    """The write succeeds, and the publication after it does not."""
    clock = FakeClock()
    published, broken = [], [True]

    async def restore():
        health.observed(None)  # the write
        published.append(True)
        if broken:
            health.observed(RecoveryRequired("the record cannot be written"))

    withdrawn, restored = [], []
    health = Health(
        lambda: withdrawn.append(True),
        restore,
        lambda: restored.append(True),
        clock=clock,
        jitter=lambda: 0.0,
    )
    keeping = begun(health.keep())
    health.observed(RecoveryRequired("the disk is full"))
    await passes_until(clock, lambda: str(health.fault) == "the record cannot be written")
    assert restored == []
    assert len(withdrawn) == 2, "what was published in that try is taken back"
    broken.clear()
    await passes_until(clock, lambda: bool(restored))
    keeping.cancel()

    assert health.fault is None
    health.require()


async def test_tries_to_come_back_are_paced_and_end_with_health():
    clock = FakeClock()
    tries = []

    async def restore():
        tries.append(clock.elapsed())
        if len(tries) < 8:
            raise RecoveryRequired("not yet")

    health = Health(lambda: None, restore, lambda: None, clock=clock, jitter=lambda: 0.999_999)
    keeping = begun(health.keep())
    health.observed(RecoveryRequired("the disk is full"))
    for number, pause in enumerate((1, 2, 4, 8, 16, 32, 60, 60)):
        await clock.wait_for_sleepers()
        clock.advance(pause - 0.001)
        await asyncio.sleep(0)
        assert len(tries) == number
        clock.advance(0.001)
        await until(lambda: len(tries) > number)  # noqa: B023
    await until(lambda: health.fault is None)
    keeping.cancel()

    assert clock.sleeping == 0


async def test_tries_that_are_hastened_do_not_lengthen_the_pause_and_are_paced_too():
    clock = FakeClock()
    tries = []
    room = False

    async def restore():
        tries.append(clock.elapsed())
        if not room:
            raise RecoveryRequired("not yet")

    health = Health(lambda: None, restore, lambda: None, clock=clock, jitter=lambda: 0.999_999)
    keeping = begun(health.keep())
    health.observed(RecoveryRequired("the disk is full"))
    for number in range(20):
        await clock.wait_for_sleepers()
        health.observed(None)
        for _ in range(20):
            await asyncio.sleep(0)
        clock.advance(HEALTH_SOONEST_MS / 1000)
        await until(lambda: len(tries) > number)  # noqa: B023
    gaps = [later - earlier for earlier, later in itertools.pairwise(tries)]
    assert min(gaps) >= HEALTH_SOONEST_MS / 1000 - 1e-6
    room = True
    await clock.wait_for_sleepers()
    clock.advance(HEALTH_RETRY_MS / 1000)
    await until(lambda: health.fault is None)
    keeping.cancel()


async def test_a_fault_while_it_is_unhealthy_already_withdraws_nothing_again():
    """Each rewrite of the record wakes everybody who watches for one, and who then fails like this again."""
    withdrawn = []
    clock = FakeClock()

    async def restore():
        health.observed(RecoveryRequired("published, and then it failed"))

    health = Health(lambda: withdrawn.append(1), restore, lambda: None, clock=clock, jitter=lambda: 0.5)
    for _ in range(5):
        health.observed(RecoveryRequired("the disk is full"))
    assert withdrawn == [1]
    keeping = begun(health.keep())
    await clock.wait_for_sleepers()
    clock.advance(HEALTH_RETRY_MS / 1000)
    await until(lambda: len(withdrawn) > 1)
    keeping.cancel()

    assert withdrawn == [1, 1]


# --- a record that cannot be written ---------------------------------------------------------------


@pytest.mark.requirement("H-presence-20", "H-presence-23")
async def test_a_record_that_cannot_be_written_makes_a_start_unhealthy_until_it_can(layout):
    clock = FakeClock()
    os.mkdir(layout.record(ALICE.key))
    async with running(layout, ALICE, clock=clock) as alice:
        refusal = await refused(alice.send("lead:0000000000"), RecoveryRequired)
        assert "record" in refusal.message
        assert claim_of(layout, ALICE).id is None
        os.rmdir(layout.record(ALICE.key))
        await passes_until(clock, lambda: is_healthy(alice))

        assert alice.record().claim == claim_of(layout, ALICE)


async def test_what_a_former_instance_left_is_taken_up_once_a_start_is_healthy(layout):
    raw = RawPeer(CAROL)
    clock = FakeClock()
    async with raw.listening(layout) as server:
        async with running(layout, ALICE, clock=clock) as alice:
            await alice.ask("list")
            sending = begun(alice.send(raw.target, "left"))
            connection = await server.proved()
            connection.refuse(await connection.message(), "PEER_OFFLINE")
            sending.cancel()
        os.mkdir(layout.record(ALICE.key))
        async with running(layout, ALICE, clock=clock) as alice:
            assert alice.coordinator.routes._routes == {}
            os.rmdir(layout.record(ALICE.key))
            await passes_until(clock, lambda: is_healthy(alice))
            connection = await server.proved()
            request = await connection.message()
            connection.accept(request)
            await alice.until_state(request["params"]["messageId"], "accepted")

    assert request["params"]["content"] == "left"


# --- a mailbox that cannot be used, at the start ---------------------------------------------------


@contextmanager
def damaged(layout, session, how):
    """Leave a session's mailbox in a state in which it is not to be used; give what must stay as it is."""
    path = layout.mailbox(session.key)
    if how == "missing":
        os.unlink(path)
    elif how == "emptied":
        put(path, b"")
    elif how == "text":
        put(path, b"this is no database at all, but it is mine " * 100)
    elif how == "foreign":
        os.unlink(path)
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("CREATE TABLE recipes (title TEXT)")
        os.chmod(path, 0o600)
    elif how == "newer":
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("PRAGMA user_version = 99")
    elif how == "another's":
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("UPDATE custody SET session_key = ?", (BOB.key,))
            connection.commit()
    else:
        data = bytearray(content_of(path))
        for start in range(4_096, len(data), 4_096):
            data[start : start + 64] = b"\xff" * 64
        put(path, bytes(data))
    before = content_of(path) if how != "missing" else None
    yield
    assert (content_of(path) if how != "missing" else None) == before
    if how == "missing":
        assert not exists(path)


DAMAGES = ["missing", "emptied", "text", "foreign", "newer", "another's", "damaged"]


@pytest.mark.requirement("A-restart-07", "H-presence-20", "H-presence-30")
@pytest.mark.parametrize("how", DAMAGES)
async def test_a_mailbox_that_cannot_be_used_leaves_a_start_unhealthy_visible_and_the_file_alone(
    layout, bob, how
):
    async with running(layout, ALICE) as alice:
        await alice.sees(bob)
        await bob.sees(alice)
        await bob.send(alice)
    kind = NewerState if how == "newer" else RecoveryRequired
    raw = RawPeer(CAROL)
    clock = FakeClock()
    with damaged(layout, ALICE, how), raw.registered(layout, None):
        async with running(layout, ALICE, clock=clock) as alice:
            for call in (
                alice.send(bob),
                alice.read(),
                alice.read(message_id="m-1"),
                alice.ask("status", message_id="m-1"),
                alice.ask("cancel", message_id="m-1"),
                alice.ask("confirm", message_ids=["m-1"], evidence="x"),
            ):
                refusal = await refused(call, kind)
                assert layout.mailbox(ALICE.key) in refusal.message
            record = alice.record()
            assert (record.presence, record.claim.id) == (None, None)
            assert (await alice.ask("whoami"))["target"] == alice.target
            assert len((await asked(alice.other_adapter(command=True), "list"))["peers"]) == 1
            async with await raw.proved(record) as connection:
                assert await connection.refused("peer.send", raw.envelope(alice.target)) == kind.code
            assert clock.sleeping == 0, "it does not try again what cannot get better by itself"
            assert alice.target not in {peer["target"] for peer in (await bob.ask("list"))["peers"]}

    assert not exists(layout.record(ALICE.key))


async def test_a_mailbox_that_is_only_in_use_at_the_start_is_used_once_it_is_free(layout):
    raw = RawPeer(CAROL)
    clock = FakeClock()
    async with raw.listening(layout) as server:
        async with running(layout, ALICE, clock=clock) as alice:
            await alice.ask("list")
            sending = begun(alice.send(raw.target, "left"))
            connection = await server.proved()
            connection.refuse(await connection.message(), "PEER_OFFLINE")
            sending.cancel()
        # Somebody who does not know our locks looks into the file.
        with closing(sqlite3.connect(layout.mailbox(ALICE.key), isolation_level=None)) as other:
            other.execute("BEGIN EXCLUSIVE")
            starting = running(layout, ALICE, clock=clock)
            alice = await starting.__aenter__()
            try:
                await refused(alice.read(), RecoveryRequired)
                assert alice.record().presence is None
                other.execute("ROLLBACK")
                other.close()
                await passes_until(clock, lambda: is_healthy(alice))
                request = await (await server.proved()).message()
            finally:
                await starting.__aexit__(None, None, None)

    assert request["params"]["content"] == "left"


# --- a disk that is full ---------------------------------------------------------------------------


@pytest.fixture
def small_disk():
    folder = Path(tempfile.mkdtemp(prefix="herd-", dir="/tmp"))
    options = ["-t", "tmpfs", "-o", "size=2m,mode=0700", "herd-test", str(folder)]
    subprocess.run(["mount", *options], check=True)
    yield folder
    subprocess.run(["umount", str(folder)], check=True)
    folder.rmdir()


def fill(folder):
    """Fill a disk to its last block."""
    number = os.open(folder / "filler", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    for block in (65_536, 4_096, 512, 1):
        with suppress(OSError):
            while True:
                os.write(number, b"x" * block)
    os.close(number)


async def until_refused(sender, recipient):
    """Send until the disk takes no more; what was allocated before holds some."""
    for number in range(200):
        try:
            await sender.send(recipient, f"{number}" + "x" * 6_000)
        except RecoveryRequired as refusal:
            return refusal
    raise AssertionError("the disk never became full")


@pytest.mark.machine
@pytest.mark.requirement("C12", "H-presence-20", "H-presence-23")
async def test_a_full_disk_refuses_keeps_what_was_there_and_works_again_once_there_is_room(small_disk):
    layout = layout_at(small_disk)
    clock = FakeClock()
    limits = UNHURRIED._replace(inbox_messages=1_000)
    async with (
        running(layout, ALICE, clock=clock, limits=limits) as alice,
        running(layout, BOB, clock=clock, limits=limits) as bob,
    ):
        await alice.sees(bob)
        await bob.sees(alice)
        earlier = await bob.send(alice, "earlier")
        before = alice.record().claim.id
        await asyncio.to_thread(fill, small_disk)
        refusal = await until_refused(alice, bob)
        assert "full" in refusal.message
        assert claim_of(layout, ALICE).id is None
        peers = (await asked(bob.other_adapter(command=True), "list"))["peers"]
        assert alice.target not in {peer["target"] for peer in peers}
        await refused(alice.send(bob), RecoveryRequired)
        os.unlink(small_disk / "filler")
        await passes_until(clock, lambda: is_healthy(alice) and is_healthy(bob))

        assert alice.record().claim.id not in {None, before}
        assert [one["message_id"] for one in (await alice.read())["messages"]] == [earlier["message_id"]]
        sending = begun(alice.send(bob, "once there is room"))
        await passes_until(clock, sending.done)
        texts = []
        while "once there is room" not in texts:
            answer = await bob.read()
            texts += [one["text"] for one in answer["messages"]]
            ids = [one["message_id"] for one in answer["messages"]]
            await bob.ask("confirm", message_ids=ids, evidence="test")
            clock.advance(60)
        assert len(set(texts)) == len(texts)


# --- a socket that is gone -------------------------------------------------------------------------


@pytest.mark.requirement("A-endpoint-05", "A-endpoint-14", "H-presence-23")
@pytest.mark.parametrize("how", ["the file", "the folder", "renamed", "replaced"])
async def test_a_socket_that_was_removed_is_bound_again_under_a_new_claim(layout, bob, how):
    clock = FakeClock()
    async with running(layout, ALICE, clock=clock) as alice:
        await bob.sees(alice)
        before = alice.record()
        if how == "the file":
            os.unlink(before.endpoint)
        elif how == "the folder":
            shutil.rmtree(layout.run)
        elif how == "renamed":
            os.rename(before.endpoint, before.endpoint + ".old")
        else:
            os.rename(layout.run, layout.run + ".old")
        await until(lambda: alice.record().claim.id not in {None, before.claim.id})
        after = alice.record()

        assert after.instance_id == before.instance_id
        assert exists(after.endpoint)
        assert (await bob.send(alice))["status"] == "accepted"
        assert await alice.texts() == ["hello"]
        assert clock.sleeping == 0


async def test_another_file_in_the_run_folder_disturbs_nothing(layout):
    async with running(layout, ALICE) as alice:
        before = alice.record()
        for number in range(5):
            put(os.path.join(layout.run, f"{number}.sock"), b"")
            os.unlink(os.path.join(layout.run, f"{number}.sock"))
        await alice.ask("list")

        assert alice.record() == before


@pytest.mark.requirement("A-endpoint-09")
async def test_a_file_that_took_the_sockets_place_stays(layout):
    async with running(layout, ALICE) as alice:
        endpoint = alice.record().endpoint
        replacement = endpoint + ".new"
        put(replacement, b"mine")
        os.replace(replacement, endpoint)
        await alice.ask("whoami")

    assert content_of(endpoint) == b"mine"


@pytest.mark.requirement("H-presence-20", "H-presence-23")
async def test_a_socket_that_cannot_be_bound_again_leaves_it_unhealthy_until_it_can(layout):
    clock = FakeClock()
    async with running(layout, ALICE, clock=clock) as alice, running(layout, BOB, clock=clock) as bob:
        await bob.sees(alice)
        await alice.sees(bob)
        before = alice.record().claim.id
        os.rename(layout.run, layout.run + ".old")
        put(layout.run, b"in the way")
        await until(lambda: not is_healthy(alice) and not is_healthy(bob))
        refusal = await refused(alice.send(bob), UnsafeEndpoint)
        assert layout.run in refusal.message
        assert alice.record().presence is None
        for _ in range(3):  # health and the socket are both tried again, in vain
            await clock.wait_for_sleepers(4)
            clock.advance(60)
            await asyncio.sleep(0)
        assert alice.record().presence is None
        os.unlink(layout.run)
        await passes_until(clock, lambda: is_healthy(alice) and is_healthy(bob))

        assert alice.record().claim.id not in {None, before}
        assert (await bob.send(alice))["status"] == "accepted"
    shutil.rmtree(layout.run + ".old")


async def test_a_socket_is_not_bound_again_and_again_where_watches_are_used_up(layout):
    """Without a watch its end is noticed late; nothing else may follow from that."""
    clock = FakeClock()
    calls = []

    def no_watch(path, changed):
        calls.append(path)
        raise OSError(28, "No space left on device")

    async def accepted(reader, writer):
        writer.close()

    async def found(path):
        calls.append(f"found {path}")

    limits = UNHURRIED
    listening = Listening(
        layout, "instance-1", limits, accepted, clock=clock, jitter=lambda: 0.0, watch=no_watch
    )
    path = await listening.open()
    keeping = begun(listening.keep(lambda: calls.append("lost"), found, calls.append))
    for _ in range(3):
        await clock.wait_for_sleepers()
        assert calls == [layout.run] * len(calls)
        clock.advance(60)
        await asyncio.sleep(0)
    await clock.wait_for_sleepers()
    os.unlink(path)
    clock.advance(60)
    await until(lambda: f"found {path}" in calls)
    keeping.cancel()
    await asyncio.wait({keeping})
    await listening.close()

    assert calls.count("lost") == 1
    assert not exists(path)


async def test_a_visited_mailbox_is_the_same_after_a_damaged_start(layout, bob):
    """What can be read again later was not touched by the start that could not read it."""
    async with running(layout, ALICE) as alice:
        await alice.sees(bob)
        await bob.sees(alice)
        await bob.send(alice, "still there")
    whole = content_of(layout.mailbox(ALICE.key))
    put(layout.mailbox(ALICE.key), whole[:8_192])
    async with running(layout, ALICE) as alice:
        await refused(alice.read(), RecoveryRequired)
    put(layout.mailbox(ALICE.key), whole)
    file = read_session_file(layout, ALICE.key)
    assert file is not None
    connection, _ = await asyncio.to_thread(open_mailbox, layout, file)
    connection.close()
    async with running(layout, ALICE) as alice:
        assert await alice.texts() == ["still there"]
