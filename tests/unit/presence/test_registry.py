"""Who is listed: what a scan takes for a record, and when a record stands for a session that lives."""

import os
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path

import pytest

from herd.core.errors import InvalidParams, UnsafeEndpoint
from herd.core.identity import SessionName, peer_id_of, target_of
from herd.core.locks import HeldLock, LockState, Owner, probe
from herd.core.paths import Layout
from herd.presence.record import Presence, encode
from herd.presence.registry import Registry, names_of, sleeping_keys
from herd.presence.stamps import Stamp
from tests.fakes.records import (
    LEAD,
    Seen,
    bytes_of,
    layout_at,
    living,
    put,
    record_of,
    seen,
    session_of,
    shape_of,
)

STRANGER = 12_345
BOUND_S = 20
ME = session_of(1)
RECORD = record_of(ME)


@pytest.fixture
def layout(home: Path) -> Layout:
    return layout_at(home)


@pytest.fixture
def registry(layout: Layout) -> Registry:
    return Registry(layout)


@pytest.fixture
def held(layout: Layout) -> Iterator[HeldLock]:
    """The session lock of ME, held, with the claim of RECORD in it."""
    with HeldLock.acquire(layout.session_lock(ME.key)) as lock:
        lock.write_owner(RECORD.claim)
        yield lock


def place(layout: Layout, data: bytes, key: str = ME.key, mode: int = 0o600) -> str:
    path = layout.record(key)
    put(path, data, mode)
    return path


def keys_of(records) -> list[str]:
    return [record.key for record in records]


def everything_in(folder: str) -> dict[str, Seen]:
    return {name: seen(os.path.join(folder, name)) for name in os.listdir(folder)}


class TestListed:
    def test_an_empty_or_missing_folder_lists_nobody(self, layout, registry):
        assert registry.listed() == registry.scan() == []
        os.rmdir(layout.peers)
        assert registry.listed() == registry.scan() == []
        assert registry.record(ME.key) is None
        assert registry.stamp(ME.key) is None
        assert registry.instance("anything") is None

    @pytest.mark.requirement("H-presence-03")
    def test_records_of_every_socket_and_role_are_private_files_of_one_private_folder(
        self, home, layout, registry
    ):
        presences = [Presence("lead", "none"), Presence("lead", "/run/herdr.sock"), Presence("manager", "/x")]
        sessions = [session_of(number, host) for number, host in enumerate(("claude", "pi", "codex"))]
        with ExitStack() as stack:
            for session, presence in zip(sessions, presences, strict=True):
                stack.enter_context(living(layout, session, presence))

            listed = registry.listed()

        assert {record.session for record in listed} == {*sessions}
        assert {record.presence for record in listed} == {*presences}
        assert layout.peers == os.path.join(layout.root, "peers")
        assert os.path.dirname(layout.root) == str(home)
        assert sorted(os.listdir(layout.peers)) == sorted(f"{session.key}.json" for session in sessions)
        assert stat.S_IMODE(os.stat(layout.peers).st_mode) == 0o700
        assert {stat.S_IMODE(one.mode) for one in everything_in(layout.peers).values()} == {0o600}

    @pytest.mark.requirement("H-presence-13")
    def test_a_presence_counts_while_its_lock_is_held_and_shows_its_claim(self, layout, registry, held):
        place(layout, encode(RECORD))
        assert keys_of(registry.listed()) == [ME.key]

        held.release()
        assert registry.listed() == []
        assert keys_of(registry.scan()) == [ME.key]  # on record, and dead

    @pytest.mark.requirement("H-presence-13")
    @pytest.mark.parametrize(
        "owner",
        [
            RECORD.claim._replace(id=None),
            RECORD.claim._replace(id="another generation"),
            RECORD.claim._replace(pid=RECORD.claim.pid + 1),
            RECORD.claim._replace(start="boot:4026531836:100"),
        ],
    )
    def test_a_presence_of_another_claim_than_the_held_lock_shows_is_left_out(
        self, layout, registry, held, owner
    ):
        place(layout, encode(RECORD))
        held.write_owner(owner)

        assert registry.listed() == []
        assert keys_of(registry.scan()) == [ME.key]

    def test_a_held_lock_whose_holder_has_said_nothing_lists_nobody(self, layout, registry):
        place(layout, encode(RECORD))

        with HeldLock.acquire(layout.session_lock(ME.key)):
            assert registry.listed() == []
            assert registry.owner(RECORD) is None

    def test_an_instance_without_a_presence_lives_and_is_not_listed(self, layout, registry):
        with living(layout, ME, None):
            (record,) = registry.scan()

            assert registry.lives(record)
            assert not registry.is_listed(record)
            assert registry.listed() == []

    @pytest.mark.requirement("H-presence-08")
    def test_a_presence_without_any_label_is_listed(self, layout, registry):
        with living(layout, ME, Presence("lead", "none")):
            (record,) = registry.listed()

        assert record.presence == Presence("lead", "none")

    @pytest.mark.parametrize("start", [RECORD.claim.start, "boot:4026531836:1"])
    def test_a_record_of_a_pid_that_somebody_else_has_now_is_dead_while_nobody_holds_the_lock(
        self, layout, registry, start
    ):
        reused = RECORD._replace(claim=Owner(os.getppid(), start, "claim"))
        place(layout, encode(reused))
        HeldLock.acquire(layout.session_lock(ME.key)).release()
        put(layout.session_lock(ME.key), bytes_of(reused.claim._asdict()).ljust(255) + b"\n")

        assert registry.listed() == []
        assert not registry.lives(reused)

    @pytest.mark.parametrize("change", [{"pid": RECORD.claim.pid + 1}, {"start": "boot:4026531836:100"}])
    def test_an_instance_lives_only_by_the_lock_of_its_own_process(self, layout, registry, held, change):
        assert registry.lives(RECORD)
        assert registry.lives(RECORD._replace(presence=None, claim=RECORD.claim._replace(id=None)))

        held.write_owner(RECORD.claim._replace(**change))
        assert not registry.lives(RECORD)

    def test_an_instance_that_was_replaced_does_not_live_although_its_session_does(self, layout, registry):
        place(layout, encode(RECORD))
        (former,) = registry.scan()
        with living(layout, ME):
            assert not registry.lives(former)
            assert registry.lives(registry.scan()[0])


