"""Managed and assigned Leads: who sees whom, who may write to whom, and what becomes of mail on its way."""

import asyncio
import json
import os
from contextlib import AsyncExitStack, contextmanager, nullcontext

import pytest

from assignments import scan
from assignments.worktrees.groups import Grouped, Ungrouped, Unproven
from herd.core.clock import SystemClock
from herd.core.errors import (
    EligibilityDenied,
    EligibilityUnverified,
    InvalidParams,
    LockTimeout,
    RecoveryRequired,
    UnsafeEndpoint,
)
from herd.core.identity import SessionName
from herd.mail.steps import OUTBOX_AFTER, OUTBOX_BEFORE
from herd.presence.registry import Registry
from herd.presence.session_file import read_session_file
from roles.eligibility import verdict
from tests.fakes.authority import ELSEWHERE, HERE, World
from tests.fakes.coordinators import content_of, running, until
from tests.fakes.records import ALICE, BOB, CAROL, put, session_of

TERMINAL = SessionName("terminal", "default")
MANAGED = {"kind": "managed"}


@pytest.fixture
def world(layout, tmp_path):
    return World(layout, tmp_path)


@pytest.fixture
async def life():
    async with AsyncExitStack() as stack:
        yield stack


@pytest.fixture
async def pair(world, life):
    """Two managed Leads of one group on one socket, each with its branch; the first was shown the second."""
    await world.assign(ALICE, "fix")
    await world.assign(BOB, "more")
    alice = await life.enter_async_context(world.lead(ALICE, "shop-fix", **MANAGED))
    bob = await life.enter_async_context(world.lead(BOB, "shop-more", **MANAGED))
    await alice.sees(bob)
    return alice, bob


async def listed(session) -> set[str]:
    return {peer["target"] for peer in (await session.ask("list"))["peers"]}


def forgetting(*sessions) -> None:
    """Let what was read of worktree groups be too old by now."""
    for one in sessions:
        one.coordinator.authority._topologies._fresh._known.clear()


async def refused(asking, kind):
    with pytest.raises(kind) as refusal:
        await asking
    return refusal.value


# --- who sees whom, and who may write ----------------------------------------------------------------


@pytest.mark.requirement("H-eligib-03")
async def test_managed_leads_of_one_group_and_socket_write_to_each_other(pair):
    alice, bob = pair
    sent = await alice.send(bob, "to the other branch")

    assert sent["status"] == "accepted"
    assert await bob.texts() == ["to the other branch"]
    await bob.sees(alice)
    assert (await bob.send(alice, "back"))["status"] == "accepted"
    assert await alice.texts() == ["back"]


@pytest.mark.requirement("H-eligib-03")
async def test_an_assigned_lead_and_an_ordinary_one_of_its_group_write_to_each_other(world, life):
    await world.assign(ALICE, "fix")
    alice = await life.enter_async_context(world.lead(ALICE, "shop-fix", **MANAGED))
    bob = await life.enter_async_context(world.lead(BOB, "shop"))

    await alice.sees(bob)
    await bob.sees(alice)
    assert (await alice.send(bob))["status"] == (await bob.send(alice))["status"] == "accepted"


DENIED = {
    "another group": ("blog", HERE),
    "no group": ("nowhere", HERE),
    "another socket": ("shop", ELSEWHERE),
}


@pytest.mark.requirement("H-eligib-04", "H-eligib-05", "H-eligib-17")
@pytest.mark.parametrize("where", DENIED)
async def test_who_is_not_of_the_group_and_socket_neither_sees_nor_reaches_a_managed_lead(world, life, where):
    folder, place = DENIED[where]
    await world.assign(ALICE, "fix")
    alice = await life.enter_async_context(world.lead(ALICE, "shop-fix", **MANAGED))
    bob = await life.enter_async_context(world.lead(BOB, folder, place))

    assert await listed(alice) == await listed(bob) == set()
    command = bob.other_adapter(command=True)
    refusal = await refused(
        command.request(None, "session.send", {"target": alice.target, "message": "hello"}), EligibilityDenied
    )
    assert (
        "one of the two is managed or assigned" in refusal.message or "no worktree group" in refusal.message
    )
    assert await bob.outgoing() == []


