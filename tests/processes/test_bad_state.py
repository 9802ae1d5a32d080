"""State that cannot be used: each is a refusal that names the thing and the next step; nothing is touched."""

import json
import os
import sqlite3
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from herd.core.errors import BY_CODE, RecoveryRequired
from herd.core.identity import SessionName, target_of
from tests.fakes.command_line import CommandLine, Outcome
from tests.fakes.herd_session import SessionEndedError
from tests.processes.conftest import Machine

ALICE = SessionName("claude", "alice")
DEFAULT = SessionName("terminal", "default")
NOBODY = 65_534

START = ["session", "--host", "claude", "--session", "alice"]


def contents(folder: Path) -> dict[str, tuple[int, int, bytes | str]]:
    """Give everything below a folder: mode, owner, and content or where it leads."""
    found = {}
    for place, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = Path(place, name)
            status = path.lstat()
            held: bytes | str = ""
            if stat.S_ISLNK(status.st_mode):
                held = os.readlink(path)
            elif stat.S_ISREG(status.st_mode):
                held = path.read_bytes()
            found[str(path.relative_to(folder))] = (status.st_mode, status.st_uid, held)
    return found


def refused(commands: CommandLine, words: list[str], environ: dict[str, str] | None = None) -> Outcome:
    """Run a command that has to refuse, for people: the code, what is wrong, and what to do."""
    shown = commands.run(*words, environ=environ)
    assert shown.stdout == b""
    code, _, hint = shown.stderr.partition("\n")
    assert code.startswith("herd: ")
    assert BY_CODE[code.split(": ")[1]].exit_status == shown.status
    assert hint.startswith("  ")
    assert hint.strip()
    return shown


# --- the data root ------------------------------


def an_open_folder(place: Path) -> str:
    place.mkdir()
    place.chmod(0o777)
    return f"{place} has mode 0777, not 0700"


def a_link(place: Path) -> str:
    place.with_name("real").mkdir(mode=0o700)
    place.symlink_to(place.with_name("real"))
    return f"'{place}' is a symlink"


def a_file(place: Path) -> str:
    place.touch(0o600)
    return f"'{place}' is no folder"


@pytest.mark.parametrize("spoil", [an_open_folder, a_link, a_file])
def test_a_data_root_that_is_not_private_is_refused_and_stays(
    machine: Machine, tmp_path: Path, spoil: Callable[[Path], str]
):
    place = tmp_path / "root"
    wrong = spoil(place)
    before = contents(tmp_path)

    for commands, words in ((machine.shell, ["peers"]), (machine.shell, ["inbox"]), (machine.cron, START)):
        shown = refused(commands, words, {"HERD_HOME": str(place)})
        assert shown.status == 4
        assert wrong in shown.stderr
        assert f"chmod 700 {place}" in shown.stderr or "Look at the named path" in shown.stderr
    doctor = machine.cron.run("doctor", environ={"HERD_HOME": str(place)})
    assert doctor.status == 8
    assert f"LOOK data root: {wrong}" in doctor.text
    assert contents(tmp_path) == before


@pytest.mark.parametrize(
    ("value", "status", "wrong"),
    [
        ("state/herd", 2, "HERD_HOME is 'state/herd', which is not absolute"),
        ("~/herd", 2, "HERD_HOME is '~/herd', which is not absolute"),
        ("/", 4, "'/' is not given by an absolute path that ends in a name"),
        ("/dev/null/herd", 4, "folder '/dev/null/herd' cannot be made or used: Not a directory"),
    ],
)
def test_a_data_root_that_can_be_none_is_refused(machine: Machine, value: str, status: int, wrong: str):
    for commands, words in ((machine.shell, ["peers"]), (machine.cron, START)):
        shown = refused(commands, words, {"HERD_HOME": value})
        assert shown.status == status
        assert wrong in shown.stderr
    doctor = machine.cron.run("doctor", environ={"HERD_HOME": value})
    assert doctor.status == 8
    assert value in doctor.text


@pytest.mark.machine
def test_a_data_root_of_another_user_is_refused_and_stays(machine: Machine, tmp_path: Path):
    place = tmp_path / "root"
    place.mkdir(mode=0o700)
    os.chown(place, NOBODY, NOBODY)

    shown = refused(machine.shell, ["peers"], {"HERD_HOME": str(place)})

    assert (shown.status, list(place.iterdir())) == (4, [])
    assert f"'{place}' belongs to user {NOBODY}, not to 0" in shown.stderr


