"""A recipient that is replaced at a chosen instant of a send, and a record that is being rewritten at one.

A replacement is no change of authority, so no lock keeps it out between a verdict and its commit. Whoever
accepts, and whoever delivers, judges by what the recipient is by then.
"""

import asyncio
import json
import threading
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from assignments import store
from assignments.steps import WRITE_AFTER, WRITE_BEFORE
from assignments.worktrees import fresh
from herd.coordinator import topologies
from herd.core.clock import SystemClock
from herd.core.errors import EligibilityDenied
from tests.fakes.assignments import lock_of
from tests.fakes.authority import ELSEWHERE, HERE, World
from tests.fakes.coordinators import IN_TIME_S
from tests.fakes.races import Race
from tests.fakes.records import layout_at, put, session_of
from tests.fakes.said import ALLOWED

ALICE, BOB, CAROL = session_of(1), session_of(2, "pi"), session_of(3, "codex")
TEXT = "a text that has to come once"
BEFORE_ITS_VERDICT = ("resolved", "attachments read")
ON_ITS_WAY = ("outbox.commit.before", "outbox.commit.after", "carried")


@pytest.fixture(autouse=True)
def _patient(monkeypatch, blockbuster):
    for function in blockbuster.functions.values():  # the loop stands still while the change begins
        function.can_block_in("tests/fakes/races.py", {"_begins", "_committed"})
    monkeypatch.setattr(fresh, "TOPOLOGY_WAIT_S", IN_TIME_S)
    for module in (fresh, topologies):
        monkeypatch.setattr(module, "TOPOLOGY_FRESH_S", IN_TIME_S)


class Replaced:
    """An assigned Lead that writes, and an ordinary one of its group, whose place may change."""

    def __init__(self, world: World, life: AsyncExitStack) -> None:
        self.world, self.life = world, life
        self.race = Race(world.layout, {"sender": ALICE, "recipient": BOB})
        self.loop = asyncio.get_running_loop()
        self.bobs = AsyncExitStack()
        self.bob = None

    async def lead(self, who, session, folder, stack, place=HERE, **chosen):
        self.race.folders[who] = self.world.folder(folder)
        groups = self.race.groups(who, self.world.groups)
        seams = {"step": self.race.step(who), "judge": self.race.judge(who), "groups": groups}
        given = {**seams, "clock": SystemClock(), **chosen}
        return await stack.enter_async_context(self.world.lead(session, folder, place, **given))

    async def begin(self) -> None:
        await self.world.assign(ALICE, "fix")
        self.life.push_async_callback(self.sleeps)
        self.bob = await self.lead("recipient", BOB, "shop", self.bobs)
        self.alice = await self.lead("sender", ALICE, "shop-fix", self.life, kind="managed")
        await self.alice.sees(self.bob)
        sending, carrier = self.alice.coordinator.sending, self.alice.coordinator.carrier
        sending._resolved = self.race.hook("resolved", sending._resolved)
        sending._drafting._attached = self.race.hook("attachments read", sending._drafting._attached)
        carry = carrier.carry

        async def carried(message):
            await asyncio.to_thread(self.race.at, "carried")
            return await carry(message)

        carrier.carry = carried

    async def sleeps(self) -> None:
        self.bob = None
        await self.bobs.aclose()

    async def restarts(self, folder="shop", place=HERE) -> None:
        await self.sleeps()
        self.bob = await self.lead("recipient", BOB, folder, self.bobs, place)

    async def restarts_managed(self) -> None:
        await self.sleeps()
        await self.becomes_managed()
        self.bob = await self.lead("recipient", BOB, "shop", self.bobs)

    async def becomes_managed(self) -> None:
        """Write another kind, as somebody does who asks for no lock."""
        path = self.world.layout.session_file(BOB.key)

        def write() -> None:
            shape = json.loads(Path(path).read_bytes())
            put(path, json.dumps({**shape, "kind": "managed"}).encode())

        await asyncio.to_thread(write)

    def change(self, name: str):
        replacing = {
            "again": self.restarts,
            "in another group": lambda: self.restarts("blog"),
            "in no group": lambda: self.restarts("nowhere"),
            "on another socket": lambda: self.restarts(place=ELSEWHERE),
            "as a managed one": self.restarts_managed,
        }[name]
        return lambda _: asyncio.run_coroutine_threadsafe(replacing(), self.loop).result(IN_TIME_S)


@pytest.fixture
async def two(home, tmp_path):
    async with AsyncExitStack() as life:
        two = Replaced(World(layout_at(home), tmp_path), life)
        await two.begin()
        yield two


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "note.txt"
    path.write_text("x" * 1_000, encoding="utf-8")
    return str(path)


