"""A coordinator killed at every named instant of a message's life, on either side, and the story goes on."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from herd.mail.steps import (
    BODIES_AFTER,
    BODIES_BEFORE,
    COMMIT_AFTER,
    COMMIT_BEFORE,
    EVIDENCE_BEFORE,
    HANDOVER_BEFORE,
    INBOX_AFTER,
    INBOX_BEFORE,
    OFFER_AFTER,
    OUTBOX_AFTER,
    OUTBOX_BEFORE,
    RECEIPT_BEFORE,
    RUN_END_AFTER,
    RUN_END_BEFORE,
    SEVERAL_SENT_AFTER,
    SEVERAL_SENT_BEFORE,
    SEVERAL_TAKEN_AFTER,
    SEVERAL_TAKEN_BEFORE,
    STEPS,
)
from tests.fakes.records import layout_at
from tests.faults.forks import Forks
from tests.faults.session import Way
from tests.faults.story import Story, begun

Tell = Callable[[Story], Awaitable[None]]

AT_ONCE = Way(curious=True, late=False, forgetful=False)
LATE = Way(curious=False, late=True, forgetful=True)
SIDES = ("alice", "bob")
PASSINGS = (1, 2)
PERSISTS = (OUTBOX_BEFORE, INBOX_BEFORE, RECEIPT_BEFORE, HANDOVER_BEFORE, EVIDENCE_BEFORE, OFFER_AFTER)
"""The step behind which each kind of row is committed next."""
SEVERAL = (SEVERAL_SENT_BEFORE, SEVERAL_SENT_AFTER, SEVERAL_TAKEN_BEFORE, SEVERAL_TAKEN_AFTER)
"""The steps that only messages take which wait for others and go with them."""
OF_BODIES = (BODIES_BEFORE, BODIES_AFTER)
"""The steps that only a message takes whose text does not fit into its envelope."""
OF_RUNS = (RUN_END_BEFORE, RUN_END_AFTER)
"""The steps of a run's end, at which a run dies with its process: see the tests of child runs."""
ALONE = tuple(step for step in STEPS if step not in SEVERAL + OF_BODIES + OF_RUNS)


async def killed(
    forks: Forks, folder: Path, way: Way, side: str, *, tell: Tell = Story.one_by_one, **fate: Any
) -> None:
    """Tell a story in which one process is killed, and find that it was."""
    log = folder / "steps"
    fates = {f"fate_of_{side}": {"log": str(log), **fate}}
    async with begun(layout_at(folder), forks, way, **fates) as story:
        await tell(story)
    dead = {"alice": story.alice, "bob": story.bob}[side]
    assert dead.life == 2, f"the step was not passed: {log.read_text(encoding='utf-8').split()}"


@pytest.mark.timeout(180)
@pytest.mark.requirement("A-custody-01", "A-custody-13", "A-custody-14", "A-custody-15", "A-custody-21")
@pytest.mark.parametrize(
    "way", [AT_ONCE, LATE], ids=["asked-and-started-at-once", "unasked-and-started-late"]
)
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("step", ALONE)
async def test_whoever_dies_at_a_step_costs_no_message_and_makes_no_status_untrue(
    forks: Forks, folder: Path, step: str, side: str, way: Way
):
    for nth in PASSINGS if way is AT_ONCE else PASSINGS[:1]:
        await killed(forks, folder / str(nth), way, side, at=step, nth=nth)


@pytest.mark.timeout(180)
@pytest.mark.requirement("A-custody-21")
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("step", ALONE)
async def test_whoever_dies_at_a_step_while_several_messages_are_on_their_way_keeps_their_order(
    forks: Forks, folder: Path, step: str, side: str
):
    await killed(forks, folder / "machine", LATE, side, tell=Story.together, at=step)


@pytest.mark.timeout(180)
@pytest.mark.requirement("A-custody-01", "A-custody-08", "A-custody-21")
@pytest.mark.parametrize(
    "way", [AT_ONCE, LATE], ids=["asked-and-started-at-once", "unasked-and-started-late"]
)
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("step", SEVERAL)
async def test_whoever_dies_while_several_messages_go_in_one_request_costs_none_and_keeps_their_order(
    forks: Forks, folder: Path, step: str, side: str, way: Way
):
    await killed(forks, folder / "machine", way, side, tell=Story.crowded, at=step)


@pytest.mark.timeout(180)
@pytest.mark.requirement("A-custody-21")
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("at", [COMMIT_BEFORE, COMMIT_AFTER])
@pytest.mark.parametrize("persist", [SEVERAL_TAKEN_BEFORE, SEVERAL_SENT_AFTER])
async def test_whoever_dies_around_the_commit_of_several_has_all_of_them_or_none(
    forks: Forks, folder: Path, persist: str, at: str, side: str
):
    await killed(forks, folder / "machine", LATE, side, tell=Story.crowded, at=at, behind=persist)


@pytest.mark.timeout(180)
@pytest.mark.requirement("A-custody-21")
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("at", [COMMIT_BEFORE, COMMIT_AFTER])
@pytest.mark.parametrize("persist", PERSISTS)
async def test_whoever_dies_around_the_commit_of_a_row_has_it_or_has_it_not_and_knows_which(
    forks: Forks, folder: Path, persist: str, at: str, side: str
):
    await killed(forks, folder / "machine", LATE, side, tell=Story.together, at=at, behind=persist)


@pytest.mark.timeout(180)
@pytest.mark.requirement("A-custody-01", "A-custody-21", "H-files-12")
@pytest.mark.parametrize("way", [AT_ONCE, LATE], ids=["at-once", "late"])
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("step", [*OF_BODIES, OUTBOX_BEFORE, OUTBOX_AFTER, INBOX_BEFORE, INBOX_AFTER])
async def test_whoever_dies_around_a_body_costs_no_text_and_leaves_no_part_of_one(
    forks: Forks, folder: Path, step: str, side: str, way: Way
):
    await killed(forks, folder / "machine", way, side, tell=Story.long, at=step)


@pytest.mark.timeout(180)
@pytest.mark.requirement("A-custody-21", "H-files-12")
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("at", [COMMIT_BEFORE, COMMIT_AFTER])
@pytest.mark.parametrize("persist", [OUTBOX_BEFORE, INBOX_BEFORE, RECEIPT_BEFORE, HANDOVER_BEFORE])
async def test_a_body_is_there_with_its_row_and_gone_without_it_wherever_a_commit_is_cut(
    forks: Forks, folder: Path, persist: str, at: str, side: str
):
    await killed(forks, folder / "machine", LATE, side, tell=Story.long, at=at, behind=persist)