class TestLocks:
    @pytest.mark.requirement("H-presence-15")
    @pytest.mark.parametrize("spoil", ["open to others", "a link", "a folder", "a fifo"])
    def test_a_record_whose_lock_cannot_be_verified_is_left_out_and_the_lock_is_not_free(
        self, layout, registry, held, spoil, tmp_path
    ):
        place(layout, encode(RECORD))
        path = layout.session_lock(ME.key)
        if spoil == "open to others":
            os.chmod(path, 0o644)
        else:
            os.rename(path, tmp_path / "lock")
            {"a link": lambda: os.symlink(tmp_path / "lock", path), "a folder": lambda: os.mkdir(path)}.get(
                spoil, lambda: os.mkfifo(path, 0o600)
            )()

        assert registry.listed() == []
        assert registry.owner(RECORD) is None
        assert not registry.lives(RECORD)
        with pytest.raises(UnsafeEndpoint):
            HeldLock.acquire(path, wait_ms=0)  # it refuses, instead of taking the lock for free
        assert keys_of(registry.scan()) == [ME.key]

    def test_looking_takes_no_lock_away_and_leaves_none_behind(self, layout, registry, held):
        place(layout, encode(RECORD))
        registry.listed()
        assert probe(layout.session_lock(ME.key)) == LockState(held=True, owner=RECORD.claim)

        held.release()
        registry.listed()
        HeldLock.acquire(layout.session_lock(ME.key), wait_ms=0).release()

    def test_looking_at_the_dead_makes_no_lock_file(self, layout, registry):
        place(layout, encode(RECORD))

        assert registry.listed() == []
        assert os.listdir(layout.locks) == []


def nothing(layout: Layout, path: str) -> None:
    os.unlink(path)


def cut_short(layout: Layout, path: str) -> None:
    put(path, encode(RECORD)[:-20])


def empty(layout: Layout, path: str) -> None:
    put(path, b"")


def another_shape(layout: Layout, path: str) -> None:
    put(path, b"[]")


