"""The locks around authority: their order, what nobody does under them, and what comes of waiting in vain."""

import ast
import asyncio
import importlib
import os
import sqlite3
from contextlib import AsyncExitStack, closing
from inspect import signature
from pathlib import Path

import pytest

from assignments import store
from assignments.lifecycle import Assignments, Retired
from assignments.worktrees import fresh, git_groups, running
from assignments.worktrees.git_groups import GitGroups, GitInventories
from assignments.worktrees.inventory import Inventoried, Worktree
from assignments.worktrees.inventory_fake import FakeInventories
from herd.coordinator import topologies
from herd.core.authority_lock import AuthorityHold, AuthorityLock
from herd.core.clock import SystemClock
from herd.core.config import Place
from herd.core.errors import EligibilityDenied, LockTimeout
from herd.core.limits import AUTHORITY_WAIT_S
from tests.fakes.assignments import lock_of
from tests.fakes.authority import World
from tests.fakes.checkouts import Checkouts, git
from tests.fakes.coordinators import IN_TIME_S, until
from tests.fakes.locking import ASSIGNMENT, AUTHORITY, FOR_LIFE, MAILBOX, ORDER, QUEUE, VISITED, Locking
from tests.fakes.records import layout_at, session_of

ALICE, BOB, CAROL = session_of(1), session_of(2, "pi"), session_of(3, "codex")
PATH = {"PATH": os.environ["PATH"]}


@pytest.fixture
async def life():
    async with AsyncExitStack() as stack:
        yield stack


@pytest.fixture
def world(home, tmp_path):
    (tmp_path / "unused").mkdir()
    return World(layout_at(home), tmp_path / "unused")


async def everything(world: World, life: AsyncExitStack, tmp_path) -> None:
    """Let two Leads of real checkouts do all there is, and change all assignments meanwhile."""
    (tmp_path / "real").mkdir()
    checkouts = await asyncio.to_thread(Checkouts, tmp_path / "real")
    changing = Assignments(world.layout, lock_of(world.layout))
    fix = world.assignment(ALICE, "cart", socket="none", repo=checkouts.repository)
    fix = fix._replace(checkout=str(checkouts.linked))

    async def lead(session, cwd, stack, **chosen):
        given = {"groups": GitGroups(PATH), "cwd": str(cwd), "place": Place("none"), **chosen}
        return await stack.enter_async_context(world.lead(session, "shop", **given))

    await asyncio.to_thread(changing.create, fix)
    alice = await lead(ALICE, checkouts.linked, life, kind="managed")
    async with AsyncExitStack() as awake:
        bob = await lead(BOB, checkouts.main, awake)
        await alice.sees(bob)
        await bob.sees(alice)
        file = checkouts.main / "note.txt"
        await asyncio.to_thread(file.write_text, "x" * 100_000)
        sent = await alice.send(bob, "hello", files=[str(file)])
        await alice.until_state(sent["message_id"], "accepted")
        (message,) = (await bob.read())["messages"]
        await bob.send(alice, "back", reply_to=message["message_id"])
        assert await alice.texts(wait_ms=20_000) == ["back"]
        await until(lambda: bob.presence().group == checkouts.repository)
    sent = await alice.send(bob.target, "for a sleeping one")
    await alice.until_state(sent["message_id"], "accepted")
    async with AsyncExitStack() as awake:
        bob = await lead(BOB, checkouts.main, awake)
        assert await bob.texts(wait_ms=20_000) == ["for a sleeping one"]
        await asyncio.to_thread(changing.take_over, fix.place, lambda _: True)
        with pytest.raises(EligibilityDenied):
            await alice.send(bob, "no more")
        await asyncio.to_thread(changing.create, fix)
        await asyncio.to_thread(resumed, changing, fix)
        await life.aclose()
        await asyncio.to_thread(git, "-C", checkouts.main, "worktree", "remove", checkouts.linked)
        assert isinstance(await changing.retire(fix.place, GitInventories(PATH)), Retired)
        await world.corrupt()
        await asyncio.to_thread(changing.set_aside, world.assignment(CAROL, "corrupt").place)


def resumed(changing: Assignments, assignment) -> None:
    with changing.kept(assignment.place) as kept:
        assert kept == assignment


