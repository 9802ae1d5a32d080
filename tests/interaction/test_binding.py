"""Which session a process serves: bound, on standby, bound anew, and never stuck in between."""

import asyncio
import errno
import os
import signal
import sys
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from herd.coordinator.binding import Binding
from herd.coordinator.coordinator import Coordinator
from herd.core.errors import (
    CapabilityDenied,
    HerdError,
    InvalidRpc,
    NoSession,
    RecoveryRequired,
    SessionHeld,
    UnsafeEndpoint,
)
from herd.core.identity import SessionName
from herd.core.locks import HeldLock, probe
from herd.core.paths import Layout
from tests.fakes.coordinators import IN_TIME_S, opening_of, running, until
from tests.fakes.herd_session import environment
from tests.fakes.records import layout_at

ALICE, BOB, CAROL = (SessionName("claude", name) for name in ("alice", "bob", "carol"))


@pytest.fixture
def layout(home: Path) -> Layout:
    return layout_at(home)


@pytest.fixture
async def binding() -> AsyncIterator[Binding]:
    binding = Binding()
    yield binding
    async with asyncio.timeout(IN_TIME_S):
        await binding.close()


@asynccontextmanager
async def held_by_a_process(
    layout: Layout, session: SessionName
) -> AsyncIterator[asyncio.subprocess.Process]:
    """Have another process hold a session's lock until it is killed."""
    path = layout.session_lock(session.key)
    program = (
        "import sys; from herd.core.locks import HeldLock, Owner\n"
        "held = HeldLock.acquire(sys.argv[1]); held.write_owner(Owner(4711, 'start', None))\n"
        "print('held', flush=True); sys.stdin.read()"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        program,
        path,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env=environment(Path(layout.root)),
    )
    assert process.stdout is not None
    assert process.stdin is not None
    try:
        assert await process.stdout.readline() == b"held\n"
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


def serves(binding: Binding, session: SessionName) -> bool:
    try:
        return binding.current().own.session == session
    except HerdError:
        return False


async def bound(binding: Binding, layout: Layout, session: SessionName) -> Coordinator:
    async with asyncio.timeout(IN_TIME_S):
        return await binding.bind(opening_of(layout, session))


def locks_free(layout: Layout, session: SessionName) -> bool:
    return not any(probe(lock(session.key)).held for lock in (layout.session_lock, layout.mailbox_lock))


# --- bound and bound anew --------------------------------------------------------------------------


@pytest.mark.requirement("D-bind-02")
async def test_before_a_session_is_named_there_is_none(binding: Binding, layout: Layout):
    with pytest.raises(NoSession):
        binding.current()
    assert os.listdir(layout.locks) == []
    assert os.listdir(layout.peers) == []


async def test_why_a_session_could_not_be_named_is_told_until_one_is_bound(binding: Binding, layout: Layout):
    binding.refused(UnsafeEndpoint("the data root is a link"))
    with pytest.raises(UnsafeEndpoint, match="is a link"):
        binding.current()
    binding.refused(PermissionError(13, "Permission denied", "/x/config.toml"))
    with pytest.raises(RecoveryRequired, match=r"/x/config\.toml: Permission denied"):
        binding.current()

    coordinator = await bound(binding, layout, ALICE)
    assert binding.current() is coordinator


@pytest.mark.requirement("D-bind-01")
async def test_one_session_at_a_time_is_served(binding: Binding, layout: Layout):
    first = await bound(binding, layout, ALICE)
    second = await bound(binding, layout, BOB)

    assert binding.current() is second is not first
    assert os.listdir(layout.peers) == [f"{BOB.key}.json"]
    assert len(os.listdir(layout.run)) == 1
    assert locks_free(layout, ALICE)

    await binding.close()
    assert os.listdir(layout.peers) == os.listdir(layout.run) == []
    assert locks_free(layout, BOB)
    with pytest.raises(NoSession):
        binding.current()


