"""What the system refuses a coordinator, and what is taken away under it: told, withdrawn for, got over."""

import asyncio
import os
import resource
import shutil
import subprocess
from contextlib import contextmanager

import pytest

from herd.core.clock import FakeClock
from herd.core.errors import AuthenticationFailed, RecoveryRequired, SystemWant
from herd.core.locks import probe
from tests.fakes.coordinators import IN_TIME_S, running, until
from tests.fakes.mail import started_once
from tests.fakes.raw_peer import RawPeer
from tests.fakes.records import ALICE, BOB, CAROL


def claim_of(layout, session):
    return probe(layout.session_lock(session.key)).owner


def is_healthy(session):
    return session.coordinator.health.fault is None


async def passes_until(clock, condition):
    """Let time pass for whatever waits until something holds."""
    async with asyncio.timeout(IN_TIME_S):
        while not condition():
            clock.advance(60)
            await asyncio.sleep(0)


async def refused(asking, kind=RecoveryRequired):
    with pytest.raises(kind) as refusal:
        await asking
    return refusal.value


@contextmanager
def no_descriptors():
    """Let this process open nothing more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


# --- an authority lock that cannot be had ----------------------------------------------------------


@pytest.mark.parametrize("method", ["list", "read"])
async def test_a_process_without_descriptors_is_unhealthy_and_says_how_to_mend_it(layout, method):
    clock = FakeClock()
    async with running(layout, ALICE, clock=clock) as alice, running(layout, BOB) as bob:
        await alice.sees(bob)
        await bob.sees(alice)
        await bob.send(alice, "kept")
        before = claim_of(layout, ALICE).id
        with no_descriptors():
            refusal = await refused(alice.ask(method), SystemWant)
            await refused(alice.send(bob), SystemWant)
            await until(lambda: not is_healthy(alice))
        assert refusal.next_step.startswith("Raise the limit on open files")
        assert claim_of(layout, ALICE).id is None
        assert (await bob.ask("list"))["peers"] == []

        await passes_until(clock, lambda: is_healthy(alice))
        assert claim_of(layout, ALICE).id not in {None, before}
        assert [one["text"] for one in (await alice.read())["messages"]] == ["kept"]


@pytest.fixture
def read_only_locks(layout):
    """Give what makes the folder of the locks a read-only file system, but for what is open there already."""

    def run(*words):
        subprocess.run([*words, layout.locks], check=True)

    mounted = []

    def change(*, writable):
        if writable:
            run("umount", "--lazy")
            mounted.clear()
        else:
            run("mount", "--bind", layout.locks)
            mounted.append(layout.locks)
            run("mount", "-o", "remount,bind,ro")

    yield change
    if mounted:
        change(writable=True)


@pytest.mark.machine
async def test_a_read_only_file_system_makes_unhealthy_until_it_can_be_written(layout, read_only_locks):
    # The mailbox, the record and the open lock files can be written all the while: only the authority lock,
    # which was let go, cannot be opened, and no other write that succeeds may be taken for health.
    clock = FakeClock()
    async with running(layout, ALICE, clock=clock) as alice, running(layout, BOB, clock=clock) as bob:
        await alice.sees(bob)
        await bob.sees(alice)
        sent = await bob.send(alice, "kept")
        await asyncio.to_thread(read_only_locks, writable=False)
        assert (await alice.ask("list"))["peers"], "what is open already serves on"
        for one in (alice, bob):
            one.coordinator.authority._lock.close()
        refusal = await refused(alice.ask("list"), SystemWant)
        assert "Read-only file system" in refusal.message
        assert refusal.next_step.startswith("Mend the disk")
        await until(lambda: not is_healthy(alice))
        clock.advance(60)
        await refused(alice.read(), SystemWant)
        assert not is_healthy(alice)

        await asyncio.to_thread(read_only_locks, writable=True)
        await passes_until(clock, lambda: is_healthy(alice) and is_healthy(bob))
        assert alice.record().claim == claim_of(layout, ALICE)
        assert [one["message_id"] for one in (await alice.read())["messages"]] == [sent["message_id"]]


# --- a mailbox that is no longer the one that is open ------------------------------------------------


def folder_of(layout):
    return os.path.dirname(layout.mailbox(ALICE.key))


def removed(layout):
    os.rename(layout.mailbox(ALICE.key), f"{layout.root}/away")
    return lambda: os.rename(f"{layout.root}/away", layout.mailbox(ALICE.key))


def replaced(layout):
    back = removed(layout)
    shutil.copy(f"{layout.root}/away", layout.mailbox(ALICE.key))
    return back


def linked(layout):
    back = removed(layout)
    os.symlink(f"{layout.root}/away", layout.mailbox(ALICE.key))
    return back


def folder_renamed(layout):
    os.rename(folder_of(layout), f"{layout.root}/away")
    return lambda: os.rename(f"{layout.root}/away", folder_of(layout))


def folder_replaced(layout):
    back = folder_renamed(layout)
    os.mkdir(folder_of(layout), 0o700)
    return back


@pytest.mark.parametrize("take_away", [removed, replaced, linked, folder_renamed, folder_replaced])
async def test_nothing_is_accepted_into_a_mailbox_that_is_no_longer_there(layout, take_away):
    clock = FakeClock()
    raw = RawPeer(CAROL)
    started_once(layout, CAROL)
    async with running(layout, ALICE, clock=clock) as alice, running(layout, BOB) as bob:
        await alice.sees(bob)
        await bob.sees(alice)
        await bob.send(alice, "before")
        back = take_away(layout)
        with raw.registered(layout, None):
            async with await raw.proved(alice.record()) as connection:
                code = await connection.refused("peer.send", raw.envelope(alice.target))
        assert code == "RECOVERY_REQUIRED"
        assert not is_healthy(alice)
        assert alice.record().presence is None
        for asking in (alice.send(bob, "lost?"), alice.read()):
            assert "no longer the file that this process has open" in (await refused(asking)).message
        clock.advance(60)
        await refused(alice.read())

        back()
        await passes_until(clock, lambda: is_healthy(alice))
        assert alice.record().presence is not None
        assert [one["text"] for one in (await alice.read())["messages"]] == ["before"]
        assert (await alice.send(bob, "after"))["status"] == "accepted"
        assert [one["text"] for one in (await bob.read())["messages"]] == ["after"]


# --- a record that was removed -----------------------------------------------------------------------


@pytest.mark.parametrize("how", ["file", "folder"])
@pytest.mark.parametrize(
    ("method", "params"),
    [("update", {"activity": "idle"}), ("list", {}), ("whoami", {}), ("send", {"message": "x"})],
)
async def test_a_session_whose_record_was_removed_is_back_at_its_hosts_next_call(layout, method, params, how):
    async with running(layout, ALICE) as alice, running(layout, BOB) as bob:
        await alice.sees(bob)
        before = alice.record().claim.id
        os.unlink(layout.record(ALICE.key))
        if how == "folder":
            shutil.rmtree(layout.peers)
            await bob.ask("whoami")  # his went too
        to = {"target": bob.target} if method == "send" else {}
        await alice.ask(method, **params, **to)

        assert alice.record().claim == claim_of(layout, ALICE)
        assert alice.record().claim.id not in {None, before}
        assert [one["target"] for one in (await bob.ask("list"))["peers"]] == [alice.target]
        if method == "update":
            assert alice.record().presence.activity == "idle"


async def test_an_unhealthy_session_is_put_on_record_again_and_not_listed(layout):
    async with running(layout, ALICE, clock=FakeClock()) as alice, running(layout, BOB) as bob:
        await alice.sees(bob)
        back = removed(layout)
        await refused(alice.send(bob))
        os.unlink(layout.record(ALICE.key))
        await alice.ask("whoami")

        assert alice.record().presence is None
        assert (await bob.ask("list"))["peers"] == []
        back()


async def test_a_peer_that_does_not_know_a_dialling_session_makes_it_look_for_its_record(layout):
    async with running(layout, ALICE) as alice, running(layout, BOB) as bob:
        os.unlink(layout.record(ALICE.key))
        await refused(alice.coordinator.connections.to(bob.record()), AuthenticationFailed)

        assert alice.record().claim == claim_of(layout, ALICE)
        await alice.coordinator.connections.to(bob.record())


async def test_nothing_is_put_on_record_again_once_a_session_ends(layout):
    async with running(layout, ALICE) as alice:
        os.unlink(layout.record(ALICE.key))
    alice.coordinator.renew()

    assert os.listdir(layout.peers) == []


async def test_what_cannot_be_put_on_record_again_makes_unhealthy_until_it_can(layout):
    clock = FakeClock()
    async with running(layout, ALICE, clock=clock) as alice:
        shutil.rmtree(layout.peers)
        os.mknod(layout.peers, 0o600)
        await alice.ask("whoami")
        await until(lambda: not is_healthy(alice))

        os.unlink(layout.peers)
        await passes_until(clock, lambda: is_healthy(alice))
        assert alice.record().claim == claim_of(layout, ALICE)
