"""Assignments on the command line: shown, named where they are corrupt, and repaired by a person alone."""

import os
from pathlib import Path

import pytest

from assignments.scan import Scans
from herd.core.errors import EligibilityUnverified
from herd.core.identity import SessionName, target_of
from herd.core.locks import HeldLock
from tests.fakes.assignments import assigned, assignment_of, bytes_of, lock_of, path_of, shape_of
from tests.fakes.herd_session import SessionEndedError
from tests.fakes.records import put, seen
from tests.processes.conftest import Machine

ALICE, BOB = SessionName("claude", "alice"), SessionName("claude", "bob")
SOUND = assignment_of(1, session=BOB)
SPOILT = assignment_of(2, socket="/run/herdr.sock", session=ALICE)
HALF = b'{"version": 1, "id":'


def spoilt(machine: Machine, content: bytes = HALF) -> Path:
    assigned(machine.layout, SOUND, SPOILT)
    path = path_of(machine.layout, SPOILT)
    put(path, content)
    return path


def is_complete(machine: Machine) -> bool:
    with lock_of(machine.layout).shared() as hold:
        return Scans(machine.layout, lock_of(machine.layout)).scan(hold).lacking is None


def looks(machine: Machine) -> list[str]:
    """Give the lines of what has to be looked at, and of what to do."""
    lines = machine.cron.run("doctor").text.splitlines()
    return [line for line in lines if line.startswith(("LOOK", "       ->"))]


@pytest.mark.requirement("H-assign-09")
def test_the_doctor_names_a_corrupt_record_and_leaves_it(machine: Machine):
    path = spoilt(machine, b'{"version": 1, "' + b"x" * 9_000 + b'": 1}')
    before = seen(path), path.read_bytes()

    shown = machine.cron.run("doctor", "--json")

    assert shown.status == 8
    [finding] = [one for one in shown.json["findings"] if not one["ok"]]
    assert finding["what"] == "assignment"
    assert finding["detail"].startswith(f"RECOVERY_REQUIRED: {path} ")
    assert len(finding["detail"]) < len(str(path)) + 300
    assert "`herd doctor --repair`" in finding["next_step"]
    listed = machine.cron.run("assignments", "--json")
    assert (listed.status, listed.refusal["code"], listed.refusal["path"]) == (
        8,
        "RECOVERY_REQUIRED",
        str(path),
    )
    assert [one["branch"] for one in listed.json["assignments"]] == [SOUND.branch]
    assert (seen(path), path.read_bytes()) == before


def test_without_a_record_the_doctor_says_nothing_of_them_and_else_how_many(machine: Machine):
    assert "assignment" not in machine.cron.run("doctor").text
    assigned(machine.layout, SOUND)
    assert "ok   assignments: 1 on record, each of them whole" in machine.cron.run("doctor").text
    assert looks(machine) == []


def test_the_doctor_names_two_records_of_one_session_and_what_is_open_to_others(machine: Machine):
    twin = SPOILT._replace(session=BOB)
    assigned(machine.layout, SOUND, twin)
    first, step = looks(machine)
    assert all(str(path_of(machine.layout, one)) in first for one in (SOUND, twin))
    assert "one session is named by 2 records" in first
    assert "Decide which of them holds" in step

    os.chmod(path_of(machine.layout, twin), 0o644)
    first, step = looks(machine)
    assert "has mode 0644, not 0600" in first
    assert "chmod 600" in step
    os.chmod(path_of(machine.layout, twin), 0o600)
    os.chmod(path_of(machine.layout, twin).parents[1], 0o755)
    assert len(looks(machine)) == 2


