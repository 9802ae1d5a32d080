"""Coordinators killed at thousands of random instants: nothing is lost, nothing comes twice."""

import asyncio
import random
from pathlib import Path

import pytest

from herd.core.identity import SessionName
from herd.core.paths import Layout, open_layout
from tests.faults.chaos import World
from tests.faults.dice import dice
from tests.faults.forked import Process
from tests.faults.forks import Forks
from tests.faults.spawned import Spawned, spawned

WORLDS = 4
KILLS = 500
"""In each world: 2,000 together."""

KILLS_OF_HERD_SESSION = 100

LIFE_S = (0.001, 0.08)
"""A fork is ready after a third of the greatest; most of the time it computes."""

YOUTH_S = (0.0, 1.0)
LIFE_OF_HERD_SESSION_S = (0.0, 0.3)
"""`herd session` is killed while it starts, or so long after it is ready."""


@pytest.mark.timeout(300)
@pytest.mark.parametrize("number", range(WORLDS))
async def test_forked_coordinators_killed_at_random_instants_lose_and_repeat_nothing(
    layout: Layout, forks: Forks, number: int
):
    with dice() as decided:

        async def start(session: SessionName, *, mortal: bool) -> Process:
            end = {"dies_after_s": decided.uniform(*LIFE_S), "of_its_own_time": decided.random() < 0.7}
            return await Process.started(forks, layout, session, **(end if mortal else {}))

        world = World(layout, start, decided, "alice", "bob", "carol")
        await world.suffer(KILLS)
        await world.settle()
        account = world.account()

        assert account["sent"] == account["delivered"] + account["queued"] + account["refused"]
        assert account["queued"] == 0
        assert account["delivered"] > KILLS / 2, "hardly anything happened"


def doomed(process: Process, decided: random.Random) -> None:
    """Let a process be killed while it starts, or a while after it was ready."""
    loop = asyncio.get_running_loop()
    if decided.random() < 0.25:
        loop.call_later(decided.uniform(*YOUTH_S), process.fork.kill)
    else:
        wait_s = decided.uniform(*LIFE_OF_HERD_SESSION_S)
        ready = process.begin("session.whoami")
        ready.add_done_callback(lambda _: loop.call_later(wait_s, process.fork.kill))


@pytest.mark.timeout(300)
async def test_herd_session_killed_at_random_instants_loses_and_repeats_nothing(folder: Path):
    with dice() as decided:
        async with spawned(folder) as processes:
            account = await account_of_herd_sessions(folder, processes, decided)

        assert account["sent"] == account["delivered"] + account["queued"] + account["refused"]
        assert account["queued"] == 0
        assert account["delivered"] > KILLS_OF_HERD_SESSION / 2, "hardly anything happened"


async def account_of_herd_sessions(folder: Path, processes: Spawned, decided: random.Random):
    async def start(session: SessionName, *, mortal: bool) -> Process:
        process = processes.start(session)
        if mortal:
            doomed(process, decided)
        return process

    world = World(open_layout(str(folder)), start, decided, "alice", "bob")
    await world.suffer(KILLS_OF_HERD_SESSION)
    await world.settle()
    return world.account()