def misnamed(layout: Layout, path: str) -> None:
    put(path, encode(record_of(session_of(2))))


def oversized(layout: Layout, path: str) -> None:
    put(path, encode(RECORD).ljust(8_193))


def huge(layout: Layout, path: str) -> None:
    put(path, encode(RECORD) + b" " * 5_000_000)


def endless(layout: Layout, path: str) -> None:
    put(path, encode(RECORD))
    os.truncate(path, 1 << 40)


def open_to_others(layout: Layout, path: str) -> None:
    os.chmod(path, 0o666)


def open_to_the_group(layout: Layout, path: str) -> None:
    os.chmod(path, 0o640)


def executable_by_others(layout: Layout, path: str) -> None:
    os.chmod(path, 0o601)


def linked(layout: Layout, path: str) -> None:
    os.rename(path, layout.root + "/elsewhere")
    os.symlink(layout.root + "/elsewhere", path)


def linked_in_the_folder(layout: Layout, path: str) -> None:
    os.rename(path, path + ".old")
    os.symlink(os.path.basename(path) + ".old", path)


def linked_to_nothing(layout: Layout, path: str) -> None:
    os.unlink(path)
    os.symlink("/nothing/here", path)


def linked_hard(layout: Layout, path: str) -> None:
    os.link(path, layout.root + "/twin")


def fifo(layout: Layout, path: str) -> None:
    os.unlink(path)
    os.mkfifo(path, 0o600)


def folder(layout: Layout, path: str) -> None:
    os.unlink(path)
    os.mkdir(path, 0o700)


def newer(layout: Layout, path: str) -> None:
    put(path, bytes_of({**shape_of(RECORD), "version": 4}))


def replaced(layout: Layout, path: str) -> None:
    put(path, encode(RECORD._replace(claim=RECORD.claim._replace(id="another"))))


SPOILS = [
    nothing,
    cut_short,
    empty,
    another_shape,
    misnamed,
    oversized,
    huge,
    endless,
    open_to_others,
    open_to_the_group,
    executable_by_others,
    linked,
    linked_in_the_folder,
    linked_to_nothing,
    linked_hard,
    fifo,
    folder,
    newer,
    replaced,
]
NO_FAULT = (nothing, replaced)
Spoil = Callable[[Layout, str], None]


