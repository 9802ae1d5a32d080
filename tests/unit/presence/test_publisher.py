"""One session's record as its owner writes it: generations, their claims, and what a failed write leaves."""

import json
import os
import resource
import stat
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest

from herd.core.errors import InvalidParams, RecoveryRequired
from herd.core.limits import OWNER_RECORD_BYTES
from herd.core.locks import HeldLock, Owner, probe
from herd.core.paths import Layout
from herd.presence.publisher import Publisher
from herd.presence.record import Presence, Record, decode, encode
from herd.presence.registry import Registry
from tests.fakes.records import (
    LEAD,
    bytes_of,
    instance_of,
    layout_at,
    put,
    record_of,
    seen,
    session_of,
    shape_of,
)

ME = session_of(1)
FULL = LEAD._replace(
    socket="/run/herdr.sock",
    repo="herd",
    branch="main",
    workspace_label="left",
    pane_id="p1",
    tab_id="t1",
    workspace_id="w1",
)


class Step(NamedTuple):
    """What stood on disk when an owner record was about to be written."""

    owner_id: str | None
    on_record: str | None


class WatchedLock(HeldLock):
    """A lock that notes the record beside which each owner record is written."""

    record_path = ""

    def write_owner(self, owner: Owner) -> None:
        self.steps.append(Step(owner.id, claim_id_in(self.record_path)))
        super().write_owner(owner)

    @property
    def steps(self) -> list[Step]:
        return self.__dict__.setdefault("_steps", [])  # type: ignore[no-any-return]


def claim_id_in(path: str) -> str | None:
    try:
        with open(path, "rb") as file:
            claim: dict[str, Any] = json.load(file)["claim"]
    except (FileNotFoundError, ValueError, TypeError):
        return "no record"
    ident: str | None = claim["id"]
    return ident


@pytest.fixture
def layout(home) -> Layout:
    return layout_at(home)


@pytest.fixture
def lock(layout: Layout) -> Iterator[WatchedLock]:
    with WatchedLock.acquire(layout.session_lock(ME.key)) as held:
        assert isinstance(held, WatchedLock)
        held.record_path = layout.record(ME.key)
        yield held


@pytest.fixture
def publisher(layout: Layout, lock: HeldLock) -> Publisher:
    numbers = iter(range(1_000))
    return Publisher(layout, lock, instance_of(ME), lambda: f"claim-{next(numbers)}")


@pytest.fixture
def path(layout: Layout) -> str:
    return layout.record(ME.key)


def on_disk(layout: Layout) -> Record:
    with open(layout.record(ME.key), "rb") as file:
        return decode(file.read(), ME.key)


def owner_in(layout: Layout) -> Owner | None:
    return probe(layout.session_lock(ME.key)).owner


def is_listed(layout: Layout) -> bool:
    return [record.key for record in Registry(layout).listed()] == [ME.key]


