"""Authority changes at a chosen instant of a send: nothing passes that the evidence at its commit denies.

Each change is made at each instant of a message's way, from its resolution to its hand-over. What was
verified differently by then is refused at the next verdict, what cannot be verified stays until it can, and
whatever is told of the message is so.
"""

import asyncio
import os
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from assignments import store
from assignments.lifecycle import Assignments, Retired
from assignments.worktrees import fresh
from assignments.worktrees.groups import Grouped, Ungrouped, Unproven
from assignments.worktrees.inventory import Inventoried, Worktree
from assignments.worktrees.inventory_fake import FakeInventories
from herd.coordinator import topologies
from herd.core.clock import SystemClock
from herd.core.errors import EligibilityDenied, EligibilityUnverified
from tests.fakes.assignments import lock_of
from tests.fakes.authority import ELSEWHERE, World
from tests.fakes.coordinators import IN_TIME_S
from tests.fakes.races import Committed, Race
from tests.fakes.records import layout_at, put, session_of
from tests.fakes.said import ALLOWED

ALICE, BOB, CAROL = session_of(1), session_of(2, "pi"), session_of(3, "codex")
MANAGED = {"kind": "managed"}
TEXT = "a text that has to come once"

SUBMISSION = ("resolved", "groups looked up", "attachments read")
ACCEPTANCE = (
    "submission verdict",
    "outbox.persist.before",
    "outbox.commit.before",
    "outbox.commit.after",
    "outbox.persist.after",
    "message.send.before",
    "bodies.send.before",
    "pieces verdict",
    "bodies.send.after",
)
DELIVERY = (
    "acceptance verdict",
    "inbox.persist.before",
    "inbox.commit.before",
    "inbox.commit.after",
    "inbox.persist.after",
    "message.send.after",
    "receipt.persist.before",
    "receipt.persist.after",
)
LATE = (
    "delivery verdict",
    "handover.count.before",
    "handover.commit.before",
    "handover.commit.after",
    "handover.count.after",
)
POINTS = (*SUBMISSION, *ACCEPTANCE, *DELIVERY, *LATE)
"""Every instant, in the order of a message's life, by the verdict that comes next; the late have none."""