@pytest.fixture
async def locking(world, life, tmp_path, monkeypatch):
    for module in (git_groups, running):
        monkeypatch.setattr(module, "SUBPROCESS_S", IN_TIME_S)
    monkeypatch.setattr(fresh, "TOPOLOGY_WAIT_S", IN_TIME_S)
    for module in (fresh, topologies):
        monkeypatch.setattr(module, "TOPOLOGY_FRESH_S", IN_TIME_S)
    with monkeypatch.context() as patched:
        locking = Locking(world.layout)
        locking.watch(patched)
        await everything(world, life, tmp_path)
        await life.aclose()
        yield locking


@pytest.mark.requirement("H-locks-08")
async def test_nobody_begins_a_process_a_socket_or_a_question_under_the_authority_lock(locking):
    begun = {what for what, _ in locking.begun}
    assert {"subprocess.Popen", "socket.connect"} <= begun
    assert any(what.startswith(("peer.", "message.")) for what in begun), begun
    assert [one for one in locking.begun if AUTHORITY in one[1]] == []


@pytest.mark.requirement("H-locks-09")
async def test_locks_are_taken_in_one_order_and_nobody_waits_for_a_visited_mailbox(locking):
    assert {one.what for one in locking.taken} == {*ORDER, FOR_LIFE}
    rank = {what: number for number, what in enumerate(ORDER)}
    for one in locking.taken:
        if one.what == FOR_LIFE:
            # A session's own two, from before it is anybody's peer; whoever has any other lock takes none.
            assert one.holding == (), one
        else:
            assert all(rank[held] <= rank[one.what] for held in one.holding), one
            assert one.thread != "mailbox", one
        if one.what in {ASSIGNMENT, AUTHORITY, VISITED}:
            assert one.what not in one.holding, one
    assert {one.waits for one in locking.taken if one.what == VISITED} == {False}
    nested = {(one.holding[-1], one.what) for one in locking.taken if one.holding}
    assert nested >= {(QUEUE, AUTHORITY), (ASSIGNMENT, AUTHORITY), (AUTHORITY, MAILBOX), (AUTHORITY, VISITED)}


async def test_what_would_be_begun_under_the_lock_is_noticed(world, monkeypatch):
    locking = Locking(world.layout)
    locking.watch(monkeypatch)
    with await asyncio.to_thread(world.lock.shared):
        await asyncio.to_thread(git, "version")
    with world.lock.shared():
        await asyncio.to_thread(git, "version")

    assert [AUTHORITY in held for what, held in locking.begun if what == "subprocess.Popen"] == [False, True]


RULES = (
    "assignments.reading",
    "assignments.scan",
    "assignments.store",
    "herd.coordinator.evidence",
    "roles.eligibility",
    "roles.evidence",
)
"""Where everything is that is done under the lock but the commits."""


@pytest.mark.requirement("H-locks-08")
@pytest.mark.parametrize("module", RULES)
def test_what_judges_and_changes_records_can_begin_none(module):
    code = Path(importlib.import_module(module).__file__).read_text("utf-8")
    tree = ast.walk(ast.parse(code))
    named = {
        name
        for node in tree
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in ([node.module] if isinstance(node, ast.ImportFrom) else [one.name for one in node.names])
    }
    far = ("subprocess", "socket", "asyncio", "multiprocessing", "herd.rpc", "assignments.worktrees.git")
    assert [name for name in named if name.startswith((*far, "assignments.worktrees.herdr"))] == []
    assert "await" not in code


# --- in vain -----------------------------------------------------------------------------------------


class Vain:
    """Somebody changes authority for longer than anybody waits; and who has waited in vain for the lock."""

    def __init__(self, world: World, monkeypatch) -> None:
        for take in (AuthorityLock.shared, AuthorityLock.exclusive):
            assert signature(take).parameters["wait_s"].default == AUTHORITY_WAIT_S
        self._world, self._loop = world, asyncio.get_running_loop()
        self._monkeypatch = monkeypatch
        self._shared = AuthorityLock.shared
        self.waited = asyncio.Event()
        self._hold: AuthorityHold | None = None

    async def begin(self) -> None:
        self._hold = await asyncio.to_thread(self._world.lock.exclusive)

        def impatient(lock: AuthorityLock):
            try:
                return self._shared(lock, 0.01)
            except LockTimeout:
                self._loop.call_soon_threadsafe(self.waited.set)
                raise

        self._monkeypatch.setattr(AuthorityLock, "shared", impatient)

    def end(self) -> None:
        self._monkeypatch.setattr(AuthorityLock, "shared", self._shared)
        if self._hold is not None:
            self._hold.release()


