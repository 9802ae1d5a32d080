"""Verdicts that rest on what git, or Herdr, says of real checkouts at that very moment."""

import os
import shutil
import tempfile
from contextlib import AsyncExitStack

import pytest

from assignments.worktrees import fresh, git_groups, herdr, running
from assignments.worktrees.herdr_fake import FakeHerdr
from assignments.worktrees.source import groups_at
from herd.core.config import Place
from herd.core.errors import EligibilityDenied, EligibilityUnverified
from tests.fakes.authority import World
from tests.fakes.coordinators import IN_TIME_S, until
from tests.fakes.group_world import GroupWorld
from tests.fakes.records import ALICE, BOB, CAROL, layout_at


@pytest.fixture(autouse=True)
def _patient(monkeypatch):
    for module in (git_groups, herdr, running, fresh):
        monkeypatch.setattr(module, "SUBPROCESS_S", IN_TIME_S)
    monkeypatch.setattr(fresh, "TOPOLOGY_FRESH_S", IN_TIME_S)


@pytest.fixture(params=["git", "herdr"])
async def leads(request, home, tmp_path):
    """An assigned Lead in a linked worktree, one in the primary checkout, one in a clone, on one socket."""
    layout = layout_at(home)
    (tmp_path / "real").mkdir()
    checkouts = GroupWorld(tmp_path / "real")
    world = World(layout, tmp_path / "unused")
    async with AsyncExitStack() as life:
        socket = "none"
        if request.param == "herdr":
            folder = life.enter_context(tempfile.TemporaryDirectory(prefix="herdr-", dir="/tmp"))
            socket = f"{folder}/herdr.sock"
            await life.enter_async_context(FakeHerdr(socket, checkouts.herdr()))
        await world.assign(ALICE, "cart", socket=socket, repo=f"{checkouts.main}/.git")
        groups = groups_at(socket, {"PATH": os.environ["PATH"]})

        async def lead(session, name):
            given = {"groups": groups, "cwd": str(checkouts.place / name), "place": Place(socket)}
            return await life.enter_async_context(world.lead(session, "shop", **given))

        yield checkouts, await lead(ALICE, "linked"), await lead(BOB, "shop"), await lead(CAROL, "clone")


@pytest.mark.requirement("H-eligib-14")
async def test_a_peer_on_the_same_socket_is_in_the_group_by_what_the_source_says_now(leads):
    checkouts, alice, bob, carol = leads
    await alice.sees(bob)
    assert {peer["target"] for peer in (await alice.ask("list"))["peers"]} == {bob.target}
    assert {peer["target"] for peer in (await carol.ask("list"))["peers"]} == {bob.target}
    assert (await alice.send(bob))["status"] == "accepted"
    await until(lambda: bob.presence().group == f"{checkouts.main}/.git")
    for one in (alice, bob):
        one.coordinator.authority._topologies._fresh._known.clear()
    shutil.move(checkouts.main / ".git", checkouts.place / "elsewhere")

    # Its record still says so, which counts for nothing here.
    assert bob.presence().group == f"{checkouts.main}/.git"
    assert (await alice.ask("list"))["peers"] == []
    with pytest.raises((EligibilityUnverified, EligibilityDenied)):
        await alice.send(bob)