@pytest.mark.parametrize("name", ["peers", "locks", "run", "sessions"])
def test_a_folder_below_it_that_is_open_to_others_is_refused_and_stays(machine: Machine, name: str):
    machine.session("claude", "alice").end()
    folder = Path(machine.layout.root, name)
    folder.chmod(0o755)
    before = contents(machine.home)

    for commands, words in ((machine.shell, ["peers"]), (machine.cron, START)):
        shown = refused(commands, words)
        assert shown.status == 4
        assert f"{folder} has mode 0755, not 0700" in shown.stderr
        assert f"chmod 700 {folder}" in shown.stderr

    assert contents(machine.home) == before


@pytest.mark.requirement("A-storage-10")
def test_the_data_root_is_herd_home_else_xdg_else_below_the_home(machine: Machine, tmp_path: Path):
    home, state, chosen = tmp_path / "home", tmp_path / "state", tmp_path / "chosen"
    home.mkdir()
    bare = {"HOME": str(home), "HERD_HOME": "", "XDG_STATE_HOME": ""}
    for environ, place in (
        ({**bare, "XDG_STATE_HOME": str(state), "HERD_HOME": str(chosen)}, chosen),
        ({**bare, "XDG_STATE_HOME": str(state)}, state / "herd"),
        ({**bare, "XDG_STATE_HOME": "relative"}, home / ".local" / "state" / "herd"),
        (bare, home / ".local" / "state" / "herd"),
    ):
        assert machine.shell.run("peers", environ=environ).status == 0
        assert [path.name for path in place.iterdir()] == [Path(machine.layout.root).name]
        assert stat.S_IMODE(place.stat().st_mode) == 0o700
    machine.session("claude", "alice", name="alice")
    assert "alice" in machine.shell.run("peers").text
    assert "alice" not in machine.shell.run("peers", environ=bare).text


def test_a_data_root_whose_name_is_no_text_is_refused(machine: Machine, tmp_path: Path):
    place = os.fsencode(tmp_path) + b"/\xff"

    shown = refused(machine.shell, ["peers"], {"HERD_HOME": os.fsdecode(place)})

    assert shown.status == 2
    assert "a name that this locale cannot spell" in shown.stderr
    assert "LC_ALL=C.UTF-8" in shown.stderr
    assert not os.path.exists(place)


# --- the settings ------------------------------


@pytest.mark.requirement("A-config-08", "A-config-09", "A-limits-18", "A-ident-07")
@pytest.mark.parametrize(
    ("content", "wrong"),
    [
        ("colour = 1\n", "unknown key 'colour'"),
        ("[limits]\ninbox = 1\n", "unknown key 'limits.inbox'"),
        ("[limits]\ninbox_messages = 10\n[hosts]\n", "unknown key 'hosts'"),
        *(
            (
                f"[limits]\nrate_burst = {value}\n",
                "'limits.rate_burst' is no whole number from 1 to 2147483647",
            )
            for value in ("0", "-5", "1.5", '"20"', "true")
        ),
        *(
            (
                f"[limits]\nframe_bytes = {value}\n",
                "'limits.frame_bytes' is no whole number from 65536 to 2147483647",
            )
            for value in (2_000, 16_384, 65_535)
        ),
        (
            "[limits]\nmessage_bytes = 70000\n",
            "'limits.message_bytes' is 70000, more than 'limits.frame_bytes', which is 65536",
        ),
        (
            "[limits]\nmax_expiry_ms = 5000\n",
            "'limits.expiry_ms' is 600000, more than 'limits.max_expiry_ms', which is 5000",
        ),
        (
            'alias = "two words"\n',
            "'alias' is 'two words'; a letter, and up to 63 letters, digits, '_' and '-' behind it, is one",
        ),
    ],
)
def test_a_setting_that_is_none_stops_every_start_and_is_named(machine: Machine, content: str, wrong: str):
    file = settings_file(machine, content.encode())
    before = contents(machine.home)

    for commands, words in ((machine.shell, ["peers"]), (machine.shell, ["inbox"]), (machine.cron, START)):
        shown = refused(commands, words)
        assert (shown.status, shown.stderr.partition("\n")[0]) == (
            2,
            f"herd: INVALID_PARAMS: {file}: {wrong}",
        )

    assert contents(machine.home) == before


