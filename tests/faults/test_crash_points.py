"""A coordinator killed at every named instant of a message's life, on either side, and the story goes on."""

from pathlib import Path

import pytest

from herd.mail.steps import STEPS
from tests.fakes.records import layout_at
from tests.faults.forks import Forks
from tests.faults.session import Way
from tests.faults.story import begun

WAYS = (Way(curious=True, late=False, forgetful=False), Way(curious=False, late=True, forgetful=True))
SIDES = ("alice", "bob")
PASSINGS = (1, 2, 3)


async def killed(forks: Forks, folder: Path, way: Way, side: str, shape: str = "one_by_one", **fate):
    """Tell a story in which one process is killed, and find that it was."""
    log = folder / "steps"
    fates = {f"fate_of_{side}": {"log": str(log), **fate}}
    async with begun(layout_at(folder), forks, way, **fates) as story:
        await getattr(story, shape)()
    session = {"alice": story.alice, "bob": story.bob}[side]
    assert session.life == 2, f"the step was not passed: {log.read_text(encoding='utf-8').split()}"


@pytest.mark.timeout(180)
@pytest.mark.requirement("A-custody-21")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("step", STEPS)
async def test_whoever_dies_at_a_step_costs_no_message_and_makes_no_status_untrue(
    forks: Forks, folder: Path, step: str, side: str, way: Way
):
    for nth in PASSINGS:
        await killed(forks, folder / str(nth), way, side, at=step, nth=nth)