@pytest.fixture
async def vain(world, monkeypatch):
    return Vain(world, monkeypatch)


@pytest.fixture
async def pair(world, life):
    alice = await life.enter_async_context(world.lead(ALICE, "shop", clock=SystemClock()))
    awake = await life.enter_async_context(AsyncExitStack())
    bob = await awake.enter_async_context(world.lead(BOB, "shop"))
    await alice.sees(bob)
    return alice, bob, awake


@pytest.mark.requirement("H-locks-10")
async def test_without_the_lock_nothing_is_queued(pair, vain):
    alice, bob, _ = pair
    await vain.begin()
    for asking in (alice.send(bob), alice.ask("list")):
        with pytest.raises(LockTimeout) as refusal:
            await asking
        assert refusal.value.code == "LOCK_TIMEOUT"
    assert await alice.outgoing() == []
    vain.end()
    assert (await alice.send(bob))["status"] == "accepted"


@pytest.mark.requirement("H-locks-10")
@pytest.mark.parametrize("awake", [True, False])
async def test_without_the_lock_nothing_is_accepted_and_what_is_queued_stays(pair, vain, awake):
    alice, bob, stack = pair
    target = bob.target
    if not awake:
        await stack.aclose()
    carry, held = alice.coordinator.carrier.carry, []

    async def carried(message):
        if not held:
            held.append(True)
            await vain.begin()
        return await carry(message)

    alice.coordinator.carrier.carry = carried
    sent = await alice.send(target, "hello")
    async with asyncio.timeout(IN_TIME_S):
        await vain.waited.wait()
    assert await alice.state(sent["message_id"]) == "pending"
    assert await inbox_of(bob) == 0
    vain.end()
    await alice.until_state(sent["message_id"], "accepted")


async def inbox_of(one) -> int:
    def count() -> int:
        if not os.path.exists(one.layout.mailbox(one.key)):
            return 0
        with closing(sqlite3.connect(f"file:{one.layout.mailbox(one.key)}?mode=ro", uri=True)) as connection:
            return int(connection.execute("SELECT count(*) FROM inbox").fetchone()[0])

    return await asyncio.to_thread(count)


@pytest.mark.requirement("H-locks-10")
async def test_without_the_lock_nothing_is_handed_over_and_it_waits(pair, vain):
    alice, bob, _ = pair
    sent = await alice.send(bob)
    await alice.until_state(sent["message_id"], "accepted")
    await vain.begin()
    for asking in (bob.read(), bob.read(message_id=sent["message_id"])):
        with pytest.raises(LockTimeout) as refusal:
            await asking
        assert refusal.value.code == "LOCK_TIMEOUT"
    assert [(row.receipt.state, row.handovers) for row in await bob.incoming()] == [("accepted", 0)]
    vain.end()
    assert await bob.texts() == ["hello"]


@pytest.mark.requirement("H-locks-10")
@pytest.mark.parametrize("change", ["create", "take over", "retire", "set aside"])
async def test_without_the_lock_no_assignment_is_changed(world, change):
    there = await world.assign(ALICE, "fix")
    await world.corrupt()
    before = records(world)
    changing = Assignments(world.layout, lock_of(world.layout), authority_wait_s=0.01)
    gone = FakeInventories(Inventoried(world.shop, (Worktree("/shop", "main", linked=False),)))
    there_too = there._replace(checkout="/gone")
    changes = {
        "create": lambda: changing.create(world.assignment(BOB, "more")),
        "take over": lambda: changing.take_over(there.place, lambda _: True),
        "retire": lambda: asyncio.run(changing.retire(there.place, gone)),
        "set aside": lambda: changing.set_aside(world.assignment(CAROL, "corrupt").place),
    }
    if change == "retire":
        with await asyncio.to_thread(world.lock.exclusive) as hold:
            await asyncio.to_thread(store.write, world.layout, hold, there_too)
        before = records(world)
    with await asyncio.to_thread(world.lock.exclusive):
        with pytest.raises(LockTimeout) as refusal:
            await asyncio.to_thread(changes[change])
        assert records(world) == before
    assert refusal.value.code == "LOCK_TIMEOUT"


def records(world: World) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in Path(world.layout.assignments).rglob("*.json")}