@pytest.mark.requirement("H-kinds-05", "H-kinds-06")
@pytest.mark.parametrize("folder", ["shop", "blog"])
async def test_a_managed_lead_whose_assignment_has_ended_is_managed_still_and_no_ordinary_peer(
    world, life, folder
):
    fix = await world.assign(ALICE, "fix")
    alice = await life.enter_async_context(world.lead(ALICE, "shop-fix", **MANAGED))
    bob = await life.enter_async_context(world.lead(BOB, folder))
    carol = await life.enter_async_context(world.lead(CAROL, "nowhere", ELSEWHERE))
    await world.end(fix)

    assert await listed(alice) == set()
    assert await listed(bob) == {carol.target}
    assert await listed(carol) == {bob.target}
    command = bob.other_adapter(command=True)
    asking = command.request(None, "session.send", {"target": alice.target, "message": "hello"})
    assert "no assignment names it" in (await refused(asking, EligibilityDenied)).message
    await life.aclose()
    async with world.lead(BOB, folder) as bob:  # and once it is stopped or gone nobody lists it either
        assert await listed(bob) == set()


@pytest.mark.requirement("H-assign-06", "H-assign-20", "H-presence-26", "H-eligib-11")
@pytest.mark.parametrize("how", ["no JSON", "too big", "wrong schema", "an additional key", "another path"])
async def test_while_one_record_is_corrupt_nobody_is_listed_and_nothing_is_queued(world, life, how):
    alice = await life.enter_async_context(world.lead(ALICE, "blog", ELSEWHERE))
    bob = await life.enter_async_context(world.lead(BOB, "shop"))
    await alice.sees(bob)
    path = await world.corrupt(how)

    assert await listed(alice) == await listed(bob) == set()
    refusal = await refused(alice.send(bob), EligibilityUnverified)
    assert path in refusal.message
    assert "herd doctor" in refusal.next_step
    assert await alice.outgoing() == []
    os.unlink(path)
    assert (await alice.send(bob))["status"] == "accepted"


@pytest.mark.requirement("H-assign-07")
@pytest.mark.parametrize("what", ["a namespace", "a record", "a vanished record", "a vanished namespace"])
async def test_while_a_record_or_namespace_cannot_be_read_everything_is_unverified(
    world, life, monkeypatch, what
):
    alice = await life.enter_async_context(world.lead(ALICE, "blog", ELSEWHERE))
    bob = await life.enter_async_context(world.lead(BOB, "shop"))
    await world.assign(CAROL, "fix")
    await alice.sees(bob)
    path = world.layout.assignment(*world.assignment(CAROL, "fix").place)
    namespace = os.path.dirname(os.path.dirname(path))
    if what == "a namespace":
        os.chmod(namespace, 0o777)  # anybody might have written what is in it
    elif what == "a record":
        os.unlink(path)
        os.mkfifo(path, 0o600)
    else:
        name, vanishing = ("read_in", path) if what == "a vanished record" else ("opened", namespace)
        read = getattr(scan, name)

        @contextmanager
        def vanished():
            os.rename(vanishing, vanishing + ".gone")
            try:
                yield
            finally:
                os.rename(vanishing + ".gone", vanishing)

        def without_record(*given):
            with vanished():
                return read(*given)

        @contextmanager
        def without_namespace(folder):
            with vanished() if folder == namespace else nullcontext(), read(folder) as found:
                yield found

        monkeypatch.setattr(scan, name, without_record if name == "read_in" else without_namespace)
        for one in (alice, bob):
            one.coordinator.authority._scans._scan = None
            one.coordinator.authority._scans._folders.clear()
            one.coordinator.authority._scans._records.clear()

    assert await listed(alice) == set()
    assert "assignments are not proven" in (await refused(alice.send(bob), EligibilityUnverified)).message
    assert await alice.outgoing() == []


