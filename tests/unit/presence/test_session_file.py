"""What is durable about a session: written whole, and never read as "nothing there" when it is damaged."""

import json
import os
import stat
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from herd.core.errors import NewerState, RecoveryRequired, UnsafeEndpoint
from herd.core.identity import SessionName
from herd.core.paths import Layout
from herd.presence.scopes import Extent
from herd.presence.session_file import (
    SessionFile,
    SessionFiles,
    amend_session_file,
    read_session_file,
    write_session_file,
)
from tests.fakes.records import bytes_of, layout_at, put, seen, session_of

ME = SessionName("pi", "ünï-1", "2026-08-20")
SHAPE: dict[str, Any] = {
    "version": 3,
    "host": "pi",
    "session_id": "ünï-1",
    "created": "2026-08-20",
    "kind": "managed",
    "role": "manager",
    "group": "5" * 64,
    "custody_id": "custody",
    "scope": "repository",
    "workspace": "/home/me/shop",
    "repository": "/home/me/shop/.git",
    "socket": "/run/herdr.sock",
}
EXTENT = Extent("repository", "/home/me/shop", "/home/me/shop/.git")
FILE = SessionFile(ME, "managed", "manager", "5" * 64, "custody", EXTENT, "/run/herdr.sock")
FIRST = {name: SHAPE[name] for name in SHAPE if name not in {"scope", "workspace", "repository", "socket"}}
"""What the version that knew no scopes wrote."""


@pytest.fixture
def layout(home) -> Layout:
    return layout_at(home)


@pytest.fixture
def path(layout: Layout) -> str:
    os.mkdir(layout.session_folder(ME.key), 0o700)
    return layout.session_file(ME.key)


def test_a_session_that_was_never_started_has_none(layout):
    assert read_session_file(layout, ME.key) is None
    os.mkdir(layout.session_folder(ME.key), 0o700)
    assert read_session_file(layout, ME.key) is None


@pytest.mark.parametrize("file", [FILE, SessionFile(ME)])
def test_what_was_written_is_read_as_it_was(layout, file):
    write_session_file(layout, file)

    assert read_session_file(layout, ME.key) == file


def test_a_new_session_is_an_ordinary_lead_without_group_and_mailbox(layout):
    write_session_file(layout, SessionFile(ME))

    with open(layout.session_file(ME.key), "rb") as written:
        assert json.load(written) == {
            **SHAPE,
            "kind": "ordinary",
            "role": "lead",
            "group": None,
            "custody_id": None,
            "scope": "machine",
            "workspace": None,
            "repository": None,
            "socket": None,
        }


def test_what_knew_no_scopes_is_read_as_narrowed_by_nothing(layout, path):
    put(path, bytes_of({**FIRST, "version": 1}))

    assert read_session_file(layout, ME.key) == FILE._replace(extent=Extent("machine"), socket=None)


def test_what_knew_no_socket_is_read_as_proving_none(layout, path):
    second = {name: value for name, value in SHAPE.items() if name != "socket"}
    put(path, bytes_of({**second, "version": 2}))

    assert read_session_file(layout, ME.key) == FILE._replace(socket=None)


class TestAmending:
    def test_what_another_thread_wrote_meanwhile_stands(self, layout):
        started = SessionFile(ME)
        write_session_file(layout, started)
        amend_session_file(layout, started, custody_id="custody")

        amended = amend_session_file(layout, started, extent=EXTENT)

        assert amended == SessionFile(ME, custody_id="custody", extent=EXTENT)
        assert read_session_file(layout, ME.key) == amended

    def test_what_says_it_already_is_not_written(self, layout):
        write_session_file(layout, FILE)
        before = seen(layout.session_file(ME.key))

        assert amend_session_file(layout, SessionFile(ME), extent=EXTENT, custody_id="custody") == FILE
        assert seen(layout.session_file(ME.key)) == before

    def test_a_file_that_is_not_there_is_made(self, layout):
        assert amend_session_file(layout, SessionFile(ME), extent=EXTENT) == SessionFile(ME, extent=EXTENT)
        assert read_session_file(layout, ME.key) == SessionFile(ME, extent=EXTENT)


def test_the_file_and_its_folder_are_private_and_it_is_replaced_whole(layout):
    write_session_file(layout, SessionFile(ME))
    path = layout.session_file(ME.key)
    first = os.stat(path)
    write_session_file(layout, FILE)

    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    assert stat.S_IMODE(os.stat(os.path.dirname(path)).st_mode) == 0o700
    assert os.stat(path).st_ino != first.st_ino
    assert os.listdir(os.path.dirname(path)) == ["session.json"]


