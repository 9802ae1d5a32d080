"""`herd send --file` and `herd inbox --save`, and texts longer than any frame, as processes."""

import os
from pathlib import Path

import pytest

from herd.cli.saving import safe_name
from herd.core.limits import DEFAULT_LIMITS
from tests.fakes.herd_session import HerdSession
from tests.processes.conftest import Machine

LONG = "".join(f"Zeile {n}: \u00fc\u6f22 \U0001f469\u200d\U0001f467\r\n" for n in range(3_000))


def whole(reader: HerdSession, message_id: str, **query: str) -> str:
    parts: list[str] = []
    offset: int | None = 0
    while offset is not None:
        asked = reader.request("session.read", message_id=message_id, offset=offset, **query)
        (shown,) = asked["messages"]
        parts.append(str(shown["text"]))
        offset = shown.get("next_offset")
    return "".join(parts)


@pytest.mark.requirement("C15", "H-files-01")
@pytest.mark.parametrize("environ", [{}, {"LANG": "C", "PYTHONUTF8": "0"}], ids=["utf-8", "C"])
@pytest.mark.parametrize("where", ["shell", "inside"])
def test_files_and_a_text_longer_than_a_frame_arrive_byte_for_byte(
    machine: Machine, tmp_path: Path, where: str, environ: dict[str, str]
):
    machine.session("claude", "alice", name="alice")
    bob = machine.session("codex", "bob", name="bob", parent=machine.new_host())
    (tmp_path / "\u00fc.txt").write_bytes("\u6f22 1\r\n".encode())
    (tmp_path / "b").write_text("two")
    parent = machine.terminal if where == "shell" else machine.host
    line = machine.command_line(parent, cwd=tmp_path, environ=environ)
    text = (LONG * 2)[:50_000]

    sent = line.run(
        "send",
        "bob",
        "--file",
        "\u00fc.txt".encode(),
        "--file",
        str(tmp_path / "b"),
        "--json",
        stdin=text.encode(),
    )

    assert (sent.status, sent.stderr) == (0, "")
    bob.request("session.read", wait_ms=10_000)
    assert whole(bob, sent.json["message_id"]) == text
    assert len(text.encode()) > DEFAULT_LIMITS.frame_bytes
    assert whole(bob, sent.json["message_id"], attachment="\u00fc.txt") == "\u6f22 1\r\n"
    assert whole(bob, sent.json["message_id"], attachment="2") == "two"


def test_a_long_text_goes_through_the_coordinator_of_another_shell(machine: Machine):
    bob = machine.session("codex", "bob", name="bob", parent=machine.new_host())
    with machine.shell.start("inbox", "--wait", "60"):
        while sum(one.endswith(".json") for one in os.listdir(machine.layout.peers)) < 2:
            pass  # until the first shell is on record
        sent = machine.shell.run("send", "bob", "--json", stdin=LONG[:30_000].encode())
    assert sent.status == 0
    bob.request("session.read", wait_ms=10_000)
    assert whole(bob, sent.json["message_id"]) == LONG[:30_000]


@pytest.mark.requirement("H-files-07", "H-files-09")
@pytest.mark.parametrize("name", ["missing", "folder", "latin", "large", "result:b#1"])
def test_a_file_that_cannot_be_attached_ends_the_command_and_nothing_was_sent(
    machine: Machine, tmp_path: Path, name: str
):
    alice = machine.session("claude", "alice", name="alice")
    (tmp_path / "folder").mkdir()
    (tmp_path / "latin").write_bytes(b"\xfc")
    (tmp_path / "large").write_bytes(b"x" * (DEFAULT_LIMITS.inline_attachment_bytes + 1))
    line = machine.command_line(machine.terminal, cwd=tmp_path)

    refused = line.run("send", "alice", "x", "--file", name, "--json")

    assert refused.status == (7 if name == "large" else 2)
    assert refused.refusal["code"] == ("MESSAGE_TOO_LARGE" if name == "large" else "INVALID_PARAMS")
    assert name in refused.refusal["message"]
    assert alice.request("session.read")["messages"] == []


