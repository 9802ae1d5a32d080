"""`herd doctor` on real state: what it finds, what it leaves alone, and that it needs nothing."""

import os
from pathlib import Path

import pytest

from herd.core.identity import SessionName, target_of
from herd.core.limits import HANDOVERS
from tests.fakes.command_line import Outcome
from tests.processes.conftest import Machine

ALICE = SessionName("claude", "alice")


def findings(shown: Outcome) -> list[tuple[str, bool, str]]:
    return [(one["what"], one["ok"], one["detail"]) for one in shown.json["findings"]]


def test_it_makes_nothing_where_nothing_is_there(machine: Machine, tmp_path: Path):
    place = tmp_path / "state" / "herd"

    shown = machine.cron.run("doctor", environ={"HERD_HOME": str(place)})

    assert (shown.status, shown.stderr) == (0, "")
    assert (
        f"{place}/{Path(machine.layout.root).name} is not there yet; the first session makes it" in shown.text
    )
    assert not place.parent.exists()


def test_it_names_build_settings_machine_root_sockets_and_sessions(machine: Machine):
    machine.session("claude", "alice", name="alice")
    bob = machine.session("codex", "bob")
    bob.end()
    target = target_of("lead", SessionName("codex", "bob").key)
    assert machine.shell.run("send", target, "to somebody asleep").status == 0

    shown = machine.cron.run("doctor")

    assert (shown.status, shown.stderr) == (0, "")
    settings = machine.home / "config" / "herd" / "config.toml"
    root = machine.layout.root
    for line in (
        "ok   build: 0.1.0 · ",
        f"ok   settings: {settings} not there, so the defaults hold\n",
        "ok   machine: named by its machine id\n",
        f"ok   data root: {root} on ",
        f"ok   presence: 1 listed, sockets in {root}/run\n",
        f"ok   session: {target_of('lead', ALICE.key)} (claude alice) is running\n",
        f"ok   session: {target} (codex bob) sleeps with 1 undelivered messages, 0 handed over in vain\n",
    ):
        assert line in shown.text
    assert ", SQLite 3." in shown.text


@pytest.mark.requirement("H-presence-29")
def test_malformed_records_are_named_and_left(machine: Machine, tmp_path: Path):
    alice = machine.session("claude", "alice", name="alice")
    peers, outside = Path(machine.layout.peers), tmp_path / "outside"
    outside.write_text("{}", encoding="utf-8")
    wrong = {name * 64: peers / f"{name * 64}.json" for name in "abcde"}
    paths = list(wrong.values())
    paths[0].write_text('{"version": 1', encoding="utf-8")
    paths[1].write_text("[]", encoding="utf-8")
    paths[2].symlink_to(outside)
    os.mkfifo(paths[3], 0o600)
    paths[4].write_bytes(Path(machine.layout.record(ALICE.key)).read_bytes())
    for path in (paths[0], paths[1], paths[4]):
        path.chmod(0o600)
    (peers / "notes.txt").touch()

    shown = machine.cron.run("doctor", "--json")

    assert shown.status == 8
    bad = [detail for what, ok, detail in findings(shown) if what in {"record", "file"} and not ok]
    assert sorted(detail.partition(" ")[0] for detail in bad) == [str(path) for path in paths]
    assert all(one["next_step"] for one in shown.json["findings"] if not one["ok"])
    assert "notes.txt" not in shown.text
    assert all(path.lstat() for path in paths)
    assert [peer["name"] for peer in machine.shell.run("peers", "--json").json["peers"]] == ["alice"]
    assert alice.request("session.list")["peers"] == []
    assert machine.cron.run("doctor").status == 8


def test_mail_that_was_handed_over_in_vain_is_named_with_the_command_that_shows_it(machine: Machine):
    alice = machine.session("claude", "alice", name="alice")
    sent = machine.shell.run("send", "alice", "nobody confirms", "--json").json["message_id"]
    for _ in range(HANDOVERS):
        assert len(alice.request("session.read", wait_ms=5_000)["messages"]) == 1
        alice.end()
        alice = machine.session("claude", "alice", name="alice")
    assert alice.request("session.read")["messages"] == []
    alice.end()

    shown = machine.cron.run("doctor")

    assert shown.status == 8
    assert "sleeps with 1 undelivered messages, 1 handed over in vain\n" in shown.text
    said = "-> 1 wait for a person. Inside that session `herd inbox --look` shows them"
    assert said in shown.text
    machine.session("claude", "alice", name="alice")
    shown = machine.cron.run("doctor")
    assert shown.status == 8
    assert " (claude alice) is running, with 1 messages handed over in vain\n" in shown.text
    assert said in shown.text
    assert machine.inside.run("inbox", "--look").text.endswith("  | nobody confirms\n")
    taken = machine.inside.run("inbox", "--message", sent)
    assert taken.text.endswith("  | nobody confirms\n")
    assert machine.cron.run("doctor").status == 0


def test_it_changes_no_status_and_starts_nothing(machine: Machine):
    alice = machine.session("claude", "alice", name="alice")
    sent = machine.shell.run("send", "alice", "unread", "--json").json["message_id"]
    alice.end()

    for _ in range(HANDOVERS + 1):
        assert machine.cron.run("doctor").status == 0

    assert os.listdir(machine.layout.peers) == []
    assert machine.shell.run("status", sent, "--json").json["state"] == "accepted"
    [message] = machine.session("claude", "alice").request("session.read", wait_ms=20_000)["messages"]
    assert "again" not in message


def test_a_mailbox_that_is_in_use_just_now_is_no_damage(machine: Machine):
    machine.session("claude", "alice").end()

    with machine.visited(ALICE):
        shown = machine.cron.run("doctor")

    assert shown.status == 0
    assert "is being started or written to just now" in shown.text


def test_what_a_session_calls_itself_cannot_forge_a_line_or_reach_the_terminal(machine: Machine):
    machine.session("claude", "a\n\x1b[31mLOOK everything: broken", name="x\nLOOK more")

    shown = machine.cron.run("doctor")

    assert shown.status == 0
    assert b"\x1b" not in shown.stdout
    assert not any(line.startswith("LOOK") for line in shown.text.splitlines())


def test_it_works_where_nothing_else_starts(machine: Machine):
    machine.home.chmod(0o755)
    try:
        shown = machine.cron.run("doctor", "--json")
    finally:
        machine.home.chmod(0o700)

    assert shown.status == 8
    assert [what for what, ok, _ in findings(shown) if not ok] == ["data root"]
    assert [what for what, ok, _ in findings(shown) if ok] == ["build", "settings", "machine"]


@pytest.mark.requirement("A-storage-16")
@pytest.mark.machine
def test_without_a_machine_id_the_host_name_names_the_folder_and_doctor_says_so(
    machine: Machine, tmp_path: Path
):
    from herd.core.paths import MACHINE_ID_FILES, machine_folder

    nothing = tmp_path / "nothing"
    nothing.touch()
    mounts = "; ".join(f"mount --bind {nothing} {file}" for file in MACHINE_ID_FILES if os.path.exists(file))
    bare = ("unshare", "-m", "sh", "-c", f'{mounts}; exec "$@"', "sh", *machine.cron.herd)
    commands = machine.command_line(machine.terminal, herd=bare)
    assert commands.run("peers").status == 0

    shown = commands.run("doctor")

    root = machine.home / machine_folder(os.uname().nodename)
    assert root.is_dir()
    assert f"ok   data root: {root} on " in shown.text
    assert "ok   machine: it has no machine id, so its host name names its folder" in shown.text
