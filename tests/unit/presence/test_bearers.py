"""Who can bear a target, told by names alone, and told anew whenever a name has come or gone."""

import os
import time
from pathlib import Path

import pytest

from herd.core.errors import UnsafeEndpoint
from herd.core.identity import SessionName, target_of
from herd.core.paths import Layout, open_layout
from herd.presence.bearers import Bearers

ONE, OTHER = SessionName("claude", "twin-1339143"), SessionName("claude", "twin-22396715")
"""Two sessions with one target."""

TARGET = target_of("lead", ONE.key)


@pytest.fixture
def layout(home: Path) -> Layout:
    return open_layout(str(home))


def later() -> int:
    """Give a time at which whatever is done now counts as long past."""
    return time.time_ns() + 10**9


def made(path: str) -> None:
    """Make a folder, at another moment than its parent last changed by the kernel's coarse clock."""
    parent = os.path.dirname(path)
    before = os.stat(parent).st_ctime_ns
    os.mkdir(path, 0o700)
    while os.stat(parent).st_ctime_ns == before:
        os.rmdir(path)
        os.mkdir(path, 0o700)


def test_a_session_is_known_by_its_folder_or_by_its_record(layout: Layout):
    os.mkdir(layout.session_folder(ONE.key), 0o700)
    Path(layout.record(OTHER.key)).touch(0o600)

    assert Bearers(layout).of(TARGET) == {ONE.key, OTHER.key}
    assert Bearers(layout).of(target_of("manager", ONE.key)) == {ONE.key}
    assert Bearers(layout).of("lead:0000000000") == frozenset()


@pytest.mark.parametrize("now_ns", [time.time_ns, later], ids=["just changed", "long settled"])
def test_one_that_comes_or_goes_is_noticed(layout: Layout, now_ns):
    bearers = Bearers(layout, now_ns)
    os.mkdir(layout.session_folder(ONE.key), 0o700)
    assert bearers.of(TARGET) == {ONE.key}

    for path in (layout.session_folder(OTHER.key), layout.record(OTHER.key)):
        made(path)
        assert bearers.of(TARGET) == {ONE.key, OTHER.key}
        os.rmdir(path)


def test_names_are_not_listed_again_while_none_has_come_or_gone(layout: Layout, monkeypatch):
    bearers = Bearers(layout, later)
    os.mkdir(layout.session_folder(ONE.key), 0o700)
    first = bearers.of(TARGET)
    with monkeypatch.context() as patched:
        patched.setattr(os, "listdir", lambda _: pytest.fail("the names were listed again"))
        again = bearers.of(TARGET)

    assert again is first


def test_a_folder_that_others_may_open_is_refused(layout: Layout):
    os.chmod(layout.peers, 0o755)

    with pytest.raises(UnsafeEndpoint):
        Bearers(layout).of(TARGET)
