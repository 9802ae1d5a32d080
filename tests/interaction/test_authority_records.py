"""Which files a verdict rests on: every canonical record of every namespace, and no other name."""

import asyncio
import os
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from herd.core.errors import EligibilityDenied, EligibilityUnverified
from tests.fakes.authority import ELSEWHERE, HERE, World
from tests.fakes.records import layout_at, put, session_of

ALICE, BOB, CAROL = session_of(1), session_of(2, "pi"), session_of(3, "codex")
SOCKETS = (HERE.socket, ELSEWHERE.socket, "none", "/run/unused.sock")


@pytest.fixture
async def free(home, tmp_path):
    """Two free Leads of two repositories, with records of others in four namespaces."""
    world = World(layout_at(home), tmp_path)
    async with AsyncExitStack() as life:
        alice = await life.enter_async_context(world.lead(ALICE, "shop"))
        bob = await life.enter_async_context(world.lead(BOB, "blog"))
        for number, socket in enumerate(SOCKETS):
            for repo in (world.shop, world.blog):
                one = session_of(100 + 2 * number + (repo == world.blog))
                await world.assign(one, f"work/{number}", socket=socket, repo=repo)
        await alice.sees(bob)
        yield world, alice, bob


def path_of(world: World, socket: str, repo: str) -> str:
    number = SOCKETS.index(socket)
    return world.layout.assignment(*world.assignment(CAROL, f"work/{number}", socket=socket, repo=repo).place)


@pytest.mark.requirement("H-assign-03")
@pytest.mark.parametrize("repo", ["shop", "blog"])
@pytest.mark.parametrize("socket", SOCKETS)
async def test_every_record_of_every_namespace_is_validated_for_every_verdict(free, socket, repo):
    world, alice, bob = free
    path = path_of(world, socket, getattr(world, repo))
    sound = await asyncio.to_thread(Path(path).read_bytes)

    def becomes(content: bytes) -> None:
        with world.lock.exclusive():  # what is written without it in the same place may be seen later
            put(path, content)

    assert (await alice.send(bob, "one"))["status"] == "accepted"
    await asyncio.to_thread(becomes, sound[: len(sound) // 2])

    with pytest.raises(EligibilityUnverified) as refusal:
        await alice.send(bob, "two")
    assert path in refusal.value.message
    assert await bob.texts() == []  # nor is the first one delivered
    await asyncio.to_thread(becomes, sound)
    assert (await alice.send(bob, "three"))["status"] == "accepted"
    assert await bob.texts() == ["one", "three"]


@pytest.mark.requirement("H-assign-03")
@pytest.mark.parametrize("socket", SOCKETS)
async def test_every_record_of_every_namespace_counts(free, socket):
    world, alice, bob = free
    await world.assign(BOB, "more", socket=socket)

    with pytest.raises(EligibilityDenied):
        await alice.send(bob)


@pytest.mark.requirement("H-assign-03")
async def test_names_that_are_not_canonical_are_passed_over_wherever_they_lie(free):
    world, alice, bob = free
    record = path_of(world, HERE.socket, world.shop)
    repo = os.path.dirname(record)
    socket, root = os.path.dirname(repo), os.path.dirname(os.path.dirname(repo))
    names = ("a" * 63, "a" * 65, "A" * 64, "g" * 64, "a" * 63 + "\N{ARABIC-INDIC DIGIT THREE}", "notes")

    def litter() -> None:
        for name in names:
            for folder in (root, socket, repo):
                os.mkdir(f"{folder}/{name}", 0o777)
                put(f"{folder}/{name}/{'b' * 64}.json", b"{")
            put(f"{repo}/{name}.json", b"{")
        for name in (f"{'a' * 64}.aside", f"{'a' * 64}.json.aside", f"{'a' * 64}.tmp", ".json", "a" * 64):
            put(f"{repo}/{name}", b"{")

    await asyncio.to_thread(litter)
    assert (await alice.send(bob))["status"] == "accepted"
    assert await bob.texts() == ["hello"]
