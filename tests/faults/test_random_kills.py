"""Coordinators killed at thousands of random instants: nothing is lost, nothing comes twice."""

import asyncio
import random

import pytest

from herd.core.identity import SessionName
from herd.core.paths import Layout, open_layout
from tests.faults.chaos import World
from tests.faults.forked import Process
from tests.faults.forks import Forks
from tests.faults.spawned import spawned

WORLDS = 4
KILLS = 500


@pytest.mark.timeout(300)
@pytest.mark.parametrize("world", range(WORLDS))
async def test_forked_coordinators_killed_at_random_instants(layout: Layout, forks: Forks, world: int):
    seed = random.getrandbits(32)
    print(f"seed {seed}")
    dice = random.Random(seed)

    async def start(session: SessionName, mortal: bool) -> Process:
        fate = {"dies_after_s": lifetime(dice), "of_its_own_time": dice.random() < 0.7} if mortal else {}
        return await Process.started(forks, layout, session, **fate)

    world = World(layout, start, dice, "alice", "bob", "carol")
    import time

    t = time.time()
    await world.suffer(KILLS)
    t2 = time.time()
    await world.settle()
    print(t2 - t, time.time() - t2)
    print(world.account(), [(h.lives, h.calls, h.refusals, len(h.ids)) for h in world.hosts])


def lifetime(dice: random.Random) -> float:
    return dice.uniform(0.001, 0.08)


@pytest.mark.timeout(300)
async def test_herd_session_processes_killed_at_random_instants(folder):
    seed = random.getrandbits(32)
    print(f"seed {seed}")
    dice = random.Random(seed)
    layout = open_layout(str(folder))
    async with spawned(folder) as processes:

        async def start(session: SessionName, mortal: bool) -> Process:
            process = processes.start(session)
            loop = asyncio.get_running_loop()
            if mortal and dice.random() < 0.25:
                loop.call_later(dice.uniform(0.0, 1.0), process.fork.kill)
            elif mortal:
                ready = process.begin("session.whoami")
                wait = dice.uniform(0, 0.3)
                ready.add_done_callback(lambda _: loop.call_later(wait, process.fork.kill))
            return process

        world = World(layout, start, dice, "alice", "bob")
        import time

        t = time.time()
        await world.suffer(100)
        t2 = time.time()
        await world.settle()
        print(t2 - t, time.time() - t2)
        print(world.account(), [(h.lives, h.calls, h.refusals, len(h.ids)) for h in world.hosts])
