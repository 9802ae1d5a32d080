"""Verdicts that rest on what git, or Herdr, says of real checkouts at that very moment."""

import asyncio
import os
import shutil
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from assignments.worktrees import fresh, git_groups, herdr, running
from assignments.worktrees.git import GitTopology
from assignments.worktrees.git_groups import GitGroups, GitInventories
from assignments.worktrees.herdr_fake import FakeHerdr
from assignments.worktrees.source import groups_at
from herd.core.config import Place
from herd.core.errors import EligibilityDenied, EligibilityUnverified
from herd.core.limits import SUBPROCESS_S
from tests.fakes.authority import World
from tests.fakes.coordinators import IN_TIME_S, until
from tests.fakes.group_world import GroupWorld
from tests.fakes.records import ALICE, BOB, CAROL, layout_at


@pytest.fixture(autouse=True)
def _patient(monkeypatch):
    for module in (git_groups, herdr, running):
        monkeypatch.setattr(module, "SUBPROCESS_S", IN_TIME_S)
    monkeypatch.setattr(fresh, "TOPOLOGY_WAIT_S", IN_TIME_S)
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


_TELLING = """#!/bin/sh
env >{folder}/env.$$
printf '%s\\n' "$*" >{folder}/words.$$
if [ -e {folder}/hangs ]; then exec sleep 600; fi
exec {git} "$@"
"""


class Telling:
    """A git that tells what it was given, and hangs from a moment on."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        program = folder / "git"
        program.write_text(_TELLING.format(folder=folder, git=shutil.which("git")), "utf-8")
        program.chmod(0o755)
        self.environ = {
            "PATH": f"{folder}:{os.environ['PATH']}",
            "GIT_DIR": "/nowhere",
            "GIT_CONFIG_COUNT": "1",
            "GIT_TERMINAL_PROMPT": "1",
        }

    def told(self, what: str) -> list[str]:
        return [path.read_text("utf-8") for path in self.folder.glob(f"{what}.*")]

    def hangs(self) -> None:
        (self.folder / "hangs").touch()


@pytest.mark.requirement("H-eligib-20")
async def test_every_git_is_safe_and_one_that_hangs_is_given_up_as_unverified(home, tmp_path, monkeypatch):
    for name in ("real", "bin"):
        (tmp_path / name).mkdir()
    checkouts = await asyncio.to_thread(GroupWorld, tmp_path / "real")
    telling = await asyncio.to_thread(Telling, tmp_path / "bin")
    world, repo = World(layout_at(home), tmp_path / "unused"), f"{checkouts.main}/.git"
    await world.assign(ALICE, "cart", socket="none", repo=repo)
    async with AsyncExitStack() as life:

        async def lead(session, name):
            given = {"groups": GitGroups(telling.environ), "cwd": str(checkouts.place / name)}
            given |= {"place": Place("none"), "topology": GitTopology(telling.environ)}
            return await life.enter_async_context(world.lead(session, "shop", **given))

        alice, bob = await lead(ALICE, "linked"), await lead(BOB, "shop")
        await alice.sees(bob)
        await GitInventories(telling.environ).inventory(repo)
        await asyncio.to_thread(telling.hangs)
        assert SUBPROCESS_S == 2
        for module in (git_groups, herdr, running):
            monkeypatch.setattr(module, "SUBPROCESS_S", SUBPROCESS_S)
        for one in (alice, bob):
            one.coordinator.authority._topologies._fresh._known.clear()

        with pytest.raises(EligibilityUnverified, match="git did not") as refused:
            await alice.send(bob)
        assert "`git worktree list`" in refused.value.next_step
        assert "doctor" not in refused.value.next_step
        assert await alice.outgoing() == []

    for words in await asyncio.to_thread(telling.told, "words"):
        assert words.startswith("-c core.fsmonitor=false -c core.hooksPath=/dev/null ")
    of_git = [line for text in await asyncio.to_thread(telling.told, "env") for line in text.splitlines()]
    assert {line for line in of_git if line.startswith("GIT_")} == {
        "GIT_TERMINAL_PROMPT=0",
        "GIT_OPTIONAL_LOCKS=0",
    }


@pytest.mark.requirement("H-eligib-20")
def test_git_is_started_in_one_place():
    root = Path(running.__file__).parents[2]
    starting = {
        str(path.relative_to(root))
        for package in ("assignments", "roles", "federation", "herd/coordinator", "herd/mail", "herd/core")
        for path in (root / package).rglob("*.py")
        if any(word in path.read_text("utf-8") for word in ("create_subprocess", "Popen", "subprocess.run"))
    }
    assert starting == {"assignments/worktrees/running.py"}