def test_a_folder_that_is_open_to_others_is_refused_before_anything_is_written(layout):
    os.mkdir(layout.session_folder(ME.key))
    os.chmod(layout.session_folder(ME.key), 0o755)

    with pytest.raises(UnsafeEndpoint):
        write_session_file(layout, FILE)
    assert os.listdir(layout.session_folder(ME.key)) == []


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff",
        b"[" * 5_000,
        json.dumps(SHAPE).encode("utf-16"),
        json.dumps(SHAPE).encode()[:-1] + b',"kind":"ordinary"}',
        bytes_of({**SHAPE, "extra": 1}),
        bytes_of({**SHAPE, "version": 0}),
        bytes_of({**SHAPE, "version": "1"}),
        bytes_of({**SHAPE, "version": True}),
        bytes_of({**SHAPE, "kind": "chief"}),
        bytes_of({**SHAPE, "role": "boss"}),
        bytes_of({**SHAPE, "role": None}),
        bytes_of({**SHAPE, "group": 5}),
        bytes_of({**SHAPE, "custody_id": ""}),
        bytes_of({**SHAPE, "session_id": ""}),
        bytes_of({**SHAPE, "session_id": "another"}),
        bytes_of({**SHAPE, "host": "claude"}),
        bytes_of({**SHAPE, "created": ""}),
        bytes_of({**SHAPE, "version": 1}),
        bytes_of({**SHAPE, "scope": "world"}),
        bytes_of({**SHAPE, "workspace": ""}),
        bytes_of({**SHAPE, "workspace": "/" * 2_049}),
        bytes_of({**SHAPE, "repository": 5}),
        *(bytes_of({name: value for name, value in SHAPE.items() if name != left_out}) for left_out in SHAPE),
    ],
)
def test_a_damaged_file_is_reported_by_its_path_and_kept(layout, path, data):
    put(path, data)
    before = seen(path)

    with pytest.raises(RecoveryRequired) as refused:
        read_session_file(layout, ME.key)

    assert path in refused.value.message
    assert refused.value.details == {"path": path}
    assert seen(path) == before


@pytest.mark.parametrize("more", [{}, {"later": [1]}, {"kind": "guest"}])
def test_a_file_of_a_newer_version_is_left_alone_whatever_it_says(layout, path, more):
    put(path, bytes_of({**SHAPE, "version": 4, **more}))
    before = seen(path)

    with pytest.raises(NewerState, match="version 4") as refused:
        read_session_file(layout, ME.key)

    assert path in refused.value.message
    assert seen(path) == before


def test_an_oversized_file_is_reported_and_not_cut(layout, path):
    put(path, bytes_of(SHAPE).ljust(16_385))

    with pytest.raises(RecoveryRequired, match="16384"):
        read_session_file(layout, ME.key)


@pytest.mark.parametrize("spoil", ["a link", "a fifo", "open to others"])
def test_what_is_no_private_file_of_ours_is_refused(layout, path, spoil, tmp_path):
    put(tmp_path / "elsewhere", bytes_of(SHAPE))
    if spoil == "a link":
        os.symlink(tmp_path / "elsewhere", path)
    elif spoil == "a fifo":
        os.mkfifo(path, 0o600)
    else:
        put(path, bytes_of(SHAPE), mode=0o644)

    with pytest.raises(UnsafeEndpoint):
        read_session_file(layout, ME.key)


def test_a_file_in_another_sessions_folder_binds_nothing(layout):
    write_session_file(layout, FILE)
    os.rename(layout.session_folder(ME.key), layout.session_folder(session_of(1).key))

    with pytest.raises(RecoveryRequired, match="another session"):
        read_session_file(layout, session_of(1).key)


@given(st.binary(max_size=300) | st.recursive(st.none() | st.text(), st.lists).map(bytes_of))
def test_no_bytes_do_anything_but_be_reported(tmp_path_factory, data):
    layout = Layout(str(tmp_path_factory.mktemp("root")))
    os.makedirs(layout.session_folder(ME.key), 0o700)
    put(layout.session_file(ME.key), data)

    with pytest.raises(RecoveryRequired):
        read_session_file(layout, ME.key)


# --- files read before -----------------------------------------------------------------------------


def long_settled() -> int:
    """Give a time at which whatever is done now counts as long past."""
    return time.time_ns() + 10**9


def test_a_file_that_stays_as_it_is_is_read_once(layout, monkeypatch):
    write_session_file(layout, SessionFile(ME))
    files = SessionFiles(layout, long_settled)
    first = files.read(ME.key)
    with monkeypatch.context() as patched:
        patched.setattr(os, "open", lambda *_, **__: pytest.fail("it was opened again"))
        again = files.read(ME.key)

    assert again is first


@pytest.mark.parametrize("now_ns", [time.time_ns, long_settled], ids=["just changed", "long settled"])
def test_a_file_that_was_replaced_or_removed_is_noticed(layout, now_ns):
    files = SessionFiles(layout, now_ns)
    assert files.read(ME.key) is None
    write_session_file(layout, SessionFile(ME))
    assert files.read(ME.key) == SessionFile(ME)
    write_session_file(layout, SessionFile(ME, custody_id="custody-1"))
    assert files.read(ME.key) == SessionFile(ME, custody_id="custody-1")

    os.unlink(layout.session_file(ME.key))
    assert files.read(ME.key) is None


def test_a_file_that_was_opened_to_others_is_refused(layout):
    files = SessionFiles(layout)
    write_session_file(layout, SessionFile(ME))
    assert files.read(ME.key) == SessionFile(ME)
    os.chmod(layout.session_file(ME.key), 0o644)

    with pytest.raises(UnsafeEndpoint):
        files.read(ME.key)