class Two:
    """The two of a race, by what they are before it, and the changes that can befall them."""

    def __init__(self, world: World, race: Race) -> None:
        self.world, self.race = world, race
        self.more = world.assignment(BOB, "more")._replace(checkout=world.folder("shop-more"))

    def changing(self, wait_s: float) -> Assignments:
        return Assignments(self.world.layout, lock_of(self.world.layout), authority_wait_s=wait_s)

    def created(self, wait_s: float) -> None:
        self.changing(wait_s).create(self.world.assignment(BOB, "more"))

    def taken_over(self, wait_s: float) -> None:
        self.changing(wait_s).take_over(self.more.place, lambda _: True)

    def retired(self, wait_s: float) -> None:
        here = Worktree(self.world.folder("shop"), "main", linked=False)
        if os.path.isdir(self.world.folder("shop-more")):
            os.rmdir(self.world.folder("shop-more"))
        gone = FakeInventories(Inventoried(self.world.shop, (here,)))
        done = asyncio.run(self.changing(wait_s).retire(self.more.place, gone))
        assert isinstance(done, Retired)

    def given_away(self, wait_s: float) -> None:
        self.taken_over(wait_s)
        self.changing(IN_TIME_S).create(self.world.assignment(CAROL, "more"))

    def of_another_repository(self, wait_s: float) -> None:
        self.taken_over(wait_s)
        self.changing(IN_TIME_S).create(self.world.assignment(BOB, "more", repo=self.world.blog))

    def of_another_socket(self, wait_s: float) -> None:
        self.taken_over(wait_s)
        self.changing(IN_TIME_S).create(self.world.assignment(BOB, "more", socket=ELSEWHERE.socket))

    def moved(self, _: float) -> None:
        self.says(Grouped(self.world.blog))

    def removed(self, _: float) -> None:
        self.says(Ungrouped("it is no checkout any more"))

    def hidden(self, _: float) -> None:
        self.says(Unproven("nothing answers"))

    def corrupt(self, wait_s: float) -> None:
        with lock_of(self.world.layout).exclusive(wait_s) as hold:
            store.write(self.world.layout, hold, self.world.assignment(CAROL, "odd"))
            put(self.odd, b"{")

    def ambiguous(self, wait_s: float) -> None:
        with lock_of(self.world.layout).exclusive(wait_s) as hold:
            store.write(self.world.layout, hold, self.world.assignment(BOB, "odd"))

    async def mended(self) -> None:
        """Take back what made it unverified."""

        def mend() -> None:
            with lock_of(self.world.layout).exclusive(IN_TIME_S):
                Path(self.odd).unlink(missing_ok=True)

        await asyncio.to_thread(mend)
        self.says(Grouped(self.world.shop))

    @property
    def odd(self) -> str:
        return self.world.layout.assignment(*self.world.assignment(BOB, "odd").place)

    def says(self, membership) -> None:
        """Let the worktrees say another thing of Bob's folder, to whoever asks from now on."""
        self.world.groups.known[self.world.folder("shop-more")] = membership
        for one in (self.alice, self.bob):
            forget(one)

    async def begin(self, life: AsyncExitStack, *, free: bool) -> None:
        """Start both: free Leads of two repositories, or assigned ones of one."""
        world, kind = self.world, {} if free else MANAGED
        if not free:
            await world.assign(ALICE, "fix")
            await asyncio.to_thread(self.changing(IN_TIME_S).create, self.more)

        async def lead(who, session, folder):
            groups = self.race.groups(who, world.groups)
            seams = {"step": self.race.step(who), "judge": self.race.judge(who), "groups": groups}
            given = {**kind, **seams, "clock": SystemClock()}
            return await life.enter_async_context(world.lead(session, folder, **given))

        self.folders = {"sender": "blog" if free else "shop-fix", "recipient": "shop-more"}
        self.alice = await lead("sender", ALICE, self.folders["sender"])
        self.bob = await lead("recipient", BOB, self.folders["recipient"])
        await self.alice.sees(self.bob)
        sending = self.alice.coordinator.sending
        sending._resolved = self.race.hook("resolved", sending._resolved)
        sending._drafting._attached = self.race.hook("attachments read", sending._drafting._attached)


def forget(one) -> None:
    one.coordinator.authority._topologies._fresh._known.clear()
    one.coordinator.authority._topologies._asked.clear()


DENYING = (
    "created",
    "taken_over",
    "retired",
    "given_away",
    "of_another_repository",
    "of_another_socket",
    "moved",
    "removed",
)
DENIED_AT = [
    (change, point)
    for change in DENYING
    for point in POINTS
    if (change, point) != ("created", "groups looked up")  # no group counts between two who are free
]
UNSURE = ("corrupt", "ambiguous", "hidden")


@pytest.fixture(autouse=True)
def _patient(monkeypatch, blockbuster):
    for function in blockbuster.functions.values():  # the loop stands still while the change begins
        function.can_block_in("tests/fakes/races.py", {"_begins", "_follows", "_committed"})
    monkeypatch.setattr(fresh, "TOPOLOGY_WAIT_S", IN_TIME_S)
    for module in (fresh, topologies):
        monkeypatch.setattr(module, "TOPOLOGY_FRESH_S", IN_TIME_S)


@pytest.fixture
async def life():
    async with AsyncExitStack() as stack:
        yield stack


@pytest.fixture
async def two(home, tmp_path):
    world = World(layout_at(home), tmp_path)
    return Two(world, Race(world.layout, {"sender": ALICE, "recipient": BOB}))