@pytest.mark.requirement("H-assign-04")
@pytest.mark.parametrize("socket", [HERE.socket, ELSEWHERE.socket, "none"])
async def test_a_record_in_whichever_namespace_makes_its_exact_session_assigned(world, life, socket):
    alice = await life.enter_async_context(world.lead(ALICE, "shop"))
    bob = await life.enter_async_context(world.lead(BOB, "blog"))
    carol = await life.enter_async_context(world.lead(CAROL, "blog"))
    await alice.sees(bob, carol)
    await world.assign(BOB, "fix", socket=socket)

    assert await listed(alice) == {carol.target}
    await refused(alice.send(bob), EligibilityDenied)
    assert (await alice.send(carol))["status"] == "accepted"


@pytest.mark.requirement("H-assign-05")
@pytest.mark.parametrize("tree", ["absent", "empty", "without records", "other names"])
async def test_no_record_at_all_is_a_complete_scan_of_nobody(world, life, tree):
    root = world.layout.assignments
    if tree != "absent":
        os.mkdir(root, 0o700)
    if tree == "without records":
        os.makedirs(f"{root}/{'1' * 64}/{'2' * 64}", 0o700)
        for folder in (f"{root}/{'1' * 64}", f"{root}/{'1' * 64}/{'2' * 64}"):
            os.chmod(folder, 0o700)
    if tree == "other names":
        put(f"{root}/notes.txt", b"{")
    alice = await life.enter_async_context(world.lead(ALICE, "shop"))
    bob = await life.enter_async_context(world.lead(BOB, "blog"))

    await alice.sees(bob)
    assert (await alice.send(bob))["status"] == "accepted"


@pytest.mark.requirement("H-assign-08", "H-assign-20")
async def test_who_is_named_by_two_records_is_verified_for_nobody(pair, world):
    alice, bob = pair
    more = await world.assign(BOB, "even-more")

    assert await listed(alice) == set()
    refusal = await refused(alice.send(bob), EligibilityUnverified)
    assert "several assignments name the recipient" in refusal.message
    assert "even-more" in refusal.message
    assert "herd doctor" in refusal.next_step
    await world.end(more)
    assert await listed(alice) == {bob.target}


@pytest.mark.requirement("H-eligib-15")
async def test_of_a_peer_on_another_socket_nothing_is_asked(world, life):
    await world.assign(ALICE, "fix")
    alice = await life.enter_async_context(world.lead(ALICE, "shop-fix", **MANAGED))
    bob = await life.enter_async_context(world.lead(BOB, "shop", ELSEWHERE))
    carol = await life.enter_async_context(world.lead(CAROL, "blog", ELSEWHERE))
    await until(lambda: bob.record().presence.group == world.shop)
    await until(lambda: carol.record().presence.group == world.blog)
    world.groups.asked.clear()

    assert await listed(alice) == set()
    assert await listed(bob) == {carol.target}
    await bob.send(carol)
    command = alice.other_adapter(command=True)
    asking = command.request(None, "session.send", {"target": bob.target, "message": "hello"})
    await refused(asking, EligibilityDenied)
    assert {one for one in world.groups.asked if one != world.folder("shop-fix")} == set()


