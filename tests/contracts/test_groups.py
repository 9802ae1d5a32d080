"""What everyone who tells worktree groups answers, and what git's and Herdr's must survive besides."""

import asyncio
import json
import os
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from assignments.worktrees import git_groups, herdr, running
from assignments.worktrees.fresh import FreshGroups
from assignments.worktrees.git_groups import GitGroups
from assignments.worktrees.groups import Grouped, Groups, Ungrouped, Unproven
from assignments.worktrees.groups_fake import FakeGroups
from assignments.worktrees.herdr import HerdrGroups
from assignments.worktrees.herdr_fake import FakeHerdr
from assignments.worktrees.herdr_fake_world import Workspace
from assignments.worktrees.source import groups_at
from herd.core.clock import FakeClock
from tests.fakes.coordinators import IN_TIME_S
from tests.fakes.group_world import GroupWorld
from tests.fakes.hanging import Hanging

_PATH = {"PATH": os.environ["PATH"]}


@pytest.fixture(autouse=True)
def _patient(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give whoever is asked all the time that a busy machine needs, where it is not to hang."""
    if "hangs" not in request.node.name:
        for module in (git_groups, herdr, running):
            monkeypatch.setattr(module, "SUBPROCESS_S", IN_TIME_S)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> GroupWorld:
    """Checkouts that no test changes."""
    return GroupWorld(tmp_path_factory.mktemp("world"))


@pytest.fixture
def socket_path() -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="herdr-", dir="/tmp") as folder:
        yield f"{folder}/herdr.sock"


@pytest.fixture(params=["git", "herdr", "fake"])
async def groups(
    request: pytest.FixtureRequest, world: GroupWorld, socket_path: str
) -> AsyncIterator[Groups]:
    async with AsyncExitStack() as stack:
        if request.param == "git":
            yield GitGroups(_PATH)
        elif request.param == "fake":
            yield FakeGroups(world.known())
        else:
            await stack.enter_async_context(FakeHerdr(socket_path, world.herdr()))
            yield HerdrGroups(socket_path)


def test_the_world_has_folders_of_every_kind(world):
    kinds = {type(one) for one in world.expected.values()}

    assert kinds == {Grouped, Ungrouped, Unproven}


class TestEvery:
    @pytest.mark.requirement("H-eligib-18")
    async def test_a_primary_checkout_its_linked_worktrees_and_symlinks_into_them_are_one_group(
        self, groups, world
    ):
        inside = ("shop", "shop/src", "linked", "linked/src", "s", "s/src", "to-src", "detached", "locked")

        found = {await groups.membership(str(world.place / one)) for one in inside}

        assert found == {Grouped(f"{world.main}/.git")}

    @pytest.mark.requirement("H-eligib-18")
    async def test_a_nested_repository_and_a_second_clone_are_groups_of_their_own(self, groups, world):
        others = ("shop", "shop/vendor/x", "clone", "clone/part", "out")

        found = {await groups.membership(str(world.place / one)) for one in others}

        assert found == {world.expected[one] for one in others}
        assert len(found) == len(others)

    async def test_a_folder_in_no_checkout_is_certainly_in_no_group(self, groups, world):
        for name in ("plain", "plain/deep"):
            assert isinstance(await groups.membership(str(world.place / name)), Ungrouped)

    @pytest.mark.requirement("H-eligib-19")
    async def test_a_git_file_that_is_forged_or_no_longer_led_back_to_proves_nothing(self, groups, world):
        names = [name for name in world.expected if name.startswith(("forged", "moved"))]
        assert len(names) == 5

        for name in names:
            assert isinstance(await groups.membership(str(world.place / name)), Unproven), name

    @pytest.mark.parametrize("name", ["absent", "gone", "with\0nul", "shop/hidden.git", "shop/.git/HEAD"])
    async def test_what_is_no_folder_or_a_repository_without_a_checkout_proves_nothing(
        self, groups, world, name
    ):
        if name == "shop/.git/HEAD" and isinstance(groups, FakeGroups):
            return  # it knows folders alone

        found = await groups.membership(f"{world.place}/{name}")

        assert isinstance(found, Unproven)
        assert found.reason


class Source:
    """A source that a test spoils; the folder it is asked about is a checkout all the same."""

    def __init__(self, way: str, world: GroupWorld, folder: Path, herdr: FakeHerdr) -> None:
        self.way = way
        self._world = world
        self._folder = folder
        self._herdr = herdr
        self.groups: Groups = HerdrGroups(f"{folder}/herdr.sock")
        if way == "git":
            self._program("exec sleep 600")
            self.groups = GitGroups({"PATH": f"{folder}:{os.environ['PATH']}"})

    def _program(self, line: str) -> None:
        (self._folder / "git").write_text(f"#!/bin/sh\n{line}\n", encoding="utf-8")
        (self._folder / "git").chmod(0o755)

    async def whole(self) -> bytes:
        """Give the answer that it would give if it were not spoilt."""
        if self.way == "git":
            words = ("-C", str(self._world.main), "worktree", "list", "--porcelain", "-z")
            child = await asyncio.create_subprocess_exec("git", *words, stdout=asyncio.subprocess.PIPE)
            return (await child.communicate())[0]
        params = {"cwd": str(self._world.main)}
        result = await asyncio.to_thread(self._herdr.world.result, "worktree.list", params)
        return json.dumps({"id": "herd:worktree.list", "result": result}).encode() + b"\n"

    def hang(self) -> None:
        self._herdr.mute = {"worktree.list"}  # and git hangs from the start

    def fail(self) -> None:
        self._herdr.errors = {"worktree.list": "worktree_list_failed"}
        self._program("exit 128")

    def say(self, answer: bytes) -> None:
        self._herdr.answers = {"worktree.list": answer}
        (self._folder / "answer").write_bytes(answer)
        self._program(f"exec cat {self._folder}/answer")


@pytest.fixture(params=["git", "herdr"])
async def source(request: pytest.FixtureRequest, world: GroupWorld) -> AsyncIterator[Source]:
    with tempfile.TemporaryDirectory(prefix="herdr-", dir="/tmp") as folder:
        async with FakeHerdr(f"{folder}/herdr.sock", world.herdr()) as herdr:
            yield Source(request.param, world, Path(folder), herdr)


class TestSources:
    """Of a source that is not well, nothing is certain; and never that there is no group."""

    async def test_its_whole_answer_proves_the_group(self, source, world):
        source.say(await source.whole())

        assert await source.groups.membership(str(world.main)) == world.expected["shop"]

    async def test_one_that_hangs_is_given_up_after_the_bound(self, source, world):
        source.hang()

        found = await source.groups.membership(str(world.main))

        assert isinstance(found, Unproven)
        assert "within 2 s" in found.reason

    async def test_one_that_fails_says_so(self, source, world):
        source.fail()

        found = await source.groups.membership(str(world.main))

        assert isinstance(found, Unproven)
        assert "128" in found.reason or "worktree_list_failed" in found.reason

    async def test_every_part_of_an_answer_proves_nothing(self, source, world):
        whole = await source.whole()
        cuts = {0, 1, len(whole) // 3, len(whole) // 2, len(whole) - 2, len(whole) - 1}
        if source.way == "herdr":
            cuts.discard(len(whole) - 1)  # all but the newline: see its own decoder

        for cut in sorted(cuts):
            source.say(whole[:cut])
            assert isinstance(await source.groups.membership(str(world.main)), Unproven), cut

    @pytest.mark.parametrize("answer", [b"\0\0", b"{}\n", b"\xff\xfe\n", b"x" * 1_048_577, b"[1]\n\0\0"])
    async def test_what_is_no_answer_proves_nothing(self, source, world, answer):
        source.say(answer)

        assert isinstance(await source.groups.membership(str(world.main)), Unproven)

    async def test_the_answer_about_another_repository_proves_nothing(self, source, world):
        source.say(await source.whole())

        for name in ("clone", "shop/vendor/x", "out"):
            assert isinstance(await source.groups.membership(str(world.place / name)), Unproven)

    async def test_a_look_up_that_is_called_off_ends_at_once(self, source, world):
        source.hang()
        looking = asyncio.create_task(source.groups.membership(str(world.main)))
        await asyncio.sleep(0)
        looking.cancel()

        with pytest.raises(asyncio.CancelledError):
            await looking


class TestGit:
    async def test_it_is_not_run_for_a_folder_in_no_checkout(self, world):
        nowhere = GitGroups({"PATH": "/nowhere"})

        assert isinstance(await nowhere.membership(str(world.place / "plain")), Ungrouped)
        assert isinstance(await nowhere.membership(str(world.main)), Unproven)

    async def test_variables_of_git_lead_it_nowhere(self, world):
        git_of_shop = {"GIT_DIR": f"{world.main}/.git", "GIT_WORK_TREE": str(world.main)}
        misled = GitGroups({**_PATH, **git_of_shop, "GIT_COMMON_DIR": f"{world.main}/.git"})

        assert await misled.membership(str(world.place / "clone")) == world.expected["clone"]
        assert isinstance(await misled.membership(str(world.place / "plain")), Ungrouped)

    async def test_it_runs_without_hooks_monitors_prompts_and_variables_of_git(self, world, tmp_path):
        program = tmp_path / "git"
        program.write_text(f'#!/bin/sh\nenv >{tmp_path}/env\necho "$@" >{tmp_path}/words\nexit 1\n', "utf-8")
        program.chmod(0o755)
        told = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "GIT_DIR": "/d", "GIT_CONFIG_COUNT": "1"}

        await GitGroups(told).membership(str(world.main))

        of_git = {line for line in (tmp_path / "env").read_text("utf-8").splitlines() if "GIT_" in line}
        assert of_git == {"GIT_TERMINAL_PROMPT=0", "GIT_OPTIONAL_LOCKS=0"}
        words = (tmp_path / "words").read_text("utf-8")
        assert words.startswith("-c core.fsmonitor=false -c core.hooksPath=/dev/null worktree list")

    async def test_one_that_hangs_is_ended_with_what_it_started(self, world, tmp_path):
        hanging = Hanging(tmp_path)
        try:
            found = await GitGroups({"PATH": hanging.path}).membership(str(world.main))
            assert isinstance(found, Unproven)
            assert hanging.ended()
        finally:
            hanging.close()

    async def test_one_that_is_called_off_is_ended_with_what_it_started(self, world, tmp_path):
        hanging = Hanging(tmp_path)
        try:
            looking = asyncio.create_task(GitGroups({"PATH": hanging.path}).membership(str(world.main)))
            await hanging.begun()
            looking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await looking
            assert hanging.ended()
        finally:
            hanging.close()

    async def test_closing_the_memory_of_memberships_ends_the_git_that_hangs_for_it(self, world, tmp_path):
        hanging = Hanging(tmp_path)
        fresh = FreshGroups(GitGroups({"PATH": hanging.path}), FakeClock())
        try:
            asking = [asyncio.create_task(fresh.refresh([(str(world.main), None)])) for _ in range(2)]
            await hanging.begun()
            asking[0].cancel()
            await fresh.close()
            async with asyncio.timeout(IN_TIME_S):
                await asking[1]
            assert hanging.ended()
        finally:
            hanging.close()


class TestHerdr:
    """What the other sources do not have: workspaces, protocols and a socket."""

    @pytest.fixture
    async def served(self, world: GroupWorld, socket_path: str) -> AsyncIterator[FakeHerdr]:
        spaces = (
            Workspace("w1", str(world.main)),
            Workspace("w2", str(world.place / "s" / "src")),
            Workspace("w3", str(world.place / "clone")),
            Workspace("w4", str(world.place / "plain")),
        )
        async with FakeHerdr(socket_path, world.herdr(*spaces)) as one:
            yield one

    @pytest.fixture
    def asked(self, served: FakeHerdr, socket_path: str) -> HerdrGroups:
        return HerdrGroups(socket_path)

    async def test_a_workspace_of_the_group_that_has_the_folder_proves_it(self, asked, served, world):
        for workspace, folder in (("w1", "shop/src"), ("w2", "linked"), ("w2", "s"), ("w3", "clone")):
            assert await asked.membership(str(world.place / folder), workspace) == world.expected[folder]
        assert served.asked[:2] == [("ping", {}), ("worktree.list", {"workspace_id": "w1"})]

    async def test_a_workspace_of_another_group_than_the_folder_proves_nothing(self, asked, world):
        for workspace, folder in (("w3", "shop"), ("w1", "clone"), ("w1", "plain"), ("w9", "shop")):
            found = await asked.membership(str(world.place / folder), workspace)
            assert isinstance(found, Unproven), (workspace, folder)

    async def test_a_workspace_in_no_repository_is_certainly_in_no_group(self, asked, world):
        assert isinstance(await asked.membership(str(world.place / "plain"), "w4"), Ungrouped)

    async def test_the_asked_workspace_has_to_be_in_the_answer(self, asked, served, world):
        listed = await asyncio.to_thread(served.world.result, "worktree.list", {"workspace_id": "w1"})
        del listed["source"]["source_workspace_id"], listed["worktrees"][0]["open_workspace_id"]
        served.answers = {"worktree.list": _answer(listed)}

        found = await asked.membership(str(world.main), "w1")

        assert isinstance(found, Unproven)
        assert "w1" in found.reason

    @pytest.mark.parametrize("code", ["not_git_worktree", "workspace_not_found", "server_unavailable", "new"])
    async def test_no_error_about_a_folder_that_is_a_checkout_is_certain(self, asked, served, world, code):
        served.errors = {"worktree.list": code}

        found = await asked.membership(str(world.main))

        assert isinstance(found, Unproven)
        assert code in found.reason

    @pytest.mark.parametrize("protocol", [20, 21, 22])
    async def test_protocols_20_to_22_are_known(self, asked, served, world, protocol):
        served.world = served.world._replace(protocol=protocol)

        assert await asked.membership(str(world.main), "w1") == world.expected["shop"]

    @pytest.mark.parametrize("protocol", [19, 23])
    async def test_another_protocol_proves_nothing(self, asked, served, world, protocol):
        served.world = served.world._replace(protocol=protocol)

        found = await asked.membership(str(world.main), "w1")

        assert isinstance(found, Unproven)
        assert "protocol" in found.reason

    async def test_a_field_that_is_not_known_changes_nothing(self, asked, served, world):
        listed = await asyncio.to_thread(served.world.result, "worktree.list", {"workspace_id": "w1"})
        for holder in (listed, listed["source"], *listed["worktrees"]):
            holder["of_a_later_protocol"] = {"any": ["thing"]}
        served.answers = {"worktree.list": _answer(listed)}

        assert await asked.membership(str(world.main), "w1") == world.expected["shop"]

    async def test_one_that_hangs_at_the_first_question_is_given_up_too(self, asked, served, world):
        served.mute = {"ping"}

        assert isinstance(await asked.membership(str(world.main), "w1"), Unproven)

    async def test_no_herdr_is_no_proof(self, world, tmp_path):
        for path in (f"{tmp_path}/none", "/" + "x" * 200, "/with\0nul"):
            assert isinstance(await HerdrGroups(path).membership(str(world.main), "w1"), Unproven)


def _answer(result: dict[str, Any]) -> bytes:
    return json.dumps({"id": "herd:worktree.list", "result": result}).encode() + b"\n"


class TestChoosing:
    @pytest.mark.parametrize(("socket", "kind"), [("none", GitGroups), ("/run/herdr.sock", HerdrGroups)])
    def test_herdr_is_asked_by_who_lives_there_and_git_by_everyone_else(self, socket, kind):
        assert type(groups_at(socket, _PATH)) is kind

    async def test_git_does_not_step_in_for_a_herdr_that_is_not_there(self, world, tmp_path):
        absent = groups_at(f"{tmp_path}/none", _PATH)

        assert isinstance(await absent.membership(str(world.main)), Unproven)