@pytest.mark.parametrize(
    ("content", "wrong"),
    [
        (b"not toml", "is no TOML"),
        (b"\xff", "is no TOML"),
        (b"limits = 3\n", "'limits' is no table"),
        (b"[limits]\ninbox_messages = 0\n", "'limits.inbox_messages' is no whole number"),
        (b"[limits]\ninbox_messages = true\n", "'limits.inbox_messages' is no whole number"),
        (b"#" * 70_000, "is larger than"),
    ],
)
def test_settings_that_cannot_be_read_stop_every_start(machine: Machine, content: bytes, wrong: str):
    file = settings_file(machine, content)

    for commands, words in ((machine.shell, ["peers"]), (machine.cron, START)):
        shown = refused(commands, words)
        assert (shown.status, shown.stderr.count("\n")) == (2, 2)
        assert f"{file}: {wrong}" in shown.stderr
    doctor = machine.cron.run("doctor")
    assert doctor.status == 8
    assert f"LOOK settings: {file}: {wrong}" in doctor.text


def test_settings_that_are_a_fifo_or_a_folder_block_nothing(machine: Machine):
    file = settings_file(machine, b"")
    for make in (os.mkfifo, os.mkdir):
        file.unlink()
        make(file)
        assert f"{file}: " in refused(machine.shell, ["peers"]).stderr
        if make is os.mkdir:
            file.rmdir()


def settings_file(machine: Machine, content: bytes) -> Path:
    file = machine.home / "config" / "herd" / "config.toml"
    file.parent.mkdir(parents=True)
    file.write_bytes(content)
    return file


# --- what a session durably is ------------------------------


def truncated(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-20])


def empty(file: Path) -> None:
    file.write_bytes(b"")


def of_another_session(file: Path) -> None:
    changed(file, session_id="another")


def of_a_newer_version(file: Path) -> None:
    changed(file, version=4, colour="blue")


def with_an_unknown_field(file: Path) -> None:
    changed(file, colour="blue")


def open_to_others(file: Path) -> None:
    file.chmod(0o644)


def linked_from_elsewhere(file: Path) -> None:
    file.rename(file.with_name("moved"))
    file.symlink_to(file.with_name("moved"))


def changed(file: Path, **more: object) -> None:
    file.write_text(json.dumps({**json.loads(file.read_bytes()), **more}), encoding="utf-8")


@pytest.mark.requirement("A-storage-07")
@pytest.mark.parametrize("spoil", [truncated, empty])
def test_a_session_whose_file_is_no_json_does_not_start(machine: Machine, spoil: Callable[[Path], None]):
    stays_out(machine, spoil, 8, "is not JSON")


@pytest.mark.requirement("A-storage-02")
def test_a_folder_whose_file_names_another_session_is_refused(machine: Machine):
    stays_out(machine, of_another_session, 8, "names another session than its folder does")


@pytest.mark.requirement("A-storage-13")
def test_a_session_file_of_a_newer_version_is_left_alone_and_not_called_corrupt(machine: Machine):
    stays_out(machine, of_a_newer_version, 9, "has version 4, and this Herd knows 3")


@pytest.mark.parametrize(
    ("spoil", "status", "wrong"),
    [
        (with_an_unknown_field, 8, "colour"),
        (open_to_others, 4, "has mode 0644, not 0600"),
        (linked_from_elsewhere, 4, "cannot be opened safely"),
    ],
)
def test_a_session_whose_file_is_not_as_we_write_it_does_not_start(
    machine: Machine, spoil: Callable[[Path], None], status: int, wrong: str
):
    stays_out(machine, spoil, status, wrong)


