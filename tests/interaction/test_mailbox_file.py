"""The file of a mailbox: made once, never mistaken for an empty one, and untouched by every refusal.

What is refused is refused to all who open mailboxes: the session's coordinator, a visitor who brings, and one
who looks. The whole folder is compared to the byte before and after.
"""

import asyncio
import json
import os
import shutil
import sqlite3
import stat
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from herd.core.errors import HerdError, NewerState, RecoveryRequired
from herd.core.limits import MAILBOX_APPLICATION_ID, MAILBOX_VERSION
from herd.core.locks import HeldLock
from herd.core.paths import Layout
from herd.mail import acceptance, counter, inbox, outbox, shown
from herd.mail.mailbox import Mailbox
from herd.mail.tables import SCRIPTS, deviations
from herd.mail.visit import look, visit
from herd.presence.session_file import read_session_file, write_session_file
from tests.fakes.mail import (
    ALICE,
    BOB,
    CAROL,
    CUSTODY,
    NOW,
    admission,
    envelope,
    inside,
    mailbox_of,
    opened,
    outgoing,
    sender,
    started_once,
    target,
)
from tests.fakes.records import layout_at

Openers = Callable[[Layout], None]
VERSION_AT = 60
APPLICATION_AT = 68


@pytest.fixture
def layout(home: Path) -> Layout:
    return layout_at(home)


@pytest.fixture
def path(layout: Layout) -> Path:
    """A mailbox of Bob's with a message in it."""
    inside(layout, BOB, received)
    return Path(layout.mailbox(BOB.key))


def received(connection: sqlite3.Connection) -> None:
    acceptance.accept(connection, envelope(), sender(), admission(CUSTODY, 32, NOW))


def touching_everything(connection: sqlite3.Connection, *_: object) -> list[Any]:
    outbox.pending(connection)
    shown.every(connection)
    counter.last_cursor(connection)
    return inbox.undelivered(connection)


def folder_as_it_is(folder: Path) -> dict[str, Any]:
    """Give every file of a folder: its bytes or where it points, its mode and its inode."""
    found: dict[str, Any] = {}
    for one in sorted(folder.iterdir()):
        status = one.lstat()
        content: Any = None
        if stat.S_ISREG(status.st_mode):
            content = one.read_bytes()
        elif stat.S_ISLNK(status.st_mode):
            content = os.readlink(one)
        found[one.name] = (content, oct(status.st_mode), status.st_ino, status.st_nlink)
    return found


def left_by_a_kill(path: Path, work: Callable[[sqlite3.Connection], object]) -> None:
    """Leave the mailbox as a process does that is killed after a commit: with its log."""
    kept = path.with_name("kept"), path.with_name("kept-wal")
    log = Path(f"{path}-wal")
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA wal_autocheckpoint = 0")
    work(connection)
    shutil.copy(path, kept[0])
    shutil.copy(log, kept[1])
    connection.close()
    for copy, place in zip(kept, (path, log), strict=True):
        os.replace(copy, place)
        place.chmod(0o600)
    Path(f"{path}-shm").unlink(missing_ok=True)


# --- who opens mailboxes ---------------------------------------------------------------------------


def by_its_coordinator(layout: Layout) -> None:
    async def open_and_read() -> None:
        async with mailbox_of(layout, BOB) as mailbox:
            await mailbox.run(touching_everything)

    asyncio.run(open_and_read())


def by_a_visitor_who_brings(layout: Layout) -> None:
    visit(layout, BOB.key, touching_everything)


def by_a_visitor_who_looks(layout: Layout) -> None:
    look(layout, BOB.key, touching_everything)


OPENERS = [by_its_coordinator, by_a_visitor_who_brings, by_a_visitor_who_looks]
every_opener = pytest.mark.parametrize("opener", OPENERS, ids=lambda opener: opener.__name__)


def refusal(opener: Openers, layout: Layout) -> HerdError:
    """Open, and give the refusal; the folder is the same to the byte before and after."""
    folder = Path(layout.session_folder(BOB.key))
    before = folder_as_it_is(folder)
    with pytest.raises(HerdError) as caught:
        opener(layout)
    assert folder_as_it_is(folder) == before
    return caught.value


# --- damage ----------------------------------------------------------------------------------------


def missing(path: Path) -> None:
    path.unlink()


def emptied(path: Path) -> None:
    os.truncate(path, 0)


def cut_inside_its_header(path: Path) -> None:
    os.truncate(path, 50)


