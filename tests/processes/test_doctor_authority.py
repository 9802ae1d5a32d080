"""What `herd doctor` says of the authority lock: who keeps it, and that its count is damaged."""

import os
from pathlib import Path

import pytest

from tests.fakes.assignments import lock_of
from tests.processes.conftest import Machine


def looks(machine: Machine) -> list[dict[str, str]]:
    shown = machine.cron.run("doctor", "--json")
    found = [one for one in shown.json["findings"] if not one["ok"]]
    assert shown.status == (8 if found else 0)
    return found


@pytest.mark.parametrize("content", [b"spoilt", b"7\n", b"\0" * 21, b"1" * 40])
def test_a_count_that_is_no_number_is_named_with_what_mends_it_and_left(machine: Machine, content: bytes):
    machine.session("claude", "alice", name="alice").end()
    path = Path(machine.layout.authority_generation)
    path.write_bytes(content)

    [found] = looks(machine)

    assert (found["what"], str(path) in found["detail"]) == ("authority", True)
    assert "End every session" in found["next_step"]
    assert "remove the file" in found["next_step"]
    assert path.read_bytes() == content
    path.unlink()
    assert looks(machine) == []
    machine.session("codex", "bob")
    assert path.read_bytes() == b"%020d\n" % 1


@pytest.mark.parametrize("way", ["shared", "exclusive"])
def test_who_keeps_the_lock_is_named_where_the_kernel_tells_and_nothing_is_counted(
    machine: Machine, way: str
):
    machine.session("claude", "alice", name="alice").end()
    lock = lock_of(machine.layout)
    with getattr(lock, way)():
        before = lock.generation()
        found = looks(machine)
        assert lock.generation() == before
    lock.close()

    assert {one["what"] for one in found} == {"authority"}
    assert any(machine.layout.authority_lock in one["detail"] for one in found)
    for one in found:
        told = f"process {os.getpid()} holds" in one["detail"] and f"-p {os.getpid()}" in one["next_step"]
        assert told or "lsof" in one["next_step"]
    assert looks(machine) == []