@pytest.mark.parametrize("point", [*BEFORE_ITS_VERDICT, *ON_ITS_WAY, "accepted"])
@pytest.mark.parametrize(
    "how", ["again", "in another group", "in no group", "on another socket", "as a managed one"]
)
async def test_a_recipient_that_was_replaced_is_judged_as_what_it_is_by_then(two, file, how, point):
    two.race.arm(point, two.change(how), two.race.folders)
    refusal = None
    try:
        told = await two.alice.send(two.bob, TEXT, files=[file])
    except EligibilityDenied as fault:
        refusal = fault
    if point == "accepted":
        await two.alice.until_state(told["message_id"], "accepted")
        await asyncio.to_thread(two.race.at, point)
    await two.race.over()

    rows = await two.alice.outgoing()
    if how != "again" and point in BEFORE_ITS_VERDICT:
        assert refusal is not None
        assert rows == []
        assert await two.bob.texts() == []
        return
    (row,) = rows
    if how == "again":
        assert refusal is None
        await two.alice.until_state(row.message_id, "accepted")
        assert await two.bob.texts() == [TEXT]
    else:
        assert refusal is None or point in ON_ITS_WAY
        assert await two.bob.texts(wait_ms=0) == []
        await two.alice.until_state(row.message_id, "rejected")
        assert await two.bob.texts() == []
        assert [one.receipt.state for one in await two.bob.incoming()] == ["rejected"] * (point == "accepted")
        assert all(one.handovers == 0 for one in await two.bob.incoming())
        status = await two.alice.ask("status", message_id=row.message_id)
        assert (status["state"], status["outcome"]) == ("rejected", "ELIGIBILITY_DENIED")
    judged = [one for one in two.race.commits if one.what != "outbox"]
    assert all(one.said == ALLOWED for one in judged), judged


@pytest.mark.parametrize("point", [*BEFORE_ITS_VERDICT, *ON_ITS_WAY])
async def test_a_kind_that_changes_while_the_recipient_sleeps_counts_at_the_next_verdict(two, file, point):
    target = two.bob.target
    await two.sleeps()
    changing = two.becomes_managed
    two.race.arm(
        point,
        lambda _: asyncio.run_coroutine_threadsafe(changing(), two.loop).result(IN_TIME_S),
        two.race.folders,
    )
    refusal = None
    try:
        await two.alice.send(target, TEXT, files=[file])
    except EligibilityDenied as fault:
        refusal = fault
    await two.race.over()

    rows = await two.alice.outgoing()
    if point in BEFORE_ITS_VERDICT:
        assert refusal is not None
        assert rows == []
    else:
        (row,) = rows
        await two.alice.until_state(row.message_id, "rejected")
    await two.restarts()
    assert await two.bob.incoming() == []
    assert await two.bob.texts() == []


REWRITING = (WRITE_BEFORE, "written", "synced", "renamed", "folder_synced", WRITE_AFTER)


class Rewriting:
    """A record that somebody else's writes over, and who stops in the middle of it."""

    def __init__(self, two: Replaced, at: str) -> None:
        self._layout = two.world.layout
        self._record = two.world.assignment(ALICE, "fix")._replace(session=CAROL)
        self._at = at
        self._stopped, self._goes_on = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._write)

    def begin(self, _: float = 0) -> None:
        self._thread.start()
        assert self._stopped.wait(IN_TIME_S)

    def end(self) -> None:
        self._goes_on.set()
        self._thread.join(IN_TIME_S)

    def _write(self) -> None:
        with lock_of(self._layout).exclusive(IN_TIME_S) as hold:
            store.write(self._layout, hold, self._record, self._step)

    def _step(self, step: str) -> None:
        if step == self._at:
            self._stopped.set()
            assert self._goes_on.wait(IN_TIME_S)


@pytest.mark.parametrize("at", REWRITING)
@pytest.mark.parametrize("moment", ["submission", "acceptance", "delivery"])
async def test_while_a_record_is_rewritten_nobody_judges_and_then_everybody_by_the_new_one(
    two, file, at, moment
):
    rewriting = Rewriting(two, at)
    asker = two.alice if moment == "submission" else two.bob
    waits, waited = asyncio.Event(), asker.coordinator.authority._waited

    async def waiting():
        waits.set()
        return await waited()

    asker.coordinator.authority._waited = waiting
    if moment == "acceptance":
        two.race.arm("message.send.before", rewriting.begin, two.race.folders)
    else:
        two.race.arm("never", rewriting.begin, two.race.folders)
    if moment == "submission":
        await asyncio.to_thread(rewriting.begin)
    if moment == "delivery":
        sent = await two.alice.send(two.bob, TEXT, files=[file])
        await two.alice.until_state(sent["message_id"], "accepted")
        await asyncio.to_thread(rewriting.begin)
        doing = asyncio.ensure_future(two.bob.texts())
    else:
        doing = asyncio.ensure_future(two.alice.send(two.bob, TEXT, files=[file]))
    async with asyncio.timeout(IN_TIME_S):
        await waits.wait()
    judged = [one for one in two.race.passed if one.endswith("verdict")]
    before = {"submission": 0, "acceptance": 1, "delivery": len(judged)}[moment]
    assert len(judged) == before
    await asyncio.to_thread(rewriting.end)

    if moment == "submission":
        with pytest.raises(EligibilityDenied):
            await doing
        assert await two.alice.outgoing() == []
    else:
        await asyncio.wait([doing])
        if moment == "delivery":
            assert doing.result() == []
        (row,) = await two.alice.outgoing()
        await two.alice.until_state(row.message_id, "rejected")
    assert await two.bob.texts() == []
    assert all(one.said == ALLOWED for one in two.race.commits), two.race.commits