@pytest.mark.requirement("H-eligib-24")
async def test_the_terminal_session_writes_to_a_managed_lead_which_may_answer_and_no_more(world, life):
    await world.assign(ALICE, "fix")
    alice = await life.enter_async_context(world.lead(ALICE, "shop-fix", **MANAGED))
    async with running(world.layout, TERMINAL) as terminal:
        command = terminal.other_adapter(command=True)
        sent = await command.request(None, "session.send", {"target": alice.target, "message": "how far?"})
        (message,) = (await alice.read())["messages"]
        assert sent["status"] == "accepted"
        await refused(alice.send(terminal, "unasked"), EligibilityDenied)
        answer = await alice.send(terminal, "half", reply_to=message["message_id"])
        assert answer["status"] == "accepted"
        assert await terminal.texts() == ["half"]
    # and where it does not run any more, its answer waits in its mailbox
    later = await alice.send(terminal.target, "done", reply_to=message["message_id"])
    assert later["status"] == "accepted"
    await refused(alice.send(terminal.target, "unasked"), EligibilityDenied)
    async with running(world.layout, TERMINAL) as terminal:
        assert await terminal.texts() == ["half", "done"]


# --- topology ----------------------------------------------------------------------------------------


@pytest.mark.requirement("H-eligib-17", "H-eligib-11")
async def test_a_source_that_hangs_leaves_everything_unverified_and_the_others_alone(pair, world, life):
    alice, bob = pair
    carol = await life.enter_async_context(world.lead(CAROL, "nowhere", ELSEWHERE))
    dave = await life.enter_async_context(world.lead(session_of(4), "nowhere", ELSEWHERE))
    world.groups.hangs = True
    forgetting(alice)

    assert await listed(alice) == set()
    refusal = await refused(alice.send(bob), EligibilityUnverified)
    assert "worktree group" in refusal.message
    assert await alice.outgoing() == []
    await carol.sees(dave)
    assert (await carol.send(dave))["status"] == "accepted"


@pytest.mark.requirement("H-eligib-21")
async def test_topology_is_read_while_nobody_holds_the_lock(pair, world):
    alice, bob = pair
    free: list[bool] = []
    membership = world.groups.membership

    async def looking(cwd, workspace_id=None):
        with await asyncio.to_thread(world.lock.exclusive, 1):  # raises where an asker has it
            free.append(True)
        return await membership(cwd, workspace_id)

    world.groups.membership = looking
    forgetting(alice, bob)
    assert (await alice.send(bob))["status"] == "accepted"
    assert await bob.texts() == ["hello"]
    assert free


@pytest.mark.parametrize("by", ["list", "send", "read"])
async def test_leads_that_are_free_cost_no_look_at_any_checkout(world, life, by):
    alice = await life.enter_async_context(world.lead(ALICE, "shop"))
    bob = await life.enter_async_context(world.lead(BOB, "blog"))
    await world.assign(CAROL, "fix")
    await until(lambda: bob.record().presence.group == world.blog)
    await until(lambda: alice.record().presence.group == world.shop)
    world.groups.asked.clear()

    await alice.sees(bob)
    if by != "list":
        await alice.send(bob)
    if by == "read":
        assert await bob.texts() == ["hello"]
    assert world.groups.asked == []


# --- acceptance and delivery -------------------------------------------------------------------------


@pytest.mark.requirement("H-inbox-04", "H-send-13")
async def test_a_visitor_judges_a_sleeping_lead_by_kind_assignment_and_last_group(world, life):
    await world.assign(ALICE, "fix")
    more = await world.assign(BOB, "more")
    alice = await life.enter_async_context(world.lead(ALICE, "shop-fix", **MANAGED))
    async with world.lead(BOB, "shop-more", **MANAGED) as bob:
        await alice.sees(bob)
        await until(lambda: bob.record().presence.group == world.shop)
    first = await alice.send(bob.target, "one")
    assert first["status"] == "accepted"
    await world.end(more)

    await refused(alice.send(bob.target, "two"), EligibilityDenied)
    async with world.lead(BOB, "shop-more", **MANAGED) as bob:  # by what is live, at delivery
        assert await bob.texts() == []
        await alice.until_state(first["message_id"], "rejected")