class TestWhatIsNoRecord:
    @pytest.mark.requirement("A-presence-02", "A-presence-06", "H-presence-12", "H-presence-14")
    @pytest.mark.parametrize("spoil", SPOILS, ids=lambda spoil: spoil.__name__)
    def test_it_is_left_out_and_left_alone_and_hides_nobody(self, layout, registry, held, spoil: Spoil):
        path = place(layout, encode(RECORD))
        assert keys_of(registry.listed()) == [ME.key]  # right until it is spoilt
        spoil(layout, path)
        with living(layout, session_of(3)):
            before = everything_in(layout.peers), everything_in(layout.root)

            for reader in (registry, Registry(layout)):
                assert keys_of(reader.listed()) == [session_of(3).key]
                if spoil is not replaced:
                    assert reader.record(ME.key) is None
                assert [fault.path for fault in reader.faults] == ([] if spoil in NO_FAULT else [path])

            assert (everything_in(layout.peers), everything_in(layout.root)) == before

    @pytest.mark.requirement("A-presence-06")
    @pytest.mark.machine
    def test_a_file_of_another_user_is_no_record(self, layout, registry, held):
        path = place(layout, encode(RECORD))
        os.chown(path, STRANGER, -1)

        assert registry.scan() == []
        assert [fault.path for fault in registry.faults] == [path]
        assert os.stat(path).st_uid == STRANGER

    @pytest.mark.requirement("A-presence-06")
    def test_a_file_that_even_we_may_only_read_is_a_record(self, layout, registry, held):
        place(layout, encode(RECORD), mode=0o400)

        assert keys_of(registry.listed()) == [ME.key]

    @pytest.mark.requirement("H-presence-14")
    def test_a_record_under_two_names_counts_for_the_session_it_names_alone(self, layout, registry, held):
        place(layout, encode(RECORD))
        place(layout, encode(RECORD), key=session_of(2).key)
        with HeldLock.acquire(layout.session_lock(session_of(2).key)) as other:
            other.write_owner(RECORD.claim)

            assert keys_of(registry.listed()) == [ME.key]

    @pytest.mark.parametrize(
        "name",
        [
            "readme.txt",
            ME.key,
            ME.key + ".JSON",
            ME.key + ".json.tmp",
            f".{ME.key}.json.99.00ff.tmp",
            ME.key.upper() + ".json",
            ME.key[1:] + ".json",
            "0" + ME.key + ".json",
            "g" * 64 + ".json",
            ".json",
        ],
    )
    def test_a_file_of_another_name_is_not_looked_at(self, layout, registry, held, name):
        put(os.path.join(layout.peers, name), encode(RECORD))

        assert registry.scan() == []
        assert registry.faults == []

    @pytest.mark.parametrize("name", [b"\xff\xfe.json", b"\n.json"])
    def test_a_name_that_is_no_text_disturbs_nothing(self, layout, registry, held, name):
        place(layout, encode(RECORD))
        put(os.fsdecode(os.path.join(os.fsencode(layout.peers), name)), b"{}")

        assert keys_of(registry.listed()) == [ME.key]

    def test_a_fault_names_the_path_and_what_is_wrong(self, layout, registry):
        path = place(layout, bytes_of({**shape_of(RECORD), "kind": "chief"}))

        registry.scan()

        ((told, reason),) = registry.faults
        assert told == path
        assert "kind" in reason

    def test_a_fault_is_told_while_it_is_there(self, layout, registry):
        path = place(layout, b"[]")
        registry.scan()
        put(path, encode(RECORD))
        registry.scan()
        assert registry.faults == []

        put(path, b"[]")
        registry.scan()
        assert len(registry.faults) == 1
        os.unlink(path)
        registry.scan()
        assert registry.faults == []

    def test_reading_one_malformed_record_again_and_again_remembers_it_once(self, layout, registry):
        path = place(layout, b"[]")

        assert [registry.record(ME.key) for _ in range(100)] == [None] * 100
        assert [fault.path for fault in registry.faults] == [path]
        os.unlink(path)
        assert registry.record(ME.key) is None
        assert registry.faults == []

    @pytest.mark.parametrize("spoil", ["open to others", "a link", "a file"])
    def test_a_folder_that_is_not_ours_alone_is_refused(self, layout, registry, held, spoil):
        place(layout, encode(RECORD))
        if spoil == "open to others":
            os.chmod(layout.peers, 0o755)
        else:
            os.rename(layout.peers, layout.root + "/elsewhere")
            if spoil == "a link":
                os.symlink("elsewhere", layout.peers)
            else:
                put(layout.peers, b"")

        for read in (registry.listed, registry.scan, lambda: registry.record(ME.key)):
            with pytest.raises(UnsafeEndpoint, match="peers"):
                read()


