"""What people who tried to break it found: each mended as a kind, with the right outcome."""

from pathlib import Path

from herd.core.identity import SessionName
from tests.processes.conftest import Machine

BEN = SessionName("terminal", "ben")


def to_ben(machine: Machine) -> str:
    """Make two terminal sessions, and give the target of one of them."""
    machine.shell.run("inbox", "--as", "ann")
    machine.shell.run("inbox", "--as", "ben")
    return str(machine.shell.run("whoami", "--as", "ben", "--json").json["target"])


def test_a_message_that_no_mailbox_took_is_not_said_to_be_in_one(machine: Machine):
    target = to_ben(machine)
    assert machine.shell.run("send", "--as", "ann", target, "first").status == 0
    Path(machine.layout.mailbox(BEN.key)).write_bytes(b"")

    sent = machine.shell.run("send", "--as", "ann", target, "second")
    told = machine.shell.run("send", "--as", "ann", target, "third", "--json").json

    assert "queued (no mailbox has it yet" in sent.text
    assert "its mailbox has it" not in sent.text
    assert told["status"] == "queued"
    assert "peer_running" not in told


def test_a_session_file_that_is_gone_is_named_by_the_doctor(machine: Machine):
    target = to_ben(machine)
    machine.shell.run("send", "--as", "ann", target, "x")
    path = Path(machine.layout.session_file(BEN.key))
    path.unlink()

    found = machine.shell.run("doctor")

    assert found.status == 8
    assert f"{path} is missing, although its session has a mailbox" in found.text


def test_a_session_folder_that_others_may_enter_is_refused_at_the_start(machine: Machine):
    to_ben(machine)
    folder = Path(machine.layout.session_folder(BEN.key))
    folder.chmod(0o755)

    refused = machine.shell.run("inbox", "--as", "ben")

    assert refused.status == 4
    assert "UNSAFE_ENDPOINT" in refused.text + refused.stderr
    assert folder.stat().st_mode & 0o777 == 0o755


def test_mail_that_waits_to_be_sent_is_told_by_the_doctor(machine: Machine):
    target = to_ben(machine)
    machine.shell.run("send", "--as", "ann", target, "first")
    Path(machine.layout.mailbox(BEN.key)).write_bytes(b"")
    machine.shell.run("send", "--as", "ann", target, "second")

    assert "and 1 to be sent when it runs again" in machine.shell.run("doctor").text


def test_the_topic_stands_in_the_header(machine: Machine):
    target = to_ben(machine)
    machine.shell.run("send", "--as", "ann", target, "x", "--topic", "the cart")

    assert 'about "the cart"' in machine.shell.run("inbox", "--as", "ben").text