@pytest.mark.requirement("H-inbox-04", "H-inbox-05")
async def test_acceptance_judges_by_the_records_of_its_own_moment(world, life):
    alice = await life.enter_async_context(world.lead(ALICE, "shop", clock=SystemClock()))
    bob = await life.enter_async_context(world.lead(BOB, "shop"))
    await alice.sees(bob)
    path: list[str] = []
    carry = alice.coordinator.carrier.carry

    async def carried(message):
        if not path:
            path.append(await world.corrupt())
        return await carry(message)

    alice.coordinator.carrier.carry = carried
    sent = await alice.send(bob)
    status = await alice.ask("status", message_id=sent["message_id"])

    assert status["state"] == "pending"
    assert await bob.incoming() == []
    os.unlink(path[0])
    await alice.until_state(sent["message_id"], "accepted")


@pytest.mark.requirement("H-eligib-16", "H-inbox-07")
@pytest.mark.parametrize("now", ["another group", "no group", "its assignment ended", "the sender's ended"])
async def test_waiting_mail_is_rejected_where_it_may_not_be_delivered_any_more(world, life, now):
    fix = await world.assign(ALICE, "fix")
    more = await world.assign(BOB, "more")
    alice = await life.enter_async_context(world.lead(ALICE, "shop-fix", **MANAGED))
    bob = await life.enter_async_context(world.lead(BOB, "shop-more", **MANAGED))
    await alice.sees(bob)
    sent = await alice.send(bob, "a secret text")
    assert sent["status"] == "accepted"
    world.groups.asked.clear()
    forgetting(bob)
    if now == "another group":
        world.groups.known[world.folder("shop-more")] = Grouped(world.blog)
    elif now == "no group":
        world.groups.known[world.folder("shop-more")] = Ungrouped("it was removed")
    else:
        await world.end(more if now == "its assignment ended" else fix)

    assert await bob.texts() == []
    await alice.until_state(sent["message_id"], "rejected")
    (row,) = await bob.incoming()
    assert (row.receipt.outcome, row.handovers) == ("ELIGIBILITY_DENIED", 0)
    if "group" in now:
        assert world.groups.asked == [world.folder("shop-more")]


@pytest.mark.requirement("H-inbox-05")
async def test_what_is_uncertain_at_its_delivery_stays_and_comes_by_itself_later(pair, world):
    alice, bob = pair
    sent = await alice.send(bob)
    path = await world.corrupt()
    assert await bob.texts() == []
    reading = asyncio.ensure_future(bob.read(wait_ms=20_000))
    await asyncio.sleep(0)
    os.unlink(path)

    (message,) = (await reading)["messages"]
    assert message["text"] == "hello"
    assert await alice.state(sent["message_id"]) == "accepted"


@pytest.mark.requirement("H-eligib-22")
async def test_a_sender_that_is_gone_by_then_is_no_gap_in_the_evidence(world, life):
    await world.assign(ALICE, "fix")
    await world.assign(BOB, "more")
    bob = await life.enter_async_context(world.lead(BOB, "shop-more", **MANAGED))
    async with world.lead(ALICE, "shop-fix", **MANAGED) as alice:
        await alice.sees(bob)
        await alice.send(bob)
    world.groups.known[world.folder("shop-fix")] = Unproven("its worktree answers nothing")

    assert await bob.texts() == ["hello"]
    (row,) = await bob.incoming()
    assert (row.sender.kind, row.sender.socket) == ("managed", HERE.socket)
    assert (row.sender.group, row.sender.branch) == (world.shop, "fix")


# --- moments and locks -------------------------------------------------------------------------------


@pytest.mark.requirement("H-send-02")
async def test_a_verdict_that_is_lost_while_attachments_are_prepared_refuses_and_queues_nothing(
    pair, world, tmp_path
):
    alice, bob = pair
    file = tmp_path / "note.txt"
    file.write_text("x" * 1_000)
    more = world.assignment(BOB, "more")
    drafting = alice.coordinator.sending._drafting
    attached = drafting._attached

    async def slow(*given):
        found = await attached(*given)
        await world.end(more)
        return found

    drafting._attached = slow

    await refused(alice.send(bob, files=[str(file)]), EligibilityDenied)
    assert await alice.outgoing() == []
    assert await bob.incoming() == []