async def test_the_same_session_bound_again_stays_as_it_is(binding: Binding, layout: Layout):
    first = await bound(binding, layout, ALICE)

    assert await bound(binding, layout, ALICE) is first


async def test_bindings_at_once_end_with_the_last(binding: Binding, layout: Layout):
    sessions = [ALICE, BOB, CAROL, BOB, ALICE]
    async with asyncio.timeout(IN_TIME_S):
        found = await asyncio.gather(*(bound(binding, layout, session) for session in sessions))

    assert [one.own.session for one in found] == sessions
    assert serves(binding, ALICE)
    assert os.listdir(layout.peers) == [f"{ALICE.key}.json"]


async def test_whoever_stops_waiting_for_a_binding_leaves_nothing_half_open(binding: Binding, layout: Layout):
    for turns in range(12):
        binding_it = asyncio.create_task(binding.bind(opening_of(layout, ALICE if turns % 2 else BOB)))
        for _ in range(turns):
            await asyncio.sleep(0)
        binding_it.cancel()
        await asyncio.gather(binding_it, return_exceptions=True)

    await bound(binding, layout, CAROL)
    assert os.listdir(layout.peers) == [f"{CAROL.key}.json"]
    assert locks_free(layout, ALICE)
    assert locks_free(layout, BOB)


async def test_no_host_binds_a_terminal_session(binding: Binding, layout: Layout):
    before = await bound(binding, layout, ALICE)
    with pytest.raises(CapabilityDenied):
        await bound(binding, layout, SessionName("terminal", "default"))

    assert binding.current() is before


# --- faults ----------------------------------------------------------------------------------------


async def test_a_session_that_cannot_be_opened_is_refused_until_it_can(binding: Binding, layout: Layout):
    os.rename(layout.locks, f"{layout.locks}.away")
    with pytest.raises(UnsafeEndpoint):
        await bound(binding, layout, ALICE)
    with pytest.raises(UnsafeEndpoint):
        binding.current()

    os.rename(f"{layout.locks}.away", layout.locks)
    await bound(binding, layout, ALICE)
    assert serves(binding, ALICE)


async def test_a_fault_of_the_disk_is_a_refusal_that_names_the_file(
    binding: Binding, layout: Layout, caplog: pytest.LogCaptureFixture
):
    place = Path(layout.token(ALICE.key)).parent
    place.parent.mkdir(exist_ok=True)
    place.write_text("in the way of a folder", encoding="utf-8")
    with pytest.raises(HerdError) as refused:
        await bound(binding, layout, ALICE)
    assert str(place) in refused.value.message

    place.unlink()
    await bound(binding, layout, ALICE)