def test_saved_files_keep_their_bytes_and_replace_nothing(machine: Machine, tmp_path: Path):
    alice = machine.session("claude", "alice", name="alice")
    target = machine.shell.run("whoami", "--json").json["target"]
    machine.shell.run("send", "alice", "hello")  # so that Alice may answer the terminal
    alice.request("session.read", wait_ms=10_000)
    out, made = tmp_path / "out", tmp_path / "made"
    out.mkdir()
    made.mkdir()
    (made / "a.txt").write_text(LONG, newline="")
    (made / "-\x1b[31m\u202e").write_text("two")
    (out / "a.txt").write_text("was here before")
    os.symlink(tmp_path / "not-mine", out / "a-2.txt")
    files = [str(made / "a.txt"), str(made / "-\x1b[31m\u202e")]
    alice.request("session.send", target=target, message="take these", files=files)

    shown = machine.shell.run("inbox", "--save", str(out))

    assert shown.status == 0, shown.stderr
    assert "attached: a.txt" in shown.text
    assert (out / "a.txt").read_text() == "was here before"
    assert (out / "a-3.txt").read_bytes() == LONG.encode()
    assert not (tmp_path / "not-mine").exists()
    names = sorted(os.listdir(out))
    assert len(names) == 4
    assert all(name.isprintable() and not name.startswith("-") for name in names)
    assert all((out / name).stat().st_mode & 0o777 == 0o600 for name in names if name == "a-3.txt")


def test_a_folder_that_is_none_saves_nothing_and_confirms_nothing(machine: Machine, tmp_path: Path):
    alice = machine.session("claude", "alice", name="alice")
    target = machine.shell.run("whoami", "--json").json["target"]
    machine.shell.run("send", "alice", "hello")
    alice.request("session.read", wait_ms=10_000)
    (tmp_path / "a").write_text("x")
    sent = alice.request("session.send", target=target, message="x", files=[str(tmp_path / "a")])

    assert machine.shell.run("inbox", "--save", str(tmp_path / "missing")).status == 2
    assert alice.request("session.status", message_id=sent["message_id"])["state"] == "accepted"
    assert machine.shell.run("inbox", "--look", "--save", "x").status == 2
    # It was not even handed over, so it comes as for the first time.
    (message,) = machine.shell.run("inbox", "--json").json["messages"]
    assert "again" not in message


@pytest.mark.parametrize(
    ("name", "safe"),
    [
        ("a.txt", "a.txt"),
        ("../../etc/passwd", "_.._etc_passwd"),
        (".bashrc", "bashrc"),
        ("..", "attachment"),
        ("-rf", "rf"),
        ("", "attachment"),
        ("a\\b:c", "a_b_c"),
        ("\x1b]0;x\x07a", "\ufffda"),
        ("result:builder#1", "result_builder#1"),
    ],
)
def test_a_name_is_safe_whatever_its_sender_called_it(name: str, safe: str):
    assert safe_name(name) == safe
    assert len(safe_name("\u6f22" * 255).encode()) <= 200


@pytest.mark.parametrize("words", [[], ["--message"], ["--json"]], ids=str)
def test_a_long_text_is_shown_whole_before_it_is_confirmed(machine: Machine, words: list[str]):
    alice = machine.session("claude", "alice", name="alice")
    target = machine.shell.run("whoami", "--json").json["target"]
    machine.shell.run("send", "alice", "hello")  # so that Alice may answer the terminal
    alice.request("session.read", wait_ms=10_000)
    text = LONG[:60_000].replace("\r", "")
    sent = machine.command_line(machine.host).run("send", target, "--json", stdin=text.encode()).json

    looked = machine.shell.run("inbox", "--look")
    assert "more characters follow" in looked.text
    assert sent["message_id"] in looked.text.splitlines()[-1]
    assert alice.request("session.status", message_id=sent["message_id"])["state"] == "accepted"
    asleep = machine.shell.run("inbox", "--session", target, "--json")
    assert [one["text"] for one in asleep.json["messages"]] == [text]

    shown = machine.shell.run("inbox", *words, *([sent["message_id"]] if "--message" in words else []))

    assert shown.status == 0
    if "--json" in words:
        assert [one["text"] for one in shown.json["messages"]] == [text]
        assert "next_offset" not in shown.text
    else:
        lines = [line[4:] for line in shown.text.splitlines() if line.startswith("  | ")]
        assert len(lines) == len(text.split("\n"))
        assert "characters follow" not in shown.text
    assert machine.shell.run("inbox", "--json").json["messages"] == []