def stays_out(machine: Machine, spoil: Callable[[Path], None], status: int, wrong: str) -> None:
    """Spoil a session's file: the session does not start, everybody else goes on, and the file stays."""
    machine.session("claude", "alice").end()
    file = Path(machine.layout.session_file(ALICE.key))
    spoil(file)
    before = contents(Path(machine.layout.session_folder(ALICE.key)))

    shown = refused(machine.cron, START)

    assert shown.status == status
    assert str(file) in shown.stderr
    assert wrong in shown.stderr
    bob = machine.session("codex", "bob", name="bob")
    target = bob.request("session.whoami")["target"]
    for name in ("bob", target):
        assert machine.shell.run("send", name, "to bob").status == 0
    assert len(bob.request("session.read", wait_ms=5_000)["messages"]) >= 1
    doctor = machine.cron.run("doctor")
    assert doctor.status == 8
    assert [str(file) in line for line in doctor.text.splitlines() if line.startswith("LOOK")] == [True]
    assert contents(Path(machine.layout.session_folder(ALICE.key))) == before


def test_a_damaged_neighbour_does_not_hide_a_sleeping_session(machine: Machine):
    sessions = [machine.session("claude", name) for name in ("alice", "bob")]
    target = sessions[1].request("session.whoami")["target"]
    for session in sessions:
        session.end()
    truncated(Path(machine.layout.session_file(ALICE.key)))

    assert machine.shell.run("inbox", "--session", target).text == "nothing waits\n"
    # Whether the damaged one was meant cannot be told, so the damage is.
    assert refused(machine.shell, ["inbox", "--session", "lead:0000000000"]).status == 8


def test_a_session_file_that_is_missing_beside_its_mailbox_is_not_made_anew(machine: Machine):
    with_mailbox(machine)
    file = Path(machine.layout.session_file(ALICE.key))
    file.unlink()

    shown = refused(machine.cron, START)

    assert shown.status == 8
    assert f"{file} is missing, although its session has a mailbox" in shown.stderr
    assert not file.exists()


# --- the mailbox ------------------------------


def with_mailbox(machine: Machine) -> Path:
    """Give alice a message that she has not read, and end her."""
    alice = machine.session("claude", "alice", name="alice")
    assert machine.shell.run("send", "alice", "unread").status == 0
    alice.end()
    return Path(machine.layout.mailbox(ALICE.key))


def emptied(file: Path) -> None:
    file.write_bytes(b"")


def missing(file: Path) -> None:
    file.unlink()


def scribbled_over(file: Path) -> None:
    file.write_bytes(b"SQLite format 3\0" + b"\xa5" * (file.stat().st_size - 16))


def no_database(file: Path) -> None:
    file.write_bytes(b"just a text\n" * 1_000)


def of_another_program(file: Path) -> None:
    with sqlite3.connect(file) as mailbox:
        mailbox.execute("PRAGMA application_id = 7")
    mailbox.close()


DAMAGE = [emptied, missing, scribbled_over, no_database, of_another_program]


@pytest.mark.requirement("A-restart-07", "A-storage-07")
@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_mailbox_is_named_everywhere_kept_and_never_taken_for_a_new_one(
    machine: Machine, damage: Callable[[Path], None]
):
    file = with_mailbox(machine)
    damage(file)
    before = contents(Path(machine.layout.session_folder(ALICE.key)))
    target = target_of("lead", ALICE.key)

    # To others it is asleep, and cannot take or show anything.
    assert refused(machine.shell, ["inbox", "--session", target]).status == 8
    sent = machine.shell.run("send", target, "x", "--json").json
    assert sent["status"] == "queued"
    # It starts, is not listed, and says why wherever mail is needed.
    alice = machine.session("claude", "alice", name="alice")
    for method, params in (
        ("session.read", {}),
        ("session.send", {"target": "lead:0000000000", "message": "x"}),
        ("session.status", {"message_id": "m"}),
    ):
        with pytest.raises(RecoveryRequired) as told:
            alice.request(method, **params)
        assert str(file) in told.value.message
    assert b"alice" not in machine.shell.run("peers").stdout
    doctor = machine.cron.run("doctor")
    assert doctor.status == 8
    assert "is running and not listed: it is unhealthy" in doctor.text
    assert alice.end() == 0
    after = contents(Path(machine.layout.session_folder(ALICE.key)))
    after.pop("token"), before.pop("token")
    assert after == before
    assert str(file) in next(line for line in machine.cron.run("doctor").text.splitlines() if "LOOK" in line)