@pytest.mark.parametrize("way", ["asked", "--yes"])
def test_a_person_sets_a_corrupt_record_aside_and_verdicts_take_no_notice_of_it(machine: Machine, way: str):
    machine.session("claude", "alice", name="alice")
    path = spoilt(machine)
    sound = seen(path_of(machine.layout, SOUND))
    assert not is_complete(machine)
    agents = machine.inside.run("doctor", "--repair", "--yes", "--json")
    assert (agents.status, agents.refusal["code"]) == (4, "CAPABILITY_DENIED")
    unasked = machine.shell.run("doctor", "--repair", "--json", stdin=b"y\n")
    assert (unasked.status, unasked.refusal["code"]) == (2, "INVALID_PARAMS")
    assert "--yes" in unasked.refusal["hint"]
    person, process = machine.terminal.open()
    os.write(person, b"n\n")
    refused = machine.shell.run("doctor", "--repair", "--json", stdin=process)
    assert (refused.status, refused.refusal["message"]) == (2, "nothing was set aside")
    assert path.read_bytes() == HALF

    if way == "asked":
        os.write(person, b"y\n")
        done = machine.shell.run("doctor", "--repair", stdin=process)
        assert f"{path} is not JSON" in done.text
        assert "[y/N]" in done.text
    else:
        done = machine.shell.run("doctor", "--repair", "--yes")
    assert done.status == 0

    [aside] = path.parent.glob("*.aside")
    assert f"{path} is kept as {aside}" in done.text
    assert aside.read_bytes() == HALF
    assert not path.exists()
    assert seen(path_of(machine.layout, SOUND)) == sound
    assert is_complete(machine)
    assert looks(machine) == []
    again = machine.shell.run("doctor", "--repair", "--json")
    assert (again.status, again.json) == (0, {"set_aside": []})


@pytest.mark.requirement("H-assign-19")
def test_nobody_writes_to_anybody_until_a_person_has_set_the_corrupt_record_aside(machine: Machine):
    alice = machine.session("claude", "alice", name="alice")
    machine.session("claude", "carol", name="carol", parent=machine.new_host())
    carol = alice.until_listed("carol")
    alice.send(carol, "before")
    path = spoilt(machine)
    agent = machine.new_host(machine.host)
    attempts = (
        (machine.inside, ["doctor", "--repair", "--yes"], 4),
        (machine.command_line(agent), ["doctor", "--repair", "--yes"], 4),
        (machine.shell, ["doctor", "--repair"], 2),
        (machine.shell, ["doctor"], 8),
        (machine.cron, ["doctor", "--repair"], 4),
        (machine.cron, ["doctor", "--repair", "--yes"], 4),  # as what an agent's command has cut loose
    )
    for commands, words, status in attempts:
        ended = commands.run(*words, stdin=b"y\n")
        assert ended.status == status, (words, ended)
        with pytest.raises(EligibilityUnverified):
            alice.send(carol, "now")
        assert path.read_bytes() == HALF
        assert list(path.parent.glob("*.aside")) == []
    assert alice.request("session.list")["peers"] == []

    assert machine.shell.run("doctor", "--repair", "--yes").status == 0

    [aside] = path.parent.glob("*.aside")
    assert aside.read_bytes() == HALF
    assert not path.exists()
    alice.send(alice.until_listed("carol"), "after")


@pytest.mark.requirement("H-assign-20")
def test_a_list_and_a_name_say_what_keeps_somebody_out(machine: Machine):
    alice = machine.session("claude", "alice", name="alice")
    machine.session("claude", "carol", name="carol", parent=machine.new_host())
    alice.until_listed("carol")
    path = spoilt(machine)

    shown = machine.inside.run("peers", "--json")
    assert (shown.status, shown.json["peers"]) == (0, [])
    assert str(path) in shown.stderr
    assert "`herd doctor`" in shown.stderr
    refused = machine.inside.run("send", "carol", "hello", "--json")
    assert (refused.status, refused.refusal["code"]) == (5, "ELIGIBILITY_UNVERIFIED")
    assert str(path) in refused.refusal["message"]
    assert machine.shell.run("doctor", "--repair", "--yes").status == 0
    assert machine.inside.run("peers").stderr == ""
    assert machine.inside.run("send", "nobody", "hello").status == 3


@pytest.mark.requirement("H-kinds-04", "H-eligib-11")
def test_a_session_whose_kind_the_records_cannot_tell_does_not_start_and_gets_none(machine: Machine):
    path = spoilt(machine)
    with pytest.raises(SessionEndedError, match="RECOVERY_REQUIRED") as ended:
        machine.session("claude", "alice", name="alice")
    assert str(path) in str(ended.value)
    assert "`herd doctor`" in str(ended.value)
    assert not os.path.lexists(machine.layout.session_file(ALICE.key))
    assert machine.shell.run("inbox").status == 0, "a terminal session is ordinary whatever they say"

    put(path, bytes_of(shape_of(SPOILT)))
    alice = machine.session("claude", "alice", name="alice")

    assert alice.request("session.whoami")["kind"] == "managed"


