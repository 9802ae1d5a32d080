"""For how long a verdict may rest on what was read of a worktree group, and what happens without it."""

import pytest

from assignments.evidence import Held, Scan
from assignments.worktrees.groups import Grouped, Unproven
from herd.coordinator.authority import Authority
from herd.coordinator.evidence import Evidence, Gathering
from herd.coordinator.topologies import NotFresh, Topologies
from herd.core.clock import FakeClock
from roles.eligibility import Leads
from roles.model import Allowed, Denied, Folder, Party, Unverified
from tests.fakes.assignments import assigned, assignment_of
from tests.fakes.authority import Memory
from tests.fakes.records import ALICE, layout_at

HERE, SHOP = "/run/herdr.sock", "/src/shop/.git"
MINE, THEIRS = Folder("/src/shop"), Folder("/src/fix", "w1")
ME = Party("1" * 64, "lead", "managed", socket=HERE, folder=MINE)
PEER = Party("2" * 64, "lead", "ordinary", socket=HERE, folder=THEIRS)
SCAN = Scan({ME.key: (Held(HERE, SHOP, "fix"),)})


@pytest.fixture
def memory():
    groups = Memory()
    groups.known = {MINE.cwd: Grouped(SHOP), THEIRS.cwd: Grouped(SHOP)}
    return groups


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
async def topologies(memory, clock):
    one = Topologies(memory, clock)
    yield one
    await one.close()


@pytest.mark.requirement("H-eligib-21")
async def test_what_was_read_serves_for_two_seconds_and_not_a_moment_longer(topologies, clock):
    evidence = Evidence(Leads(), SCAN, topologies)
    with pytest.raises(NotFresh) as lacking:
        evidence.verdict(ME, PEER)
    assert list(lacking.value.folders) == [MINE, THEIRS]

    await topologies.refresh(lacking.value.folders)
    assert evidence.verdict(ME, PEER) == Allowed()
    clock.advance(2)
    assert evidence.verdict(ME, PEER) == Allowed()
    clock.advance(0.001)
    with pytest.raises(NotFresh):
        evidence.verdict(ME, PEER)


async def test_a_source_that_proves_nothing_is_not_asked_again_at_once(topologies, memory, clock):
    evidence = Evidence(Leads(), SCAN, topologies)
    memory.known[THEIRS.cwd] = Unproven("it hangs")
    await topologies.refresh([MINE, THEIRS])

    found = evidence.verdict(ME, PEER)
    assert isinstance(found, Unverified)
    assert "it hangs" in found.reason
    clock.advance(2.001)
    with pytest.raises(NotFresh):
        evidence.verdict(ME, PEER)


async def test_a_machine_too_slow_to_judge_by_what_it_read_puts_off_and_refuses_nothing(memory, clock, home):
    layout = layout_at(home)
    me = ME._replace(key=ALICE.key)
    assigned(layout, assignment_of(session=ALICE, socket=HERE, repo=SHOP))
    authority = Authority(layout, Leads(), memory, clock=clock)

    async def slow():
        with await authority.hold() as ruling:
            clock.advance(2.5)
            return ruling.verdict(me, PEER)

    found = await authority.fresh(slow)
    await authority.close()

    assert isinstance(found, Unverified)
    assert "is not proven" in found.reason


async def test_who_judges_many_gathers_all_that_is_lacking(topologies):
    gathering = Gathering(Evidence(Leads(), SCAN, topologies))
    third = PEER._replace(key="3" * 64, folder=Folder("/src/more"))

    for peer in (PEER, third):
        assert isinstance(gathering.verdict(ME, peer), Unverified)
    assert set(gathering.lacking) == {MINE, THEIRS, Folder("/src/more")}


async def test_a_verdict_that_no_group_can_change_asks_for_none(topologies):
    evidence = Evidence(Leads(), Scan({}), topologies)
    free = ME._replace(kind="ordinary")

    assert evidence.verdict(free, PEER) == Allowed()
    assert isinstance(evidence.verdict(ME, PEER), Denied)
    assert not isinstance(
        Evidence(Leads(), SCAN, topologies).verdict(ME, PEER._replace(socket="none")), Allowed
    )