@pytest.mark.requirement("H-locks-06", "H-locks-07")
@pytest.mark.parametrize("step", [OUTBOX_BEFORE, OUTBOX_AFTER])
async def test_from_the_verdict_to_the_commit_nobody_can_change_authority(world, life, step):
    free: list[bool] = []

    def looking(reached: str) -> None:
        if reached == step:
            free.append(_is_free(world.lock))

    alice = await life.enter_async_context(world.lead(ALICE, "shop", step=looking))
    bob = await life.enter_async_context(world.lead(BOB, "shop"))
    await alice.sees(bob)
    await alice.send(bob)

    assert free == [False]
    assert _is_free(world.lock)


@pytest.mark.requirement("H-locks-06")
async def test_acceptance_and_delivery_and_lists_judge_under_the_lock(world, life):
    seen: dict[str, set[bool]] = {}
    alice = await life.enter_async_context(world.lead(ALICE, "shop"))
    moment = ["list"]

    class Looking:
        def verdict(self, sender, target, scan, *, reply=False):
            seen.setdefault(moment[0], set()).add(_is_free(world.lock))
            return verdict(sender, target, scan, reply=reply)

    bob = await life.enter_async_context(world.lead(BOB, "shop", judge=Looking()))
    await bob.sees(alice)
    await alice.sees(bob)
    moment[0] = "acceptance"
    await alice.send(bob)
    moment[0] = "delivery"
    assert await bob.texts() == ["hello"]
    moment[0] = "submission"
    await bob.send(alice)

    assert seen == {one: {False} for one in ("list", "acceptance", "delivery", "submission")}


def _is_free(lock) -> bool:
    try:
        lock.exclusive(0).release()
    except LockTimeout:
        return False
    return True


@pytest.mark.requirement("H-locks-06", "H-kinds-02")
async def test_a_kind_is_fixed_while_nobody_judges(world):
    before = world.lock.generation()
    async with world.lead(ALICE, "shop"):
        assert world.lock.generation() == before + 1
    async with world.lead(ALICE, "shop", **MANAGED) as alice:
        assert world.lock.generation() == before + 1  # a later start changes no kind
        assert alice.record().kind == "ordinary"


# --- kinds -------------------------------------------------------------------------------------------


@pytest.mark.requirement("H-kinds-02", "H-kinds-09")
async def test_a_kind_outlives_restarts_and_the_end_of_the_assignment_and_is_no_forks(world):
    fix = await world.assign(ALICE, "fix")
    async with world.lead(ALICE, "shop-fix") as alice:  # an assignment names it as it starts first
        assert alice.record().kind == "managed"
        assert (await alice.ask("whoami"))["kind"] == "managed"
        await until(lambda: alice.presence().group == world.shop)
    await world.end(fix)
    for chosen in ({}, {"kind": "ordinary"}):
        async with world.lead(ALICE, "shop-fix", **chosen) as alice:
            assert alice.record().kind == "managed"
    fork = session_of(9)
    async with world.lead(fork, "shop-fix") as forked:
        assert forked.record().kind == "ordinary"
    file = read_session_file(world.layout, ALICE.key)
    assert file is not None
    assert (file.kind, file.socket, file.group) == ("managed", HERE.socket, world.shop)


