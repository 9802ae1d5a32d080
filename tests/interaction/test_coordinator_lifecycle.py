import asyncio
import gc
import json
import os
import socket
import threading
from contextlib import closing, suppress
from typing import Any, cast

import pytest

from assignments.worktrees.fake import FakeTopology
from assignments.worktrees.topology import Whereabouts
from herd.core.clock import FakeClock, SystemClock
from herd.core.config import Place
from herd.core.errors import (
    AuthenticationFailed,
    LockTimeout,
    NoSession,
    PeerOffline,
    RecoveryRequired,
    SessionHeld,
    UnsafeEndpoint,
)
from herd.core.locks import HeldLock, Owner, probe
from herd.core.watch import FolderWatch
from herd.mail.inbox import Incoming
from herd.presence.record import Presence
from herd.presence.registry import Registry
from herd.rpc import unix
from herd.rpc.unix import bind
from tests.fakes.coordinators import IN_TIME_S, content_of, running, until
from tests.fakes.raw_peer import RawPeer
from tests.fakes.records import ALICE, BOB, LEAD, layout_at, living, put, session_of

PANE = Place("/run/herdr.sock", "pane-1", "tab-2", "workspace-3")


class HeldTopology:
    """A topology that answers when it may, and notes what was on record when it was asked."""

    def __init__(self, layout, session, labels=None):
        self.labels = labels or Whereabouts()
        self.seen = []
        self.asked = asyncio.Event()
        self.may_answer = asyncio.Event()
        self._look = lambda: Registry(layout).record(session.key)

    async def whereabouts(self, cwd):
        self.seen.append(self._look())
        self.asked.set()
        await self.may_answer.wait()
        return self.labels


class BrokenTopology:
    async def whereabouts(self, cwd):
        raise RuntimeError("no git here")


def record_of(layout, session):
    return Registry(layout).record(session.key)


def exists(path):
    return os.path.lexists(path)


def owner_of(layout, session):
    return probe(layout.session_lock(session.key)).owner