async def sent(two: Two, change: str, point: str, tmp_path):
    """Send one message with a file, and let the change happen at that instant or before it is read.

    Gives what was told: the answer, or the refusal.
    """
    file = tmp_path / "note.txt"
    file.write_text("x" * 1_000, encoding="utf-8")
    for one in (two.alice, two.bob):
        forget(one)
    two.race.arm(
        point, getattr(two, change), {who: two.world.folder(name) for who, name in two.folders.items()}
    )
    try:
        told = await two.alice.send(two.bob, TEXT, files=[str(file)])
    except (EligibilityDenied, EligibilityUnverified) as refusal:
        told = refusal
    if point not in LATE:
        await two.race.over()
    if isinstance(told, dict) and told["status"] == "accepted":
        assert [row.message_id for row in await two.bob.incoming()] == [told["message_id"]]
    return told


async def ended(two: Two) -> None:
    """Check what holds after every race: each commit by its evidence, and each status by what is stored."""
    await two.race.over()
    assert all(one.said == ALLOWED for one in two.race.commits), two.race.commits
    rows = {row.message_id: row.receipt.state for row in await two.bob.incoming()}
    for row in await two.alice.outgoing():
        told = (await two.alice.ask("status", message_id=row.message_id))["state"]
        there = rows.get(row.message_id)
        assert (
            told in {"pending", "rejected"}
            if there is None
            else (told == "rejected") == (there == "rejected")
        )


def stage(point: str) -> str:
    stages = {"submission": SUBMISSION, "acceptance": ACCEPTANCE, "delivery": DELIVERY, "late": LATE}
    return next(name for name, points in stages.items() if point in points)


@pytest.mark.parametrize(("change", "point"), DENIED_AT)
async def test_what_is_denied_at_its_next_verdict_passes_no_further(two, life, tmp_path, change, point):
    free = change == "created"
    await two.begin(life, free=free)

    told = await sent(two, change, point, tmp_path)

    at = stage(point)
    passed = [Committed(what, ALLOWED) for what in ("outbox", "inbox", "handover")]
    if at == "submission":
        assert isinstance(told, EligibilityDenied)
        assert await two.alice.outgoing() == []
        assert two.race.commits == []
    else:
        (row,) = await two.alice.outgoing()
        if at == "acceptance":
            await two.alice.until_state(row.message_id, "rejected")
            assert isinstance(told, EligibilityDenied) or told["status"] in {"queued", "rejected"}
            assert await two.bob.incoming() == []
        else:
            await two.alice.until_state(row.message_id, "accepted")
        read = await two.bob.texts()
        assert read == ([TEXT] if at == "late" else [])
        assert two.race.commits == passed[: ("acceptance", "delivery", "late").index(at) + 1]
        if at == "delivery":
            await two.alice.until_state(row.message_id, "rejected")
            (kept,) = await two.bob.incoming()
            assert (kept.receipt.outcome, kept.handovers) == ("ELIGIBILITY_DENIED", 0)
    await ended(two)


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("change", UNSURE)
async def test_what_cannot_be_verified_waits_until_it_can_and_is_not_lost(two, life, tmp_path, change, point):
    await two.begin(life, free=False)

    told = await sent(two, change, point, tmp_path)

    at = stage(point)
    if at == "submission":
        assert isinstance(told, EligibilityUnverified)
        assert await two.alice.outgoing() == []
        await two.mended()
        told = await two.alice.send(two.bob, TEXT)
    (row,) = await two.alice.outgoing()
    if at == "acceptance":
        assert await two.bob.incoming() == []
        assert await two.alice.state(row.message_id) == "pending"
        assert isinstance(told, dict)
        assert told["status"] == "queued"
        await two.mended()
    await two.alice.until_state(row.message_id, "accepted")
    if at == "delivery":
        assert await two.bob.texts() == []
        assert [one.receipt.state for one in await two.bob.incoming()] == ["accepted"]
        await two.mended()
        assert await two.bob.texts(wait_ms=20_000) == [TEXT]
    else:
        assert await two.bob.texts() == [TEXT]
    assert [one.what for one in two.race.commits] == ["outbox", "inbox", "handover"]
    await ended(two)