async def test_a_full_disk_at_the_start_is_a_refusal_that_says_to_free_space_and_no_fault(
    binding: Binding, layout: Layout, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    def full(number: int, *_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as disk:
        disk.setattr(os, "write", full)
        with pytest.raises(RecoveryRequired, match="No space left") as refused:
            await bound(binding, layout, ALICE)
    assert refused.value.next_step.startswith("Free space")
    assert not any(record.exc_info for record in caplog.records)
    assert locks_free(layout, ALICE)


async def test_a_fault_inside_is_a_refusal_too_and_hangs_nothing(
    binding: Binding, layout: Layout, caplog: pytest.LogCaptureFixture
):
    with pytest.raises(InvalidRpc):
        async with asyncio.timeout(IN_TIME_S):
            await binding.bind(opening_of(layout, ALICE, limits=None))
    assert "session.failed" in caplog.text
    assert locks_free(layout, ALICE)

    await bound(binding, layout, ALICE)
    assert serves(binding, ALICE)


# --- standby ---------------------------------------------------------------------------------------


def waiting_threads() -> int:
    return sum(thread.name == "standby" for thread in threading.enumerate())


@pytest.mark.requirement("D-bind-04")
async def test_a_session_held_elsewhere_is_refused_with_its_holder(binding: Binding, layout: Layout):
    async with held_by_a_process(layout, ALICE):
        with pytest.raises(SessionHeld) as refused:
            await bound(binding, layout, ALICE)
        assert refused.value.details["holder"]["pid"] == 4711
        with pytest.raises(SessionHeld):
            binding.current()
        assert os.listdir(layout.peers) == []


@pytest.mark.requirement("D-bind-05")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
async def test_a_standby_takes_over_within_100_ms_of_the_holder_s_end(
    binding: Binding, layout: Layout, number: signal.Signals
):
    took: list[float] = []
    while len(took) < 10 and min(took, default=1.0) >= 0.1:  # the machine may be busy with other tests
        async with held_by_a_process(layout, ALICE) as holder:
            with pytest.raises(SessionHeld):
                await bound(binding, layout, ALICE)
            holder.send_signal(number)
            await holder.wait()
            began = time.monotonic()
            await until(lambda: serves(binding, ALICE))
            took.append(time.monotonic() - began)
        await binding.close()

    assert min(took) < 0.1


async def test_a_standby_ends_at_once_when_it_is_no_more_wanted(binding: Binding, layout: Layout):
    async with held_by_a_process(layout, ALICE):
        with pytest.raises(SessionHeld):
            await bound(binding, layout, ALICE)
        await bound(binding, layout, BOB)
        assert serves(binding, BOB)

    assert probe(layout.session_lock(ALICE.key)).held is False
    await until(lambda: waiting_threads() == 0)
    assert serves(binding, BOB)


async def test_however_often_it_is_bound_one_thread_waits_for_a_lock(binding: Binding, layout: Layout):
    async with held_by_a_process(layout, ALICE), held_by_a_process(layout, BOB):
        for session in (ALICE, ALICE, ALICE, BOB, ALICE, BOB, BOB, ALICE):
            with pytest.raises(SessionHeld):
                await bound(binding, layout, session)
        await until(lambda: waiting_threads() == 2)

    await until(lambda: serves(binding, ALICE))
    await until(lambda: waiting_threads() == 0)
    assert locks_free(layout, BOB)


async def test_a_standby_that_is_bound_again_keeps_its_place(binding: Binding, layout: Layout):
    async with held_by_a_process(layout, ALICE):
        for _ in range(2):
            with pytest.raises(SessionHeld):
                await bound(binding, layout, ALICE)
    await until(lambda: serves(binding, ALICE))

    assert (await bound(binding, layout, ALICE)) is binding.current()


async def test_a_lock_that_cannot_be_waited_for_is_told_and_not_tried_for_ever(
    binding: Binding, layout: Layout
):
    path = layout.session_lock(ALICE.key)
    with HeldLock.acquire(path):
        binding_it = asyncio.create_task(binding.bind(opening_of(layout, ALICE)))
        for _ in range(3):
            await asyncio.sleep(0)
        os.chmod(path, 0o666)  # nobody's word may stand in a file that others can write
        with pytest.raises(HerdError):
            async with asyncio.timeout(IN_TIME_S):
                await binding_it
        await until(lambda: _is_told_unsafe(binding))
        assert waiting_threads() == 0
        os.chmod(path, 0o600)

    await bound(binding, layout, ALICE)
    assert serves(binding, ALICE)


def _is_told_unsafe(binding: Binding) -> bool:
    try:
        binding.current()
    except UnsafeEndpoint:
        return True
    except HerdError:
        return False
    return False


async def test_two_processes_worth_of_standby_change_places(layout: Layout):
    first, second = Binding(), Binding()
    try:
        await bound(first, layout, ALICE)
        with pytest.raises(SessionHeld):
            await bound(second, layout, ALICE)
        await first.close()
        await until(lambda: serves(second, ALICE))
        with pytest.raises(SessionHeld):
            await bound(first, layout, ALICE)
        await second.close()
        await until(lambda: serves(first, ALICE))
    finally:
        await first.close()
        await second.close()


# --- whoever is told which session is served -------------------------------------------------------


class Told:
    """Is told each coordinator, and notes what the binding said at that instant.

    Attributes:
        sessions: Whose coordinator it was; None for none.
        served: What `current` gave while it was told.
    """

    def __init__(self) -> None:
        self.sessions: list[SessionName | None] = []
        self.served: list[SessionName | None] = []
        self.binding: Binding | None = None

    def __call__(self, coordinator: Coordinator | None) -> None:
        self.sessions.append(None if coordinator is None else coordinator.own.session)
        try:
            assert self.binding is not None
            self.served.append(self.binding.current().own.session)
        except HerdError:
            self.served.append(None)


@pytest.fixture
async def told() -> AsyncIterator[Told]:
    told = Told()
    told.binding = Binding(told)
    yield told
    async with asyncio.timeout(IN_TIME_S):
        await told.binding.close()


def binding_of(told: Told) -> Binding:
    assert told.binding is not None
    return told.binding


async def test_each_session_is_told_as_soon_as_it_serves_and_its_end_before_the_next(
    told: Told, layout: Layout
):
    binding = binding_of(told)
    for session in (ALICE, ALICE, BOB):
        await bound(binding, layout, session)
    assert told.sessions == [ALICE, None, BOB]
    await binding.close()
    await binding.close()

    assert told.sessions == told.served == [ALICE, None, BOB, None]


async def test_a_session_that_could_not_be_opened_is_told_to_nobody(told: Told, layout: Layout):
    binding = binding_of(told)
    os.rename(layout.locks, f"{layout.locks}.away")
    with pytest.raises(UnsafeEndpoint):
        await bound(binding, layout, ALICE)
    assert told.sessions == []
    os.rename(f"{layout.locks}.away", layout.locks)
    await bound(binding, layout, ALICE)

    assert told.sessions == [ALICE]


async def test_one_that_takes_over_from_standby_is_told_then(told: Told, layout: Layout):
    binding = binding_of(told)
    async with held_by_a_process(layout, ALICE) as holder:
        with pytest.raises(SessionHeld):
            await bound(binding, layout, ALICE)
        assert told.sessions == []
        holder.kill()
        await until(lambda: serves(binding, ALICE))
    await until(lambda: bool(told.sessions))

    assert told.sessions == [ALICE]


async def test_a_standby_that_was_never_served_is_told_to_nobody(told: Told, layout: Layout):
    binding = binding_of(told)
    async with held_by_a_process(layout, ALICE):
        with pytest.raises(SessionHeld):
            await bound(binding, layout, ALICE)
        await bound(binding, layout, BOB)
    await binding.close()

    assert told.sessions == [BOB, None]


async def test_what_is_held_can_still_be_let_go_when_the_end_is_told(layout: Layout):
    """The observer gets the coordinator to take back what it handed over, while that one still lives."""
    served: list[Coordinator] = []
    released: list[bool] = []

    def changed(coordinator: Coordinator | None) -> None:
        if coordinator is not None:
            served.append(coordinator)
        else:
            released.append(served[-1].delivery.holds("reader"))
            served[-1].delivery.release("reader")

    binding = Binding(changed)
    try:
        coordinator = await bound(binding, layout, ALICE)
        async with running(layout, BOB) as bob:
            await bob.ask("list")
            await bob.send(coordinator.own.target)
        assert (await coordinator.delivery.drain("reader")).message_ids
    finally:
        await binding.close()
    async with running(layout, ALICE) as alice:
        assert (await alice.read())["messages"][0]["again"] is True

    assert released == [True]


async def test_an_observer_that_fails_is_a_refusal_and_leaves_no_lock(
    layout: Layout, caplog: pytest.LogCaptureFixture
):
    def fails(_: Coordinator | None) -> None:
        raise ValueError

    binding = Binding(fails)
    with pytest.raises(InvalidRpc):
        await bound(binding, layout, ALICE)
    await binding.close()

    assert "session.failed" in caplog.text
    assert locks_free(layout, ALICE)