def open_descriptors():
    gc.collect()
    return {
        name: os.readlink(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd") if is_open(name)
    }


def is_open(name):
    with suppress(OSError):
        os.fstat(int(name))
        return True
    return False


# --- start -----------------------------------------------------------------------------------------


@pytest.mark.requirement("A-endpoint-08")
async def test_the_record_names_a_socket_that_answers_from_the_first_instant(layout):
    answers = []

    def look(name):
        record = record_of(layout, ALICE)
        if record is not None and not answers:
            with closing(socket.socket(socket.AF_UNIX)) as caller:
                caller.setblocking(False)
                answers.append(caller.connect_ex(record.endpoint))

    with FolderWatch(layout.peers, look):
        async with running(layout, ALICE):
            await until(lambda: bool(answers))

    assert answers == [0]


@pytest.mark.requirement("A-endpoint-08")
async def test_a_socket_that_another_takes_the_place_of_before_the_self_connect_is_never_advertised(
    layout, monkeypatch
):
    stranger = socket.socket(socket.AF_UNIX)
    recorded = []

    def replaced(*arguments):
        listener = bind(*arguments)
        recorded.append(listener.path)
        os.unlink(listener.path)
        stranger.bind(listener.path)
        stranger.listen()
        return listener

    monkeypatch.setattr(unix, "bind", replaced)
    unsafe = pytest.raises(UnsafeEndpoint, match=r"not the socket that was bound|has mode 0755")
    with closing(stranger), unsafe:
        async with running(layout, ALICE):
            pass

    assert recorded
    assert os.listdir(layout.peers) == []
    assert exists(recorded[0]), "what is not ours stays"


@pytest.mark.requirement("H-presence-05", "H-presence-06")
async def test_the_first_record_says_who_and_where_before_any_look_up_begins(layout):
    topology = HeldTopology(layout, ALICE, Whereabouts("herd", "main", "desk"))
    async with running(
        layout, ALICE, topology=topology, place=PANE, cwd="/work/here", name="worker"
    ) as alice:
        await topology.asked.wait()
        first = topology.seen[0]
        topology.may_answer.set()

    assert first.session == ALICE
    assert first.presence == Presence(
        role="lead",
        socket="/run/herdr.sock",
        cwd="/work/here",
        name="worker",
        pane_id="pane-1",
        tab_id="tab-2",
        workspace_id="workspace-3",
    )
    assert first.claim.pid == os.getpid()
    assert first.claim.id
    assert first.build.sha256 == alice.coordinator.whoami()["build"]["sha256"]


@pytest.mark.requirement("H-presence-10")
async def test_enrichment_adds_labels_and_keeps_the_generation(layout):
    topology = HeldTopology(layout, ALICE, Whereabouts("herd", "main", "desk"))
    async with running(layout, ALICE, topology=topology) as alice:
        await topology.asked.wait()
        claim, before = alice.record().claim, alice.presence()
        topology.may_answer.set()
        await until(lambda: alice.presence().repo is not None)

        assert alice.presence() == before._replace(repo="herd", branch="main", workspace_label="desk")
        assert alice.record().claim == claim


@pytest.mark.requirement("H-presence-10")
async def test_a_look_up_that_ends_after_the_withdrawal_publishes_nothing(layout):
    topology = HeldTopology(layout, ALICE, Whereabouts("herd"))
    async with running(layout, ALICE, topology=topology) as alice:
        await topology.asked.wait()
        alice.coordinator.withdraw()
        withdrawn = alice.record()
        topology.may_answer.set()
        await alice.ask("update", activity="idle")
        await until(lambda: len(alice.coordinator.tasks._running) == 2)  # the look-up has ended

        assert withdrawn.presence is None
        assert alice.record() == withdrawn


@pytest.mark.requirement("H-presence-09")
@pytest.mark.parametrize("topology", ["held", "broken"])
async def test_a_look_up_that_never_returns_or_fails_leaves_presence_socket_and_mail_working(
    layout, topology
):
    one = HeldTopology(layout, ALICE) if topology == "held" else BrokenTopology()
    async with running(layout, ALICE, topology=one) as alice, running(layout, BOB, topology=one) as bob:
        await alice.sees(bob)
        sent = await alice.send(bob)

        assert sent["status"] == "accepted"
        assert await bob.texts() == ["hello"]


@pytest.mark.requirement("H-presence-01", "H-presence-03", "H-presence-07")
async def test_a_healthy_coordinator_has_one_presence_whose_claim_the_lock_repeats(layout):
    async with running(layout, ALICE) as alice:
        record = alice.record()

        assert os.listdir(layout.peers) == [f"{ALICE.key}.json"]
        assert record.presence is not None
        assert owner_of(layout, ALICE) == record.claim
        assert [one.key for one in Registry(layout).listed()] == [ALICE.key]


@pytest.mark.requirement("H-presence-11")
async def test_the_published_folder_follows_the_session(layout):
    topology = FakeTopology({"/work/a": Whereabouts("a"), "/work/b": Whereabouts("b", "main")})
    async with running(layout, ALICE, topology=topology, cwd="/work/a") as alice:
        await until(lambda: alice.presence().repo == "a")
        claim = alice.record().claim
        await alice.ask("update", cwd="/work/b")
        moved = alice.presence()
        await until(lambda: alice.presence().repo == "b")

        assert (moved.cwd, moved.repo) == ("/work/b", None), (
            "labels of the folder before never stand beside it"
        )
        assert alice.presence().branch == "main"
        assert alice.record().claim == claim


@pytest.mark.requirement("H-presence-11")
async def test_a_late_look_up_of_the_folder_before_changes_nothing(layout):
    topology = HeldTopology(layout, ALICE, Whereabouts("old"))
    async with running(layout, ALICE, topology=topology, cwd="/work/a") as alice:
        await topology.asked.wait()
        await alice.ask("update", cwd="/work/b")
        await until(lambda: len(topology.seen) == 2)
        topology.labels = Whereabouts("new")
        topology.may_answer.set()
        await until(lambda: alice.presence().repo is not None)

        assert alice.presence().cwd == "/work/b"
        assert alice.presence().repo == "new"


async def test_the_host_reports_activity_and_since_when(layout):
    clock = FakeClock(start_wall_ms=1_800_000_000_000)
    async with running(layout, ALICE, clock=clock) as alice:
        await alice.ask("update", activity="working")
        clock.advance(5)
        await alice.ask("update", activity="working", name="renamed")
        presence = alice.presence()

        assert (presence.activity, presence.since, presence.name) == ("working", 1_800_000_000_000, "renamed")
        await alice.ask("update", activity="idle")
        assert alice.presence().since == 1_800_000_005_000


@pytest.mark.requirement("A-ident-02")
async def test_each_start_has_an_instance_id_and_a_claim_that_were_never_used(layout):
    instances, claims = set(), set()
    for _ in range(5):
        async with running(layout, ALICE) as alice:
            instances.add(alice.record().instance_id)
            claims.add(alice.record().claim.id)

    assert len(instances) == len(claims) == 5


# --- end -------------------------------------------------------------------------------------------


async def test_an_end_in_order_leaves_no_record_no_socket_and_free_locks(layout):
    async with running(layout, ALICE) as alice:
        endpoint = alice.record().endpoint
        assert os.path.dirname(endpoint) == layout.run

    assert os.listdir(layout.peers) == []
    assert os.listdir(layout.run) == []
    assert not probe(layout.session_lock(ALICE.key)).held
    assert not probe(layout.mailbox_lock(ALICE.key)).held


async def test_whoever_still_asks_after_the_end_is_told_and_changes_nothing(layout):
    async with running(layout, BOB) as bob:
        async with running(layout, ALICE) as alice:
            await alice.sees(bob)
        for asking in (
            alice.send(bob),
            alice.read(),
            alice.ask("list"),
            alice.ask("status", message_id="m-1"),
        ):
            with pytest.raises((PeerOffline, NoSession)):
                await asking
        with pytest.raises(PeerOffline):
            await alice.ask("confirm", message_ids=["m-1"], evidence="x")
        await alice.ask("update", name="renamed")

        assert await bob.texts() == []
    assert not exists(layout.record(ALICE.key))


@pytest.mark.requirement("A-endpoint-05", "A-endpoint-04")
async def test_a_data_root_with_a_long_name_is_served_from_a_short_private_folder(home):
    layout = layout_at(home / ("long " + "ü" * 40))
    former = RawPeer(ALICE, "f" * 36)
    with former.registered(layout):
        listener = await asyncio.to_thread(bind, layout.run, former.instance_id)
        former.publisher.move(listener.path)
        former.publisher.publish(LEAD)
        data = content_of(layout.record(ALICE.key))
    put(layout.record(ALICE.key), data)  # as a killed instance leaves it
    async with running(layout, ALICE) as alice, running(layout, BOB) as bob:
        folders = [os.path.dirname(one.record().endpoint) for one in (alice, bob)]
        assert [os.stat(folder).st_mode & 0o777 for folder in folders] == [0o700] * 2
        assert {os.path.dirname(folder) for folder in folders} == {"/tmp"}
        assert len(set(folders)) == 2
        assert not exists(listener.path)
        await alice.sees(bob)
        await alice.send(bob)
        assert await bob.texts() == ["hello"]
    await listener.close()

    assert not any(exists(folder) for folder in folders)


async def test_an_end_in_order_logs_no_fault_even_right_after_the_start(layout, caplog):
    async with running(layout, ALICE):
        pass
    async with running(layout, BOB) as bob:
        await bob.ask("list")

    assert [one.getMessage() for one in caplog.records if one.levelname in {"WARNING", "ERROR"}] == []


async def test_the_end_withdraws_first_and_then_tells_the_receipts_that_are_owed(layout):
    raw = RawPeer(BOB)
    with raw.registered(layout):
        ending = running(layout, ALICE)
        alice = await ending.__aenter__()
        async with await raw.proved(alice.record()) as connection:
            await connection.accepted("peer.send", raw.envelope(alice.target, messageId="m-1"))
            await alice.read()
            confirmed = asyncio.ensure_future(alice.ask("confirm", message_ids=["m-1"], evidence="test"))
            offered = await connection.asked()
            await confirmed
            ended = asyncio.ensure_future(ending.__aexit__(None, None, None))
            await until(lambda: alice.record().presence is None)

            assert offered["params"]["receipt"]["state"] == "delivered"
            assert not ended.done(), "it waits for the receipt that it has offered"
            assert owner_of(layout, ALICE).id is None
            connection.answer(offered, {"recorded": True})
            await ended
            assert await connection.ended()
    assert os.listdir(layout.run) == []


async def test_a_coordinator_that_ends_while_mail_waits_leaves_no_descriptor_behind(layout):
    raw = RawPeer(BOB, "raw-instance")
    with raw.registered(layout, endpoint=os.path.join(layout.run, "raw-instance.sock")):
        async with running(layout, ALICE) as alice:
            pass  # what is loaded once is loaded
        before = open_descriptors()
        async with running(layout, ALICE, clock=SystemClock()) as alice:
            await alice.ask("list")
            sent = await alice.send(raw.target)  # nobody listens at the socket of its record
            assert sent["status"] == "queued"
            await until(lambda: alice.coordinator.waiting.watches)

    assert open_descriptors().keys() <= before.keys()
    assert [one.name for one in threading.enumerate() if one.name == "mailbox"] == []


async def test_a_refusal_of_the_body_passes_as_it_is(layout):
    with pytest.raises(AuthenticationFailed, match="the body's own"):
        async with running(layout, ALICE):
            raise AuthenticationFailed("the body's own")
    assert os.listdir(layout.peers) == []


async def test_a_cancelled_body_ends_the_session_in_order(layout):
    begun = asyncio.Event()

    async def run():
        async with running(layout, ALICE):
            begun.set()
            await asyncio.Event().wait()

    task = asyncio.ensure_future(run())
    async with asyncio.timeout(IN_TIME_S):
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    assert os.listdir(layout.peers) == []
    assert not probe(layout.session_lock(ALICE.key)).held


# --- who holds the session -------------------------------------------------------------------------


@pytest.mark.requirement("A-presence-03")
async def test_a_second_coordinator_of_a_session_is_refused_and_changes_nothing(layout):
    async with running(layout, ALICE) as alice:
        before = alice.record()
        with pytest.raises(SessionHeld) as refused:
            async with running(layout, ALICE):
                pass

        assert refused.value.details["holder"]["pid"] == os.getpid()
        assert alice.record() == before
        assert owner_of(layout, ALICE) == before.claim
        assert (await alice.ask("whoami"))["target"] == alice.target


@pytest.mark.requirement("A-ident-11")
async def test_one_id_under_two_hosts_is_two_sessions(layout):
    one, other = session_of(7, "claude"), session_of(7, "pi")
    async with running(layout, one) as first, running(layout, other) as second:
        await first.sees(second)
        await first.send(second, "to pi")

        assert await second.texts() == ["to pi"]
        assert await first.texts() == []


@pytest.mark.requirement("D-visit-03")
async def test_a_start_names_the_visitor_that_keeps_its_mailbox(layout):
    visitor = HeldLock.acquire(layout.mailbox_lock(ALICE.key))
    visitor.write_owner(Owner(4_711, "boot:1:2", None))
    with visitor, pytest.raises(LockTimeout) as refused:
        async with running(layout, ALICE):
            pass

    assert "4711" in refused.value.message
    assert "visitor" in refused.value.message
    assert not probe(layout.session_lock(ALICE.key)).held


async def test_a_start_waits_for_a_visitor_that_ends_in_time(layout):
    visitor = HeldLock.acquire(layout.mailbox_lock(ALICE.key))

    async def run():
        async with running(layout, ALICE) as alice:
            return alice.record().key

    async with asyncio.timeout(IN_TIME_S):
        starting = asyncio.ensure_future(run())
        await until(lambda: probe(layout.session_lock(ALICE.key)).held)
        assert not starting.done()
        visitor.release()

        assert await starting == ALICE.key


async def test_a_start_that_is_called_off_while_it_waits_leaves_both_locks_free(layout):
    with HeldLock.acquire(layout.mailbox_lock(ALICE.key)):
        starting = asyncio.ensure_future(running(layout, ALICE).__aenter__())
        await until(lambda: probe(layout.session_lock(ALICE.key)).held)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting

    async with running(layout, ALICE) as alice:
        assert alice.record().key == ALICE.key


# --- what a killed instance left -------------------------------------------------------------------


async def test_the_socket_of_a_killed_instance_is_removed_at_the_next_start(layout):
    former = RawPeer(ALICE, "former-instance")
    with former.registered(layout, endpoint=os.path.join(layout.run, "former-instance.sock")):
        listener = bind(layout.run, "former-instance")
        left = record_of(layout, ALICE)
        data = content_of(layout.record(ALICE.key))
    put(layout.record(ALICE.key), data)
    assert exists(left.endpoint)
    async with running(layout, ALICE) as alice:
        assert os.listdir(layout.run) == [f"{alice.record().instance_id}.sock"]
    await listener.close()


async def test_a_former_record_that_names_a_strangers_file_removes_nothing(layout, tmp_path):
    tmp_path.chmod(0o700)
    precious = tmp_path / "former-instance.sock"
    precious.write_text("keep me", encoding="utf-8")
    former = RawPeer(ALICE, "former-instance")
    with former.registered(layout, endpoint=str(precious)):
        data = content_of(layout.record(ALICE.key))
    put(layout.record(ALICE.key), data)
    async with running(layout, ALICE):
        assert precious.read_text(encoding="utf-8") == "keep me"


async def test_a_malformed_former_record_is_replaced(layout):
    put(layout.record(ALICE.key), b"{")
    async with running(layout, ALICE) as alice:
        assert alice.record().instance_id == alice.coordinator.own.instance_id


@pytest.mark.requirement("A-presence-05", "H-presence-21")
async def test_a_record_that_is_anothers_by_now_survives_the_end(layout):
    async with running(layout, ALICE):
        data = json.loads(content_of(layout.record(ALICE.key)))
        data["instance"]["id"] = "a-newer-instance"
        newer = json.dumps(data).encode()
        put(layout.record(ALICE.key), newer)

    assert content_of(layout.record(ALICE.key)) == newer
    assert owner_of(layout, ALICE) is None


# --- what cannot be used ---------------------------------------------------------------------------


async def test_a_damaged_session_file_refuses_the_start_and_stays(layout):
    async with running(layout, ALICE):
        pass
    put(layout.session_file(ALICE.key), b"{")
    with pytest.raises(RecoveryRequired, match=r"session\.json"):
        async with running(layout, ALICE):
            pass

    assert content_of(layout.session_file(ALICE.key)) == b"{"
    assert os.listdir(layout.peers) == []


@pytest.mark.requirement("A-endpoint-06")
async def test_a_run_folder_that_is_open_to_others_refuses_the_start(layout):
    os.chmod(layout.run, 0o755)
    with pytest.raises(UnsafeEndpoint, match="run"):
        async with running(layout, ALICE):
            pass
    assert os.listdir(layout.peers) == []


# --- quiet -----------------------------------------------------------------------------------------


@pytest.mark.requirement("A-endpoint-14")
async def test_an_idle_coordinator_has_nothing_scheduled(layout):
    clock = FakeClock()
    async with running(layout, ALICE, clock=clock) as alice:
        await alice.ask("list")
        loop = cast("Any", asyncio.get_running_loop())
        # The bound of this very wait is the only timer left, once the coordinator's call to itself is over.
        await until(lambda: len([one for one in loop._scheduled if not one.cancelled()]) == 1)

        assert clock.sleeping == 0
        assert not alice.coordinator.waiting.watches


@pytest.mark.requirement("A-endpoint-01")
async def test_a_coordinator_holds_unix_sockets_alone(layout):
    async with running(layout, ALICE) as alice, running(layout, BOB) as bob:
        await alice.sees(bob)
        await alice.send(bob)
        families = set()
        for number, target in open_descriptors().items():
            if target.startswith("socket:"):
                with closing(socket.socket(fileno=os.dup(int(number)))) as one:
                    families.add(one.family)

    assert families == {socket.AF_UNIX}


@pytest.mark.requirement("A-presence-09")
async def test_no_file_holds_the_private_key_the_token_or_a_text_where_others_look(layout):
    async with running(layout, ALICE) as alice, running(layout, BOB) as bob:
        await alice.sees(bob)
        await alice.send(bob, "a very secret text")
        token = content_of(layout.token(ALICE.key))
        listing = json.dumps(await bob.ask("list")).encode()
        records = b"".join(content_of(os.path.join(layout.peers, name)) for name in os.listdir(layout.peers))
        private = alice.coordinator.identity.keys._private.private_bytes_raw()
        everything = b"".join(
            content_of(os.path.join(folder, name))
            for folder, _, names in os.walk(layout.root)
            for name in names
            if not name.endswith(".sock")
        )

    assert len(token) == 64
    for secret in (b"a very secret text", token, private, private.hex().encode()):
        assert secret not in records + listing
    assert private not in everything
    assert private.hex().encode() not in everything


def test_rows_of_the_inbox_are_values():
    assert issubclass(Incoming, tuple)


async def test_a_lock_that_a_living_session_holds_counts_in_one_process_too(layout):
    with living(layout, ALICE), pytest.raises(SessionHeld):
        async with running(layout, ALICE):
            pass
