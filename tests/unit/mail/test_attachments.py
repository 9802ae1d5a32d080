"""Files as they are attached: whole, once, text, and still; all else at a path is refused at once."""

import os
import socket
from pathlib import Path

import pytest

from herd.core.errors import HerdError, InvalidParams, MessageTooLarge
from herd.core.limits import ATTACHMENT_NAME_CHARACTERS
from herd.mail import attachments
from herd.mail.attachments import distinct, read_file, read_files

MOST = 131_072


def refused(path: str, folder: Path, kind: type[HerdError] = InvalidParams, most: int = MOST) -> HerdError:
    with pytest.raises(kind) as caught:
        read_files([path], str(folder), most)
    assert caught.value.details["entry"] == path
    assert repr(path) in caught.value.message
    return caught.value


@pytest.mark.requirement("H-files-07")
@pytest.mark.parametrize(
    "text", ["", "x", "日本語 \U0001f469\u200d\U0001f467\r\n", "\ufeffx", "\x1b[31m\x7f"]
)
def test_a_file_is_read_byte_for_byte(tmp_path: Path, text: str):
    (tmp_path / "a.txt").write_bytes(text.encode())
    (file,) = read_files(["a.txt"], str(tmp_path), MOST)

    assert (file.name, file.data) == ("a.txt", text.encode())


@pytest.mark.requirement("H-files-07")
@pytest.mark.parametrize(
    "data", [b"\xff", b"half \xe2\x82", b"\xed\xa0\x80", b"\xc0\x80", b"a\0b", b"x" * 9_000 + b"\xfe"]
)
def test_what_is_no_strict_utf_8_or_holds_a_nul_is_refused(tmp_path: Path, data: bytes):
    (tmp_path / "a").write_bytes(data)
    refused("a", tmp_path)


@pytest.mark.requirement("H-files-07", "A-errors-26")
def test_a_file_of_exactly_the_bound_is_taken_and_one_more_byte_is_too_large(tmp_path: Path):
    (tmp_path / "a").write_bytes(b"x" * 1_024)
    (tmp_path / "b").write_bytes(b"x" * 1_025)

    assert len(read_file("a", str(tmp_path), 1_024).data) == 1_024
    assert "1025" in refused("b", tmp_path, MessageTooLarge, 1_024).message


@pytest.mark.requirement("H-files-08")
@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "kind", ["folder", "fifo", "device", "socket", "missing", "loop", "below-a-file", "nul"]
)
def test_what_is_no_regular_file_is_refused_at_once_and_blocks_nobody(tmp_path: Path, kind: str):
    path = "x"
    match kind:
        case "folder":
            (tmp_path / "x").mkdir()
        case "fifo":
            os.mkfifo(tmp_path / "x")  # opened without O_NONBLOCK it would wait for a writer
        case "device":
            path = "/dev/zero"
        case "socket":
            with socket.socket(socket.AF_UNIX) as one:
                one.bind(str(tmp_path / "x"))
        case "loop":
            (tmp_path / "x").symlink_to("x")
        case "below-a-file":
            (tmp_path / "x").write_text("")
            path = "x/y"
        case "nul":
            path = "x\0"

    assert "nothing was sent" in refused(path, tmp_path).message


@pytest.mark.requirement("H-files-08")
def test_a_link_to_a_fifo_is_no_file_either(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "x").symlink_to("pipe")
    refused("x", tmp_path)


def test_a_link_is_followed_to_its_file_and_keeps_its_own_name(tmp_path: Path):
    (tmp_path / "real").write_text("hello")
    (tmp_path / "x").symlink_to("real")

    assert read_file("x", str(tmp_path), MOST)[:2] == ("x", b"hello")


@pytest.mark.requirement("H-files-08")
@pytest.mark.parametrize("other", ["../{}/a", "link", "hard", "./a", "{whole}"])
def test_two_paths_to_one_file_attach_it_once(tmp_path: Path, other: str):
    (tmp_path / "a").write_text("hello")
    (tmp_path / "b").write_text("hello")
    (tmp_path / "link").symlink_to("a")
    os.link(tmp_path / "a", tmp_path / "hard")
    path = other.format(tmp_path.name, whole=tmp_path / "a")

    assert [file.name for file in read_files(["a", path, "b"], str(tmp_path), MOST)] == ["a", "b"]


def changing(monkeypatch: pytest.MonkeyPatch, change) -> None:
    """Let something happen to a file after it was opened and before it was read."""
    read = attachments._all_of

    def changed(number: int, size: int) -> bytes:
        change()
        return read(number, size)

    monkeypatch.setattr(attachments, "_all_of", changed)


@pytest.mark.requirement("H-files-08")
@pytest.mark.parametrize(
    "what", ["grows", "shrinks", "rewritten", "replaced", "removed", "touched", "led-elsewhere"]
)
def test_a_file_that_is_altered_while_it_is_read_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
):
    real, other, link = tmp_path / "real", tmp_path / "other", tmp_path / "x"
    real.write_text("hello")
    other.write_text("other")
    link.symlink_to("real")

    def change() -> None:
        match what:
            case "grows":
                real.write_text("hello and more")
            case "shrinks":
                real.write_text("he")
            case "rewritten":
                real.write_text("HELLO")
                os.utime(real, ns=(1, 1))
            case "replaced":
                other.rename(real)
            case "removed":
                real.unlink()
            case "touched":
                os.utime(real, ns=(2, 2))
            case "led-elsewhere":
                link.unlink()
                link.symlink_to("other")

    changing(monkeypatch, change)
    refused("x", tmp_path)


@pytest.mark.requirement("H-files-08")
@pytest.mark.timeout(60)
def test_what_takes_the_place_of_a_file_before_it_is_opened_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    real = tmp_path / "x"
    real.write_text("hello")
    lstat = os.lstat

    def swapped(path: str) -> os.stat_result:
        status = lstat(path)
        if real.is_file() and not real.is_symlink() and str(path) == str(real):
            real.unlink()
            real.symlink_to("/etc/passwd")
        return status

    monkeypatch.setattr(os, "lstat", swapped)
    refused("x", tmp_path)


@pytest.mark.requirement("H-files-09")
def test_one_that_is_refused_refuses_all(tmp_path: Path):
    (tmp_path / "a").write_text("hello")
    with pytest.raises(InvalidParams) as caught:
        read_files(["a", "missing"], str(tmp_path), MOST)
    assert caught.value.details["entry"] == "missing"


def test_a_file_that_is_called_like_a_reference_is_not_shown_under_one(tmp_path: Path):
    (tmp_path / "result:builder#1").write_text("hello")
    assert read_file("./result:builder#1", str(tmp_path), MOST).name == "_result:builder#1"


def test_files_of_one_name_are_told_apart():
    assert distinct(["a", "b", "a", "a (2)", "a"]) == ["a", "b", "a (2)", "a (2) (2)", "a (3)"]
    long = "x" * ATTACHMENT_NAME_CHARACTERS
    assert [len(one) for one in distinct([long, long])] == [ATTACHMENT_NAME_CHARACTERS] * 2