@pytest.mark.requirement("A-restart-07")
def test_a_damaged_mailbox_of_the_terminal_gives_its_mail_to_no_other_session(machine: Machine):
    alice = machine.session("claude", "alice", name="alice")
    assert machine.shell.run("send", "alice", "hello").status == 0
    file = Path(machine.layout.mailbox(DEFAULT.key))
    scribbled_over(file)
    before = file.read_bytes()

    for words in (["inbox"], ["send", "alice", "again"], ["status", "m"], ["cancel", "m"]):
        shown = refused(machine.shell, words)
        assert shown.status == 8
        assert str(file) in shown.stderr
        assert "`herd doctor`" in shown.stderr
    assert machine.shell.run("inbox", "--as", "other").text == "nothing new\n"
    assert machine.shell.run("peers").status == 0
    assert file.read_bytes() == before
    assert len(alice.request("session.read", wait_ms=20_000)["messages"]) == 1


def test_a_mailbox_of_a_newer_version_is_left_alone_and_not_called_damaged(machine: Machine):
    file = with_mailbox(machine)
    with sqlite3.connect(file) as mailbox:
        mailbox.execute("PRAGMA user_version = 99")
    mailbox.close()
    before = file.read_bytes()

    shown = refused(machine.shell, ["inbox", "--session", target_of("lead", ALICE.key)])

    assert shown.status == 9
    assert shown.stderr.startswith("herd: NEWER_STATE: ")
    assert "damage" not in shown.stderr
    assert file.read_bytes() == before


# --- the rest ------------------------------


def test_a_lock_file_that_is_not_ours_alone_is_refused_and_stays(machine: Machine, tmp_path: Path):
    machine.session("claude", "alice").end()
    lock = Path(machine.layout.session_lock(ALICE.key))
    lock.chmod(0o666)
    assert str(lock) in refused(machine.cron, START).stderr
    lock.unlink()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.touch(0o600)
    lock.symlink_to(elsewhere)

    shown = refused(machine.cron, START)

    assert (shown.status, elsewhere.read_bytes()) == (4, b"")
    assert str(lock) in shown.stderr