@pytest.mark.requirement("H-kinds-03", "H-kinds-04", "H-assign-20")
@pytest.mark.parametrize(
    "spoil", ["absent", "no kind", "another word", "another session's", "cut", "a folder"]
)
async def test_a_kind_that_is_not_proven_is_never_taken_for_ordinary(world, life, spoil):
    alice = await life.enter_async_context(world.lead(ALICE, "shop"))
    async with world.lead(BOB, "shop", **MANAGED) as bob:
        pass
    path = world.layout.session_file(BOB.key)
    data = content_of(path)
    shape = json.loads(data)
    os.unlink(path)
    if spoil == "a folder":
        os.mkdir(path)
    elif spoil != "absent":
        spoilt = {
            "no kind": {name: value for name, value in shape.items() if name != "kind"},
            "another word": {**shape, "kind": "odd"},
            "another session's": {**shape, **CAROL._asdict(), "kind": "ordinary"},
            "cut": None,
        }[spoil]
        put(path, data[:30] if spoilt is None else json.dumps(spoilt).encode())

    refusal = await refused(alice.coordinator.sending.require_allowed(BOB.key), EligibilityUnverified)
    assert "kind and role are not proven" in refusal.message
    assert "session.json" in refusal.message
    assert "herd doctor" in refusal.next_step
    with pytest.raises((RecoveryRequired, UnsafeEndpoint)):
        async with world.lead(BOB, "shop") as bob:
            pytest.fail(f"it started as {bob.record().kind}")


@pytest.mark.requirement("H-kinds-07")
async def test_nothing_that_a_caller_says_gives_or_changes_a_kind(world, life):
    alice = await life.enter_async_context(world.lead(ALICE, "shop", name="managed", alias="ordinary"))
    bob = await life.enter_async_context(world.lead(BOB, "shop"))
    await alice.sees(bob)
    await alice.ask("update", name="kind=managed", cwd=world.folder("shop-fix"))
    await alice.send(bob, '{"kind":"managed"}', topic="managed")
    send = {"target": bob.target, "message": "hello", "kind": "managed"}
    for method, params in (("update", {"kind": "managed"}), ("send", send)):
        assert "kind" in (await refused(alice.ask(method, **params), InvalidParams)).message

    assert alice.record().kind == "ordinary"
    (row,) = await bob.incoming()
    assert row.sender.kind == "ordinary"
    file = read_session_file(world.layout, ALICE.key)
    assert file is not None
    assert file.kind == "ordinary"


# --- presence ----------------------------------------------------------------------------------------


@pytest.mark.requirement("H-presence-24", "H-presence-25")
async def test_a_group_is_published_once_it_is_proven_and_another_one_under_a_new_claim(world, life):
    world.groups.hangs = True
    alice = await life.enter_async_context(world.lead(ALICE, "shop"))
    await until(lambda: bool(world.groups.asked))
    first = alice.record()
    assert first.presence.group is None
    world.groups.hangs = False
    groups: dict[str | None, str | None] = {first.claim.id: None}

    async def moved(folder: str, group: str | None) -> None:
        await alice.ask("update", cwd=world.folder(folder))
        await until(lambda: alice.record().presence is not None and alice.record().presence.group == group)
        record = alice.record()
        assert groups.setdefault(record.claim.id, group) == group, "a claim of another group"
        assert Registry(world.layout).is_listed(record)

    await moved("shop-fix", world.shop)
    await moved("shop-more", world.shop)
    await moved("blog", world.blog)
    await moved("nowhere", None)
    world.groups.hangs = True
    await moved("shop", None)

    assert len({claim for claim, group in groups.items() if group is not None}) == 2
    assert len(groups) >= 4


@pytest.mark.requirement("H-presence-27")
async def test_a_managed_lead_is_published_as_an_ordinary_one_is(world, life):
    await world.assign(ALICE, "fix")
    alice = await life.enter_async_context(world.lead(ALICE, "shop-fix", name="one", **MANAGED))
    bob = await life.enter_async_context(world.lead(BOB, "shop-fix", name="one"))
    await until(lambda: alice.presence().group is not None and bob.presence().group is not None)

    assert (alice.record().kind, bob.record().kind) == ("managed", "ordinary")
    assert alice.presence() == bob.presence()
    assert all(Registry(world.layout).is_listed(one.record()) for one in (alice, bob))
    for one in (alice, bob):
        one.coordinator.withdraw()
        assert one.record().presence is None