class TestManyNeighbours:
    @pytest.fixture
    def last(self) -> SessionName:
        """A session whose key sorts behind every other one here."""
        many = (session_of(number, "pi") for number in count())
        return next(session for session in many if session.key.startswith("ffff"))

    @pytest.fixture
    def dead(self, layout: Layout) -> list[SessionName]:
        """A thousand sessions whose coordinators ended without a farewell, half of them with a lock file."""
        sessions = [session_of(number) for number in range(10, 1_010)]
        for number, session in enumerate(sessions):
            record = record_of(session)
            place(layout, encode(record), session.key)
            if number % 2:
                put(layout.session_lock(session.key), bytes_of(record.claim._asdict()).ljust(255) + b"\n")
        return sessions

    @pytest.mark.requirement("H-presence-16")
    def test_a_thousand_dead_records_do_not_hide_a_live_one_behind_them(self, layout, registry, dead, last):
        with living(layout, last):
            assert max(os.listdir(layout.peers)) == f"{last.key}.json"
            assert keys_of(registry.listed()) == [last.key]
            assert len(registry.scan()) == 1_001
            assert keys_of(registry.scan()) == sorted(keys_of(registry.scan()))

    @pytest.mark.requirement("C10")
    def test_beside_corrupt_neighbours_the_live_peer_is_listed_and_nothing_outside_is_read(
        self, layout, registry, dead, last, tmp_path
    ):
        outside = tmp_path / "outside.json"
        strangers = [session_of(number) for number in range(2_000, 2_006)]
        cut, shape, big, link, pipe, mode = (layout.record(session.key) for session in strangers)
        put(cut, encode(record_of(strangers[0]))[:100])
        put(shape, b"[]")
        put(big, encode(record_of(strangers[2])) + b" " * 5_000_000)
        put(outside, encode(record_of(strangers[3])))
        os.symlink(outside, link)
        os.mkfifo(pipe, 0o600)
        put(mode, encode(record_of(strangers[5])), mode=0o666)
        os.utime(outside, ns=(0, os.stat(outside).st_mtime_ns))
        with ExitStack() as stack:
            for session in strangers:  # so that nothing but its file keeps any of them out
                lock = stack.enter_context(HeldLock.acquire(layout.session_lock(session.key)))
                lock.write_owner(record_of(session).claim)
            stack.enter_context(living(layout, last))
            listings: list[list[str]] = []
            scanning = threading.Thread(
                target=lambda: listings.append(keys_of(registry.listed())), daemon=True
            )
            scanning.start()
            scanning.join(BOUND_S)

        assert listings == [[last.key]]
        assert sorted(fault.path for fault in registry.faults) == sorted([cut, shape, big, link, pipe, mode])
        assert os.stat(outside).st_atime_ns == 0  # read by nobody
        assert os.path.islink(link)
        assert len(os.listdir(layout.peers)) == 1_007


def long_after(layout: Layout) -> Registry:
    """Give a registry to which every record was written long ago."""
    return Registry(layout, now_ns=lambda: 1 << 62)


class TestReadOnce:
    def test_a_record_that_has_not_changed_is_not_parsed_again(self, layout):
        place(layout, encode(RECORD))
        registry = long_after(layout)

        (first,) = registry.scan()

        assert registry.scan()[0] is first
        assert registry.record(ME.key) is first

    def test_a_record_written_a_moment_ago_is_parsed_again_since_the_next_might_look_the_same(self, layout):
        path = place(layout, encode(RECORD))
        registry = Registry(layout, now_ns=lambda: os.stat(path).st_ctime_ns + 1_000_000)
        (first,) = registry.scan()

        (again,) = registry.scan()

        assert again == first
        assert again is not first

    def test_a_record_that_was_replaced_is_read_anew(self, layout):
        path = place(layout, encode(RECORD))
        registry = long_after(layout)
        registry.scan()
        other = RECORD._replace(presence=LEAD._replace(name="api-wörke"))  # of the same size
        put(path + ".new", encode(other))
        os.rename(path + ".new", path)

        assert os.stat(path).st_size == len(encode(RECORD))
        assert registry.scan() == [other]

    @pytest.mark.parametrize("spoil", SPOILS, ids=lambda spoil: spoil.__name__)
    def test_a_record_that_was_spoilt_is_not_remembered_as_it_was(self, layout, spoil: Spoil):
        path = place(layout, encode(RECORD))
        registry = long_after(layout)
        registry.scan()
        spoil(layout, path)

        assert RECORD not in registry.scan()
        assert registry.record(ME.key) != RECORD
        assert registry.instance(RECORD.instance_id) != RECORD

    def test_what_is_gone_is_not_kept(self, layout):
        registry = long_after(layout)
        for number in range(50):
            path = place(layout, encode(record_of(session_of(number))), session_of(number).key)
            registry.scan()
            os.unlink(path)
            if number % 2:
                registry.scan()
            else:
                registry.record(session_of(number).key)

            assert registry._known == {}

    def test_its_stamp_tells_every_version_by_one_stat(self, layout, registry):
        path = place(layout, encode(RECORD))
        first = registry.stamp(ME.key)
        assert first == Stamp(os.stat(path).st_ino, os.stat(path).st_ctime_ns, os.stat(path).st_size)
        assert registry.stamp(ME.key) == first

        put(path + ".new", encode(RECORD))
        os.rename(path + ".new", path)
        assert registry.stamp(ME.key) != first
        os.unlink(path)
        assert registry.stamp(ME.key) is None

    def test_a_link_has_a_stamp_of_its_own(self, layout, registry, tmp_path):
        put(tmp_path / "elsewhere", encode(RECORD))
        os.symlink(tmp_path / "elsewhere", layout.record(ME.key))

        stamp = registry.stamp(ME.key)
        assert stamp is not None
        assert stamp.inode != os.stat(tmp_path / "elsewhere").st_ino

    @pytest.mark.parametrize("key", ["", "../" + ME.key, ME.key + "x", "x" * 64])
    def test_what_is_no_key_chooses_no_file(self, layout, registry, key):
        with pytest.raises(InvalidParams):
            registry.stamp(key)