def test_a_token_that_is_a_link_is_replaced_and_what_it_led_to_stays(machine: Machine, tmp_path: Path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("precious", encoding="utf-8")
    machine.session("claude", "alice").end()
    token = Path(machine.layout.token(ALICE.key))
    token.unlink(missing_ok=True)
    token.symlink_to(elsewhere)

    machine.session("claude", "alice", name="alice")

    assert elsewhere.read_text(encoding="utf-8") == "precious"
    assert stat.S_IMODE(token.lstat().st_mode) == 0o600
    assert machine.inside.run("inbox").text == "nothing new\n"


def test_a_start_that_is_refused_says_why_on_standard_error(machine: Machine):
    machine.session("claude", "alice").end()
    truncated(Path(machine.layout.session_file(ALICE.key)))

    with pytest.raises(SessionEndedError, match=r"exit status 8; .*RECOVERY_REQUIRED: .*is not JSON"):
        machine.starting("claude", "alice").ready()
    assert os.listdir(machine.layout.peers) == []


# --- every status, and every hint ------------------------------


@pytest.mark.requirement("A-errors-37")
def test_each_exit_status_is_the_one_of_its_kind(machine: Machine):
    alice = machine.session("claude", "alice", name="alice")
    target = alice.request("session.whoami")["target"]
    sleeping = machine.session("codex", "asleep")
    asleep = sleeping.request("session.whoami")["target"]
    sleeping.end()
    closed = ("sh", "-c", 'exec "$@" >&-', "sh", *machine.shell.herd)
    newer = Path(machine.layout.session_folder(SessionName("pi", "p").key))
    newer.mkdir(mode=0o700)
    (newer / "session.json").write_text('{"version": 4}', encoding="utf-8")
    (newer / "session.json").chmod(0o600)

    assert machine.shell.run("peers").status == 0
    assert machine.command_line(machine.terminal, herd=closed).run("whoami").status == 1
    assert machine.shell.run("send").status == 2
    assert machine.shell.run("send", "nobody", "x").status == 3
    assert machine.inside.run("peers", "--as", "bot").status == 4
    with machine.visited(SessionName("codex", "asleep")):
        assert machine.shell.run("inbox", "--session", asleep).status == 5
    assert machine.inside.run("inbox", "--session", target).status == 6
    assert machine.shell.run("send", "alice", stdin=b"x" * 131_073).status == 7
    assert machine.cron.run("session", "--host", "pi", "--session", "p").status == 9
    (newer / "session.json").write_text("{", encoding="utf-8")
    assert machine.cron.run("session", "--host", "pi", "--session", "p").status == 8


@pytest.mark.requirement("A-errors-35")
def test_a_refusal_that_a_command_can_mend_prints_that_command(machine: Machine):
    alice = machine.session("claude", "alice", name="alice")
    target = alice.request("session.whoami")["target"]
    assert machine.shell.run("send", "alice", "x").status == 0
    second = machine.session("codex", "two", name="alice", parent=machine.new_host())

    assert "`herd peers`" in refused(machine.shell, ["send", "nobody", "x"]).stderr
    assert machine.shell.run("peers").status == 0
    ambiguous = refused(machine.shell, ["send", "alice", "x"])
    assert "`herd peers`" in ambiguous.stderr
    for exact in (target, second.request("session.whoami")["target"]):
        assert exact in ambiguous.stderr
    assert "`--as NAME`" in refused(machine.cron, ["peers"]).stderr
    assert machine.cron.run("peers", "--as", "name").status == 0
    assert "Leave --as out" in refused(machine.inside, ["peers", "--as", "name"]).stderr
    assert machine.inside.run("peers").status == 0
    held = refused(machine.cron, ["inbox", "--session", target])
    assert "Run `herd inbox` inside that session." in held.stderr
    assert machine.inside.run("inbox").status == 0
    scribbled_over(Path(machine.layout.mailbox(DEFAULT.key)))
    assert "`herd doctor`" in refused(machine.shell, ["inbox"]).stderr
    assert "LOOK session: " in machine.cron.run("doctor").text


def test_the_statuses_of_all_codes_are_those_of_the_table():
    assert {code: kind.exit_status for code, kind in BY_CODE.items()} == {
        **dict.fromkeys(("INVALID_RPC",), 1),
        **dict.fromkeys(("INVALID_PARAMS", "PARSE_ERROR"), 2),
        **dict.fromkeys(("UNKNOWN_TARGET", "AMBIGUOUS_TARGET", "NO_SESSION"), 3),
        **dict.fromkeys(
            (
                "SCOPE_DENIED",
                "CAPABILITY_DENIED",
                "UNSAFE_ENDPOINT",
                "COMMUNICATION_DISABLED",
                "INVALID_REPLY",
                "AUTOMATIC_REPLY_LIMIT",
                "ELIGIBILITY_DENIED",
            ),
            4,
        ),
        **dict.fromkeys(
            (
                "PEER_OFFLINE",
                "TARGET_ENDED",
                "BODY_MISSING",
                "MESSAGE_EXPIRED",
                "DELIVERY_UNKNOWN",
                "CONTROLLER_UNAVAILABLE",
                "AUTHENTICATION_FAILED",
                "RESOURCE_WAIT_TIMEOUT",
                "LOCK_TIMEOUT",
                "ELIGIBILITY_UNVERIFIED",
            ),
            5,
        ),
        **dict.fromkeys(
            (
                "RESOURCE_BUSY",
                "MESSAGE_ID_CONFLICT",
                "STALE_POLICY",
                "REQUEST_ID_CONFLICT",
                "RESERVATION_EXPIRED",
                "ASSIGNMENT_CONFLICT",
                "SESSION_HELD",
                "CUSTODY_CHANGED",
            ),
            6,
        ),
        **dict.fromkeys(("QUEUE_FULL", "MESSAGE_TOO_LARGE", "FRAME_TOO_LARGE", "RATE_LIMITED"), 7),
        **dict.fromkeys(("RECOVERY_REQUIRED",), 8),
        **dict.fromkeys(
            (
                "UNSUPPORTED_PROTOCOL",
                "METHOD_NOT_FOUND",
                "UNSUPPORTED_PLATFORM",
                "NEWER_STATE",
                "RESTART_REQUIRED",
                "PACKAGE_SHADOWED",
            ),
            9,
        ),
    }