def test_only_what_is_corrupt_is_set_aside(machine: Machine):
    path = spoilt(machine)
    newer = assignment_of(3)
    unsafe = assignment_of(4)
    assigned(machine.layout, newer, unsafe)
    put(path_of(machine.layout, newer), b'{"version": 2}')
    os.chmod(path_of(machine.layout, unsafe), 0o640)

    done = machine.shell.run("doctor", "--repair", "--yes", "--json").json["set_aside"]

    assert [one["path"] for one in done] == [str(path)]
    assert done[0]["reason"] == "is not JSON"
    assert Path(done[0]["kept_as"]).read_bytes() == HALF
    assert path_of(machine.layout, newer).exists()
    assert path_of(machine.layout, unsafe).exists()


def test_two_faults_are_both_named_and_a_mode_is_mended_by_the_whole_path(machine: Machine):
    path = spoilt(machine)
    os.chmod(path_of(machine.layout, SOUND), 0o644)

    refusal = machine.cron.run("assignments", "--json").refusal

    assert str(path) in refusal["message"]
    assert str(path_of(machine.layout, SOUND)) in refusal["message"]
    assert f"chmod 600 {path_of(machine.layout, SOUND)}" in refusal["hint"]
    assert "`herd doctor --repair`" in refusal["hint"]


@pytest.mark.parametrize("wrong", ["mode", "fifo", "newer", "twin"])
def test_a_repair_with_nothing_corrupt_says_what_else_keeps_verdicts_open(machine: Machine, wrong: str):
    assigned(machine.layout, SOUND, SPOILT._replace(session=BOB if wrong == "twin" else ALICE))
    path = path_of(machine.layout, SPOILT)
    if wrong == "mode":
        path.chmod(0o644)
    elif wrong == "newer":
        put(path, b'{"version": 2}')
    elif wrong == "fifo":
        path.unlink()
        os.mkfifo(path, 0o600)

    shown = machine.shell.run("doctor", "--repair", "--yes")

    assert "nothing was changed" in shown.text
    assert str(path) in shown.text
    assert "`herd doctor` says what mends it" in shown.text


def test_a_repair_that_gets_no_lock_changes_nothing(machine: Machine):
    path = spoilt(machine)
    with HeldLock.acquire(machine.layout.assignment_lock(*SPOILT.place)):
        ended = machine.shell.run("doctor", "--repair", "--yes", "--json")

    assert (ended.status, ended.refusal["code"]) == (5, "LOCK_TIMEOUT")
    assert path.read_bytes() == HALF


def test_yes_without_repair_is_refused(machine: Machine):
    assert machine.shell.run("doctor", "--yes").status == 2


def test_the_assignments_are_shown_with_whether_their_sessions_work(machine: Machine):
    assert machine.cron.run("assignments").text == "nothing is assigned\n"
    checkout = machine.home / "work"
    for folder in (checkout, checkout / "deep"):
        folder.mkdir()
    alices = assignment_of(5, session=ALICE, branch="clock", checkout=str(checkout))
    assigned(machine.layout, SOUND, alices)
    machine.session("claude", "alice", name="alice", cwd=str(checkout / "deep"))

    shown = machine.cron.run("assignments", "--json").json["assignments"]

    of_branch = {one["branch"]: one for one in shown}
    assert of_branch["clock"] == {
        "repo": alices.repo,
        "branch": "clock",
        "target": target_of("lead", ALICE.key),
        "name": "alice",
        "status": "active",
        "socket": "none",
        "checkout": str(checkout),
    }
    assert (of_branch[SOUND.branch]["status"], "name" in of_branch[SOUND.branch]) == ("paused", False)
    text = machine.inside.run("assignments").text
    assert f"active   clock of {alices.repo}\n" in text
    machine.session("claude", "carol", name="carol", cwd=str(checkout))
    again = {
        one["branch"]: one["status"] for one in machine.cron.run("assignments", "--json").json["assignments"]
    }
    assert again == {"clock": "conflict", SOUND.branch: "paused"}