class TestInstance:
    @pytest.mark.parametrize("scanned", [True, False])
    def test_it_is_found_by_its_id_whether_or_not_it_was_seen_before(self, layout, registry, scanned):
        for number in range(5):
            place(layout, encode(record_of(session_of(number))), session_of(number).key)
        if scanned:
            registry.scan()

        assert registry.instance(RECORD.instance_id) == RECORD
        assert registry.instance("unknown") is None

    @pytest.mark.parametrize("scanned", [True, False])
    def test_an_id_that_two_sessions_claim_names_neither(self, layout, registry, scanned):
        for number in (1, 2):
            record = record_of(session_of(number), instance_id="twice")
            place(layout, encode(record), record.key)
        if scanned:
            registry.scan()

        assert registry.instance("twice") is None
        os.unlink(layout.record(session_of(2).key))
        found = registry.instance("twice")
        assert found is not None
        assert found.session == session_of(1)

    def test_an_instance_that_was_replaced_is_no_longer_found(self, layout, registry):
        place(layout, encode(RECORD))
        registry.scan()
        successor = record_of(ME, instance_id="the next")
        place(layout, encode(successor))

        assert registry.instance(RECORD.instance_id) is None
        assert registry.instance("the next") == successor

    def test_an_instance_that_moved_to_another_session_is_found_there(self, layout, registry):
        place(layout, encode(record_of(session_of(1), instance_id="moving")))
        registry.scan()
        os.unlink(layout.record(session_of(1).key))
        moved = record_of(session_of(2), instance_id="moving")
        place(layout, encode(moved), moved.key)

        assert registry.instance("moving") == moved

    @pytest.mark.parametrize("others", [0, 3])
    def test_an_instance_whose_record_went_bad_since_is_not_found(self, layout, registry, others):
        for number in range(2, 2 + others):
            place(layout, encode(record_of(session_of(number))), session_of(number).key)
        path = place(layout, encode(RECORD))
        registry.scan()
        put(path, b"[]")

        assert registry.instance(RECORD.instance_id) is None
        assert [fault.path for fault in registry.faults] == [path]


class TestNames:
    def test_a_sessions_names_are_its_target_in_the_role_it_shows_and_its_instances_peer_id(self):
        manager = record_of(ME, Presence("manager", "none"))

        assert names_of(RECORD) == (target_of("lead", ME.key), peer_id_of(RECORD.instance_id))
        assert names_of(manager)[0] == target_of("manager", ME.key)
        assert names_of(record_of(ME, None)) == names_of(RECORD)

    def test_the_next_instance_has_the_same_target_and_another_peer_id(self):
        (target, peer_id), successor = names_of(RECORD), record_of(ME, instance_id="the next")

        assert names_of(successor)[0] == target
        assert names_of(successor)[1] != peer_id

    def test_a_new_name_folder_pane_or_socket_makes_no_other_target(self):
        moved = LEAD._replace(name="other", cwd="/other", pane_id="p9", socket="/run/other.sock")

        assert names_of(record_of(ME, moved)) == names_of(RECORD)
        assert names_of(record_of(session_of(2), LEAD))[0] != names_of(RECORD)[0]

    def test_the_keys_of_all_session_folders_are_given_in_order_and_nothing_else(self, layout):
        keys = sorted(session_of(number).key for number in range(20))
        for key in (*keys, "not-a-key", ".hidden"):
            os.mkdir(os.path.join(layout.sessions, key))

        assert list(sleeping_keys(layout)) == keys
        assert list(sleeping_keys(Layout(layout.root + "/absent"))) == []