@contextmanager
def full_disk() -> Iterator[None]:
    """Let no file grow beyond the size of an owner record, as on a disk without a free block."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (OWNER_RECORD_BYTES, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


class TestAnnounce:
    def test_the_instance_is_on_record_and_nothing_is_listed(self, layout, publisher):
        publisher.announce()

        assert on_disk(layout) == record_of(ME, None)
        assert owner_in(layout) == Owner(4_711, "boot:4026531836:99", None)
        assert publisher.claim == owner_in(layout)
        assert publisher.presence is None
        assert Registry(layout).lives(on_disk(layout))
        assert not is_listed(layout)

    def test_it_takes_a_presence_back(self, layout, publisher):
        publisher.publish(LEAD)
        publisher.announce()

        assert on_disk(layout).presence is None
        assert not is_listed(layout)


class TestPublish:
    @pytest.mark.requirement("H-presence-07")
    def test_the_claim_is_pid_start_and_id_in_the_record_and_in_the_held_lock_alike(self, layout, publisher):
        claim = publisher.publish(LEAD)

        assert claim == Owner(pid=4_711, start="boot:4026531836:99", id="claim-0")
        assert on_disk(layout).claim == owner_in(layout) == publisher.claim == claim
        assert publisher.presence == LEAD
        assert is_listed(layout)

    @pytest.mark.requirement("H-presence-05")
    def test_the_first_record_of_a_generation_holds_everything_that_is_not_looked_up(self, layout, publisher):
        publisher.publish(FULL._replace(name=None, repo=None, branch=None, workspace_label=None))

        with open(layout.record(ME.key), "rb") as file:
            written = json.load(file)
        assert written["session"]["session_id"] == ME.session_id
        assert written["claim"] == {"pid": 4_711, "start": "boot:4026531836:99", "id": "claim-0"}
        assert written["build"] == {"version": "0.1.0", "sha256": "5" * 64}
        assert written["presence"] == {
            "role": "lead",
            "socket": "/run/herdr.sock",
            "cwd": "/home/me/project",
            "pane_id": "p1",
            "tab_id": "t1",
            "workspace_id": "w1",
            "scope": "machine",
        }

    @pytest.mark.requirement("H-presence-03")
    @pytest.mark.parametrize("mask", [0o000, 0o077, 0o777])
    def test_a_record_is_private_under_any_umask(self, publisher, path, mask):
        before = os.umask(mask)
        try:
            publisher.publish(LEAD)
        finally:
            os.umask(before)

        assert stat.S_IMODE(os.stat(path).st_mode) == 0o600

    def test_no_claim_is_valid_beside_a_record_of_another_generation_at_any_step(self, publisher, lock):
        publisher.publish(LEAD)
        publisher.publish(LEAD)

        assert lock.steps == [
            Step(None, "no record"),  # retired, and only then is the record written
            Step("claim-0", "claim-0"),  # the record stands before its claim counts
            Step(None, "claim-0"),
            Step("claim-1", "claim-1"),
        ]

    def test_no_id_is_given_twice(self, layout, lock):
        publisher = Publisher(layout, lock, instance_of(ME))

        ids = [publisher.publish(LEAD).id for _ in range(200)]

        assert len(set(ids)) == 200
        assert all(ident is not None and uuid.UUID(ident).version == 4 for ident in ids)

    @pytest.mark.parametrize("left", [b"[]", b"", encode(record_of(ME, instance_id="a killed one"))])
    def test_what_a_killed_instance_left_is_replaced(self, layout, publisher, path, left):
        put(path, left)

        publisher.publish(LEAD)

        assert on_disk(layout).instance_id == instance_of(ME).instance_id
        assert is_listed(layout)

    def test_a_link_in_its_place_is_replaced_and_what_it_leads_to_stays(self, layout, publisher, path, home):
        put(home / "mine", b"precious")
        os.symlink(home / "mine", path)

        publisher.publish(LEAD)

        assert (home / "mine").read_bytes() == b"precious"
        assert is_listed(layout)

    def test_a_presence_that_no_reader_would_accept_is_refused_and_nothing_is_published(
        self, layout, publisher
    ):
        publisher.publish(LEAD)

        with pytest.raises(InvalidParams, match="role"):
            publisher.publish(Presence("chief", "none"))

        assert (publisher.claim.id, publisher.presence) == (None, None)
        assert not is_listed(layout)

    def test_a_lock_that_is_not_held_publishes_nothing(self, publisher, lock, path):
        lock.release()

        with pytest.raises(RecoveryRequired):
            publisher.publish(LEAD)
        assert not os.path.exists(path)


class TestEnrich:
    @pytest.mark.requirement("H-presence-10")
    def test_it_changes_the_presence_and_no_claim(self, layout, publisher, lock):
        claim = publisher.publish(LEAD)
        written = len(lock.steps)

        assert publisher.enrich(claim, lambda presence: presence._replace(repo="herd", branch="main"))

        assert on_disk(layout).presence == LEAD._replace(repo="herd", branch="main")
        assert on_disk(layout).claim == owner_in(layout) == publisher.claim == claim
        assert len(lock.steps) == written
        assert is_listed(layout)

    def test_one_builds_on_the_other(self, layout, publisher):
        claim = publisher.publish(LEAD)

        publisher.enrich(claim, lambda presence: presence._replace(repo="herd"))
        publisher.enrich(claim, lambda presence: presence._replace(branch="main"))

        assert on_disk(layout).presence == publisher.presence == LEAD._replace(repo="herd", branch="main")

    @pytest.mark.requirement("H-presence-10")
    @pytest.mark.parametrize("end", [Publisher.withdraw, Publisher.announce, lambda one: one.publish(LEAD)])
    def test_a_look_up_that_comes_after_its_generation_changes_nothing(self, layout, publisher, path, end):
        late = publisher.publish(LEAD)
        end(publisher)
        before = seen(path)

        assert not publisher.enrich(late, lambda presence: presence._replace(repo="late"))
        assert seen(path) == before

    def test_there_is_nothing_to_enrich_while_nothing_is_published(self, publisher, path):
        for prepare in (publisher.withdraw, publisher.announce, lambda: publisher.publish(LEAD)):
            prepare()
            if publisher.presence is None:
                assert not publisher.enrich(publisher.claim, lambda presence: presence._replace(repo="x"))
            else:
                assert publisher.enrich(publisher.claim, lambda presence: presence._replace(repo="x"))

    @pytest.mark.requirement("H-presence-10", "A-presence-05")
    @pytest.mark.parametrize(
        "theirs",
        [
            encode(record_of(ME, instance_id="another instance")),
            encode(record_of(ME)),  # of this instance, under a claim that this publisher did not write
            b"[]",
        ],
        ids=["instance", "claim", "nothing"],
    )
    def test_a_record_that_is_another_generations_is_left_as_it_is(self, publisher, path, theirs):
        claim = publisher.publish(LEAD)
        put(path, theirs)

        assert not publisher.enrich(claim, lambda presence: presence._replace(repo="mine"))
        publisher.withdraw()
        publisher.remove()
        with open(path, "rb") as file:
            assert file.read() == theirs

    def test_a_change_that_cannot_be_written_is_not_taken_for_published(self, layout, publisher):
        claim = publisher.publish(LEAD)

        with full_disk(), pytest.raises(OSError, match="File too large"):
            publisher.enrich(claim, lambda presence: presence._replace(repo="herd"))
        with pytest.raises(InvalidParams, match="activity"):
            publisher.enrich(claim, lambda presence: presence._replace(activity="busy"))

        assert publisher.presence == on_disk(layout).presence == LEAD
        assert is_listed(layout)
        assert publisher.enrich(claim, lambda presence: presence._replace(repo="herd"))


class TestWithdraw:
    @pytest.mark.requirement("H-presence-21")
    def test_the_claim_is_retired_first_and_the_presence_goes_after_it(self, layout, publisher, lock):
        publisher.publish(FULL)
        publisher.withdraw()

        assert lock.steps[-1] == Step(None, "claim-0")
        assert owner_in(layout) == Owner(4_711, "boot:4026531836:99", None)
        assert on_disk(layout) == record_of(ME, None)
        assert (publisher.claim.id, publisher.presence) == (None, None)

    def test_the_instance_stays_on_record_and_alive(self, layout, publisher):
        publisher.publish(LEAD)
        publisher.withdraw()

        record = Registry(layout).instance(instance_of(ME).instance_id)
        assert record is not None
        assert Registry(layout).lives(record)
        assert not is_listed(layout)

    @pytest.mark.requirement("H-presence-21")
    def test_a_presence_left_behind_by_a_failed_write_is_not_valid(self, layout, publisher):
        publisher.publish(LEAD)

        with full_disk(), pytest.raises(OSError, match="File too large"):
            publisher.withdraw()

        assert on_disk(layout).presence == LEAD
        assert owner_in(layout) == Owner(4_711, "boot:4026531836:99", None)
        assert not is_listed(layout)

    def test_it_is_made_good_once_there_is_room(self, layout, publisher):
        publisher.publish(LEAD)
        with full_disk(), pytest.raises(OSError, match="File too large"):
            publisher.withdraw()

        publisher.withdraw()

        assert on_disk(layout).presence is None

    @pytest.mark.requirement("H-presence-23")
    def test_what_is_published_after_it_has_an_id_that_was_never_there(self, layout, publisher):
        ids = []
        for failing in (False, True, False, True, False):
            if failing:
                with full_disk(), pytest.raises(OSError, match="File too large"):
                    publisher.publish(LEAD)
                assert (publisher.claim.id, publisher.presence) == (None, None)
                assert not is_listed(layout)
            else:
                ids.append(publisher.publish(LEAD).id)
                assert is_listed(layout)
            publisher.withdraw()

        assert ids == ["claim-0", "claim-2", "claim-4"]

    def test_it_may_come_twice_and_before_anything_was_published(self, publisher, path):
        publisher.withdraw()
        assert not os.path.exists(path)  # nothing of ours was there to change
        publisher.publish(LEAD)
        publisher.withdraw()
        publisher.withdraw()

    def test_a_record_that_somebody_removed_is_not_made_anew(self, publisher, path):
        publisher.publish(LEAD)
        os.unlink(path)

        publisher.withdraw()

        assert not os.path.exists(path)


class TestRemove:
    def test_the_record_goes_and_the_lock_file_stays(self, layout, publisher, path):
        publisher.publish(LEAD)

        publisher.remove()

        assert not os.path.exists(path)
        assert owner_in(layout) == Owner(4_711, "boot:4026531836:99", None)
        publisher.remove()

    def test_a_record_that_could_not_be_rewritten_goes_all_the_same(self, layout, publisher, path):
        publisher.publish(LEAD)
        with full_disk():
            with pytest.raises(OSError, match="File too large"):
                publisher.withdraw()
            publisher.remove()

        assert not os.path.exists(path)

    @pytest.mark.requirement("A-presence-05")
    @pytest.mark.parametrize("end", [Publisher.withdraw, Publisher.remove, Publisher.announce])
    def test_a_newer_instances_record_survives_the_end_of_an_older_one(
        self, layout, publisher, lock, path, end: Callable[[Publisher], None]
    ):
        publisher.publish(LEAD)
        lock.release()
        with HeldLock.acquire(layout.session_lock(ME.key)) as newer_lock:
            newer = Publisher(layout, newer_lock, instance_of(ME, "the next"))
            newer.publish(LEAD)
            before = seen(path)

            with pytest.raises(RecoveryRequired):
                end(publisher)

            assert seen(path) == before
            assert on_disk(layout).instance_id == "the next"
            assert is_listed(layout)


class TestMove:
    def test_the_new_endpoint_stands_in_the_next_generation(self, layout, publisher):
        publisher.publish(LEAD)
        publisher.move("/tmp/elsewhere/instance.sock")
        assert on_disk(layout).endpoint == instance_of(ME).endpoint

        publisher.publish(LEAD)

        assert on_disk(layout).endpoint == "/tmp/elsewhere/instance.sock"
        assert on_disk(layout).instance_id == instance_of(ME).instance_id

    def test_the_record_is_still_its_own_after_it(self, layout, publisher, path):
        publisher.publish(LEAD)
        publisher.move("/tmp/elsewhere/instance.sock")

        publisher.withdraw()
        assert on_disk(layout).presence is None
        publisher.remove()
        assert not os.path.exists(path)


@pytest.mark.requirement("A-presence-09")
def test_a_record_has_no_field_that_could_hold_mail_a_secret_or_a_command():
    """Whatever is not one of these is malformed; see the tests of the schema."""
    written = json.loads(encode(record_of(ME, FULL._replace(activity="idle", since=1))))

    assert written == json.loads(bytes_of(shape_of(record_of(ME, FULL._replace(activity="idle", since=1)))))
    assert {name for name, value in written.items() if isinstance(value, dict)} == {
        "session",
        "claim",
        "host",
        "instance",
        "build",
        "presence",
    }
    fields = {name for part in written.values() if isinstance(part, dict) for name in part}
    assert fields == {
        *("host", "session_id", "created", "pid", "start", "id", "protocol", "socket", "public_key"),
        *("capabilities", "version", "sha256", "role", "cwd", "name", "repo", "branch"),
        *("workspace_label", "activity", "since", "pane_id", "tab_id", "workspace_id", "scope"),
    }