def cut_in_the_middle(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def overwritten_behind_its_first_page(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[:4096] + b"\xa5" * (len(data) - 4096))


def a_text(path: Path) -> None:
    path.write_bytes(b"SQLite format 2\0 and then some" * 100)


def a_database_of_another_program(path: Path) -> None:
    other = path.parents[3] / "other"
    with closing(sqlite3.connect(other)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE inbox (a)")
    path.write_bytes(other.read_bytes())


def with_our_mark_and_no_table(path: Path) -> None:
    mark = path.read_bytes()[APPLICATION_AT : APPLICATION_AT + 4]
    a_database_of_another_program(path)
    patched(path, VERSION_AT, b"\0\0\0\1")
    patched(path, APPLICATION_AT, mark)


def of_version_0(path: Path) -> None:
    patched(path, VERSION_AT, b"\0\0\0\0")


def in_another_journal_mode(path: Path) -> None:
    patched(path, 18, b"\1\1")


def open_to_all(path: Path) -> None:
    path.chmod(0o666)


def readable_by_the_group(path: Path) -> None:
    path.chmod(0o640)


def a_symlink(path: Path) -> None:
    elsewhere = path.parents[3] / "elsewhere"
    path.rename(elsewhere)
    path.symlink_to(elsewhere)


def hard_linked(path: Path) -> None:
    os.link(path, path.parents[3] / "second name")


def a_fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path, 0o600)


def a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def beside_a_journal(path: Path) -> None:
    # A hot journal as SQLite writes it: opening the database would play it back into the file.
    header = (
        b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7\0\0\0\1" + bytes(4) + b"\0\0\0\1" + b"\0\0\2\0" + b"\0\0\x10\0"
    )
    page = b"\0\0\0\1" + bytes(4096) + bytes(4)
    journal = Path(f"{path}-journal")
    journal.write_bytes(header.ljust(512, b"\0") + page)
    journal.chmod(0o600)


def of_another_session(path: Path) -> None:
    layout = layout_of(path)
    inside(layout, CAROL, received)
    shutil.copy(layout.mailbox(CAROL.key), path)


def new_and_of_another_session(path: Path) -> None:
    layout = layout_of(path)
    inside(layout, CAROL, lambda _: None)
    shutil.copy(layout.mailbox(CAROL.key), path)


def of_another_custody(path: Path) -> None:
    layout = layout_of(path)
    file = started_once(layout, BOB)
    write_session_file(layout, file._replace(custody_id=str(uuid.uuid4())))


def layout_of(path: Path) -> Layout:
    return Layout(str(path.parents[2]))


def patched(path: Path, at: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


DAMAGE = [
    missing,
    emptied,
    cut_inside_its_header,
    cut_in_the_middle,
    overwritten_behind_its_first_page,
    a_text,
    a_database_of_another_program,
    with_our_mark_and_no_table,
    of_version_0,
    in_another_journal_mode,
    open_to_all,
    readable_by_the_group,
    a_symlink,
    hard_linked,
    a_fifo,
    a_folder,
    beside_a_journal,
    of_another_session,
    of_another_custody,
]
every_damage = pytest.mark.parametrize("damage", DAMAGE, ids=lambda damage: damage.__name__)


@pytest.mark.requirement("A-storage-07")
@every_opener
@every_damage
def test_a_mailbox_that_is_not_as_it_should_be_is_named_and_stays_as_it_was_found(
    layout: Layout, path: Path, damage: Callable[[Path], None], opener: Openers
):
    damage(path)

    fault = refusal(opener, layout)

    assert isinstance(fault, RecoveryRequired)
    assert str(path) in fault.message


@pytest.mark.requirement("A-storage-07")
@every_opener
@every_damage
def test_neither_does_the_log_of_a_killed_process_change_or_fold_into_it(
    layout: Layout, path: Path, damage: Callable[[Path], None], opener: Openers
):
    left_by_a_kill(path, lambda connection: outbox.enqueue(connection, outgoing()))
    log = Path(f"{path}-wal")
    before = log.read_bytes()
    assert before
    damage(path)

    fault = refusal(opener, layout)

    assert isinstance(fault, RecoveryRequired)
    assert str(path) in fault.message
    assert log.read_bytes() == before


@pytest.mark.requirement("A-storage-07")
@every_opener
def test_where_a_symlink_points_nothing_is_changed(layout: Layout, path: Path, opener: Openers):
    a_symlink(path)
    elsewhere = path.parents[3] / "elsewhere"
    before = elsewhere.read_bytes(), elsewhere.stat().st_mtime_ns

    refusal(opener, layout)

    assert (elsewhere.read_bytes(), elsewhere.stat().st_mtime_ns) == before


@pytest.mark.requirement("A-storage-13")
@every_opener
@pytest.mark.parametrize("killed", [False, True])
def test_a_mailbox_of_a_newer_version_is_called_newer_and_left_alone(
    layout: Layout, path: Path, opener: Openers, killed: bool
):
    if killed:
        left_by_a_kill(path, lambda connection: outbox.enqueue(connection, outgoing()))
    patched(path, VERSION_AT, (MAILBOX_VERSION + 1).to_bytes(4, "big"))

    fault = refusal(opener, layout)

    assert isinstance(fault, NewerState)
    assert str(path) in fault.message


@pytest.mark.requirement("A-storage-13")
@every_opener
def test_a_newer_version_that_only_the_log_tells_of_is_seen_too(layout: Layout, path: Path, opener: Openers):
    # A newer Herd changed the tables and was killed before its log was folded back.
    left_by_a_kill(
        path, lambda connection: connection.execute(f"PRAGMA user_version = {MAILBOX_VERSION + 1}")
    )
    assert path.read_bytes()[VERSION_AT : VERSION_AT + 4] == MAILBOX_VERSION.to_bytes(4, "big")

    assert isinstance(refusal(opener, layout), NewerState)


@every_opener
@pytest.mark.parametrize("killed", [True, False])
def test_what_an_older_herd_left_is_brought_up_to_date_with_all_its_mail(
    layout: Layout, path: Path, opener: Openers, killed: bool
):
    file = started_once(layout, BOB)
    path.unlink()
    with closing(sqlite3.connect(path, isolation_level=None)) as older:
        older.execute("PRAGMA journal_mode = WAL")
        older.executescript(SCRIPTS[0])
        older.execute("INSERT INTO custody VALUES (1, ?, ?)", (file.custody_id, BOB.key))
        older.execute(f"PRAGMA application_id = {MAILBOX_APPLICATION_ID}")
        older.execute("PRAGMA user_version = 1")
        older.execute(
            "INSERT INTO outbox VALUES (1, 'm-1', ?, ?, ?, ?, 'hello', NULL, NULL, 'm-1', 'm-1', 0, 0, 5,"
            " NULL, 'pending', 1, NULL, NULL, NULL, NULL)",
            (target(ALICE), ALICE.key, "d" * 64, json.dumps(sender(BOB)._asdict())),
        )
    path.chmod(0o600)
    if killed:
        left_by_a_kill(path, lambda connection: connection.execute("UPDATE counter SET value = 7"))

    opener(layout)

    [row] = inside(layout, BOB, outbox.pending)
    assert (row.message_id, row.content, row.run, row.since) == ("m-1", "hello", None, None)
    with closing(sqlite3.connect(path)) as now:
        assert deviations(now, MAILBOX_VERSION) == []
        assert now.execute("PRAGMA user_version").fetchone() == (MAILBOX_VERSION,)


@pytest.mark.requirement("A-storage-07")
def test_damage_where_nobody_looks_yet_keeps_a_coordinator_from_starting(layout: Layout, path: Path):
    spoil_an_index(path)

    assert "damaged" in refusal(by_its_coordinator, layout).message


def test_a_file_that_its_log_makes_whole_again_is_not_damaged(layout: Layout, path: Path):
    # So does a process leave it that was killed while it folded its log back.
    left_by_a_kill(path, lambda connection: outbox.enqueue(connection, outgoing("m-2")))
    spoil_an_index(path)

    assert [row.message_id for row in inside(layout, BOB, outbox.pending)] == ["m-2"]
    by_its_coordinator(layout)


def spoil_an_index(path: Path) -> None:
    """Overwrite the page of an index that every message sent changes, and that no look needs."""
    with closing(sqlite3.connect(f"file:{path}?immutable=1", uri=True)) as connection:
        query = "SELECT rootpage FROM sqlite_schema WHERE name = 'outbox_cursor'"
        page = connection.execute(query).fetchone()[0]
        size = connection.execute("PRAGMA page_size").fetchone()[0]
    patched(path, (page - 1) * size, b"\xa5" * size)


@every_opener
def test_a_stranger_that_has_it_open_is_no_damage_and_it_opens_when_he_is_gone(
    layout: Layout, path: Path, opener: Openers
):
    with closing(sqlite3.connect(path, isolation_level=None)) as stranger:
        stranger.execute("PRAGMA locking_mode = EXCLUSIVE")
        stranger.execute("BEGIN EXCLUSIVE")
        with pytest.raises(RecoveryRequired) as caught:
            opener(layout)
        stranger.execute("ROLLBACK")

    assert str(path) in caught.value.message
    assert "damaged" not in caught.value.message
    opener(layout)


def test_a_coordinator_that_could_not_open_it_now_opens_it_later(layout: Layout, path: Path):
    told: list[HerdError | None] = []

    async def refused_for_now() -> list[Any]:
        stranger = sqlite3.connect(path, isolation_level=None)
        stranger.execute("PRAGMA locking_mode = EXCLUSIVE")
        stranger.execute("BEGIN EXCLUSIVE")
        with HeldLock.acquire(layout.mailbox_lock(BOB.key)):
            mailbox = Mailbox(layout, started_once(layout, BOB), health=told.append)
            with pytest.raises(RecoveryRequired):
                await mailbox.open()
            stranger.close()
            try:
                return list(await mailbox.run(touching_everything))
            finally:
                await mailbox.close()

    assert [row.message_id for row in asyncio.run(refused_for_now())] == ["m-1"]
    assert [type(fault) for fault in told] == [RecoveryRequired, type(None)]


@every_opener
def test_a_log_open_to_others_is_refused(layout: Layout, path: Path, opener: Openers):
    left_by_a_kill(path, lambda connection: outbox.enqueue(connection, outgoing()))
    Path(f"{path}-wal").chmod(0o666)

    assert f"{path}-wal" in refusal(opener, layout).message


# --- session.json ----------------------------------------------------------------------------------


def cut_short(data: bytes) -> bytes:
    return data[: len(data) // 2]


def no_bytes(_: bytes) -> bytes:
    return b""


def naming_another_session(data: bytes) -> bytes:
    return data.replace(BOB.session_id.encode(), CAROL.session_id.encode())


def without_a_field(data: bytes) -> bytes:
    return data.replace(b'"kind"', b'"sort"')


@pytest.mark.requirement("A-storage-07", "A-storage-02")
@pytest.mark.parametrize("spoilt", [cut_short, no_bytes, naming_another_session, without_a_field])
@pytest.mark.parametrize("opener", [by_a_visitor_who_brings, by_a_visitor_who_looks])
def test_a_session_file_that_is_corrupt_or_names_another_session_closes_the_folder(
    layout: Layout, path: Path, opener: Openers, spoilt: Callable[[bytes], bytes]
):
    file = Path(layout.session_file(BOB.key))
    file.write_bytes(spoilt(file.read_bytes()))

    fault = refusal(opener, layout)

    assert isinstance(fault, RecoveryRequired)
    assert str(file) in fault.message


@pytest.mark.requirement("A-storage-13")
@pytest.mark.parametrize("opener", [by_a_visitor_who_brings, by_a_visitor_who_looks])
def test_a_session_file_of_a_newer_version_closes_the_folder(layout: Layout, path: Path, opener: Openers):
    file = Path(layout.session_file(BOB.key))
    file.write_bytes(file.read_bytes().replace(b'"version": 3', b'"version": 4'))

    fault = refusal(opener, layout)

    assert isinstance(fault, NewerState)
    assert str(file) in fault.message


# --- making ----------------------------------------------------------------------------------------


@pytest.mark.requirement("A-storage-01")
async def test_there_is_no_mailbox_until_something_needs_it(layout: Layout):
    path = Path(layout.mailbox(BOB.key))
    async with mailbox_of(layout, BOB) as mailbox:
        assert await mailbox.read(touching_everything) is None
        assert mailbox.custody_id is None
        assert "mailbox.sqlite3" not in folder_as_it_is(path.parent)

        await mailbox.run(counter.next_cursor)
        assert "mailbox.sqlite3" in folder_as_it_is(path.parent)
    assert str(path) == f"{layout.root}/sessions/{BOB.key}/mailbox.sqlite3"


def test_a_look_at_a_session_without_a_mailbox_makes_none(layout: Layout):
    started_once(layout, BOB)

    assert look(layout, BOB.key, touching_everything) is None
    assert os.listdir(layout.session_folder(BOB.key)) == ["session.json"]


@pytest.mark.requirement("A-storage-01")
def test_all_of_a_sessions_mail_is_in_that_one_file(layout: Layout):
    with opened(layout, BOB) as connection:
        received(connection)
        outbox.enqueue(connection, outgoing("m-2"))
        inbox.count_handovers(connection, [1], NOW)
        inbox.confirm(connection, [1], "hook", NOW)
        counter.tell(connection, 2)

    assert sorted(os.listdir(layout.session_folder(BOB.key))) == ["mailbox.sqlite3", "session.json"]
    with opened(layout, BOB) as connection:
        (row,) = inbox.by_id(connection, "m-1")
        assert (row.content, row.handovers, row.evidence, row.receipt.delivered_at) == (
            "hello",
            1,
            "hook",
            NOW,
        )
        assert [sent.message_id for sent in outbox.pending(connection)] == ["m-2"]
        assert (counter.last_cursor(connection), counter.told(connection)) == (3, 2)


@pytest.mark.requirement("A-custody-17")
def test_a_mailbox_has_a_random_custody_that_stands_in_the_session_file_before_any_row(layout: Layout):
    custodies = []
    for session in (BOB, CAROL):
        with opened(layout, session) as connection:
            file = read_session_file(layout, session.key)
            assert file is not None
            custodies.append(file.custody_id)
            counts = [connection.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in TABLES]
            assert counts == [0] * len(TABLES)

    assert len(set(custodies)) == 2
    assert [uuid.UUID(custody).version for custody in custodies] == [4, 4]


TABLES = ("inbox", "outbox", "shown")


def test_a_custody_stays_for_as_long_as_there_is_a_mailbox(layout: Layout):
    def custody(connection: sqlite3.Connection) -> object:
        return connection.execute("SELECT custody_id, session_key FROM custody").fetchall()

    first = inside(layout, BOB, custody)

    assert inside(layout, BOB, custody) == first
    assert first[0][1] == BOB.key


@pytest.fixture
def umask(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(request.param)
    yield
    os.umask(before)


@pytest.mark.requirement("A-endpoint-07")
@pytest.mark.parametrize("umask", [0o000, 0o277], indirect=True)
def test_the_file_and_its_log_are_private_whatever_the_umask(layout: Layout, umask: None):
    started_once(layout, BOB)
    with opened(layout, BOB) as connection:
        received(connection)
        files = sorted(Path(layout.session_folder(BOB.key)).iterdir())
        modes = {file.name: oct(stat.S_IMODE(file.lstat().st_mode)) for file in files}

    assert modes == dict.fromkeys(["mailbox.sqlite3", "mailbox.sqlite3-wal", "session.json"], "0o600")


@pytest.mark.requirement("A-storage-14")
def test_it_is_open_as_durability_and_our_own_checkpoints_need_it(layout: Layout):
    started_once(layout, BOB)
    asked = (
        "journal_mode",
        "synchronous",
        "locking_mode",
        "wal_autocheckpoint",
        "foreign_keys",
        "trusted_schema",
    )
    with opened(layout, BOB) as connection:
        settings = [connection.execute(f"PRAGMA {name}").fetchone()[0] for name in asked]

    assert settings == ["wal", 2, "exclusive", 0, 1, 0]


def test_while_it_is_open_nobody_else_can_open_it_even_without_our_lock(layout: Layout, path: Path):
    with opened(layout, BOB) as connection:
        received(connection)
        with (
            closing(sqlite3.connect(path, timeout=0)) as second,
            pytest.raises(sqlite3.OperationalError, match="locked"),
        ):
            second.execute("SELECT * FROM inbox").fetchall()


def test_a_data_root_with_strange_characters_is_a_path_like_any_other(home: Path):
    root = home / "100%41 ?mode=ro#\u00fc"
    root.mkdir(0o700)
    layout = layout_at(root)

    inside(layout, BOB, received)

    assert [row.message_id for row in inside(layout, BOB, inbox.undelivered)] == ["m-1"]
    assert Path(layout.mailbox(BOB.key)).exists()


# --- crashes ---------------------------------------------------------------------------------------


def test_what_was_committed_before_a_kill_is_there_after_it(layout: Layout, path: Path):
    left_by_a_kill(path, lambda connection: outbox.enqueue(connection, outgoing("m-2")))

    assert [row.message_id for row in inside(layout, BOB, outbox.pending)] == ["m-2"]
    assert sorted(os.listdir(path.parent)) == ["mailbox.sqlite3", "session.json"]


def test_a_copy_that_a_kill_left_is_removed_by_the_next_who_has_to_look(layout: Layout, path: Path):
    left_by_a_kill(path, lambda connection: outbox.enqueue(connection, outgoing("m-2")))
    (path.parent / ".check-old").mkdir()
    shutil.copy(path, path.parent / ".check-old")

    by_its_coordinator(layout)

    assert sorted(os.listdir(path.parent)) == ["mailbox.sqlite3", "session.json"]


def test_a_mailbox_that_was_not_finished_is_made_anew(layout: Layout):
    started_once(layout, BOB)
    folder = Path(layout.session_folder(BOB.key))
    for name in (".mailbox.1", ".mailbox.1-wal", ".mailbox.2-journal"):
        (folder / name).write_bytes(b"half of it")

    inside(layout, BOB, received)

    assert sorted(os.listdir(folder)) == ["mailbox.sqlite3", "session.json"]


def unnamed(layout: Layout) -> str:
    """Take the custody id out of `session.json`, as if the crash had come before it was written there."""
    file = started_once(layout, BOB)
    write_session_file(layout, file._replace(custody_id=None))
    return str(file.custody_id)


@every_opener
def test_a_crash_between_making_and_naming_keeps_the_mailbox_that_was_made(layout: Layout, opener: Openers):
    with opened(layout, BOB):
        pass
    custody_id = unnamed(layout)
    path = Path(layout.mailbox(BOB.key))
    inode = path.stat().st_ino

    inside(layout, BOB, received)

    assert started_once(layout, BOB).custody_id == custody_id
    assert path.stat().st_ino == inode
    opener(layout)


@pytest.mark.requirement("A-storage-07")
@pytest.mark.parametrize("opener", [by_its_coordinator, by_a_visitor_who_brings])
@pytest.mark.parametrize("killed", [False, True])
def test_a_mailbox_with_mail_that_no_session_file_knows_is_never_adopted(
    layout: Layout, path: Path, opener: Openers, killed: bool
):
    if killed:
        left_by_a_kill(path, lambda connection: outbox.enqueue(connection, outgoing("m-2")))
    unnamed(layout)

    fault = refusal(opener, layout)

    assert isinstance(fault, RecoveryRequired)
    assert str(path) in fault.message


@pytest.mark.requirement("A-storage-07")
@pytest.mark.parametrize("opener", [by_its_coordinator, by_a_visitor_who_brings])
@pytest.mark.parametrize(
    "damage",
    [
        emptied,
        cut_in_the_middle,
        overwritten_behind_its_first_page,
        a_symlink,
        a_text,
        new_and_of_another_session,
    ],
)
def test_what_stands_in_the_place_of_a_first_mailbox_is_neither_taken_nor_replaced(
    layout: Layout, path: Path, opener: Openers, damage: Callable[[Path], None]
):
    damage(path)
    unnamed(layout)

    assert isinstance(refusal(opener, layout), RecoveryRequired)


@pytest.mark.requirement("A-storage-07")
@pytest.mark.parametrize("opener", [by_its_coordinator, by_a_visitor_who_brings])
def test_the_log_of_a_lost_mailbox_is_not_folded_into_a_new_one(layout: Layout, path: Path, opener: Openers):
    left_by_a_kill(path, lambda connection: outbox.enqueue(connection, outgoing("m-2")))
    path.unlink()
    unnamed(layout)

    assert f"{path}-wal" in refusal(opener, layout).message


@pytest.mark.parametrize("opener", [by_its_coordinator, by_a_visitor_who_brings])
def test_a_mailbox_that_cannot_be_made_now_is_made_later(layout: Layout, opener: Openers):
    started_once(layout, BOB)
    folder = Path(layout.session_folder(BOB.key))
    (folder / ".mailbox.1").mkdir()

    fault = refusal(opener, layout)
    assert isinstance(fault, RecoveryRequired)
    assert layout.mailbox(BOB.key) in fault.message

    (folder / ".mailbox.1").rmdir()
    opener(layout)
    assert Path(layout.mailbox(BOB.key)).exists()


def test_a_coordinator_that_was_refused_at_its_start_is_refused_ever_after(layout: Layout, path: Path):
    kept = path.with_name("kept")
    shutil.copy(path, kept)
    emptied(path)

    async def refused_for_good() -> None:
        with HeldLock.acquire(layout.mailbox_lock(BOB.key)):
            mailbox = Mailbox(layout, started_once(layout, BOB))
            with pytest.raises(RecoveryRequired):
                await mailbox.open()
            shutil.copyfile(kept, path)
            for call in (mailbox.run, mailbox.read, mailbox.start):
                with pytest.raises(RecoveryRequired, match="is empty"):
                    await call(touching_everything)
            await mailbox.close()

    asyncio.run(refused_for_good())
