"""Files as they are attached: read whole, once each, and only what is text and stands still meanwhile.

It blocks: call it in a thread. A path is never passed off as a file, and nothing that stands at one can block
the reader for good, be sent in part, or be taken for something else.
"""

import os
import stat
from collections.abc import Iterable
from typing import NamedTuple

from herd.core.errors import InvalidParams, MessageTooLarge
from herd.core.limits import ATTACHMENT_NAME_CHARACTERS
from herd.mail.parts import PREFIX

NOTHING_SENT = "; nothing was sent"
"""What ends the refusal of a file or result: one entry that cannot be attached refuses the whole call."""

_READ_BYTES = 1_048_576


class File(NamedTuple):
    """One file as it was read."""

    name: str
    data: bytes
    identity: tuple[int, int]
    """Its device and inode: two paths to one file are one file."""


def read_files(paths: Iterable[str], folder: str, most: int) -> list[File]:
    """Read files, each once whatever the number of its paths, in the order of the first of these.

    Args:
        paths: Where they are; relative ones start from the folder.
        folder: Absolute.
        most: Bytes of one file.

    Raises:
        InvalidParams: one is missing, no regular file, changes while it is read, or is no text; `entry` names
            it. Nothing is given of the others either.
        MessageTooLarge: one has more bytes.
    """
    found: dict[tuple[int, int], File] = {}
    for path in paths:
        file = read_file(path, folder, most)
        found.setdefault(file.identity, file)
    return list(found.values())


def read_file(path: str, folder: str, most: int) -> File:
    """Read one file; see `read_files`."""
    if "\0" in path:
        raise _refused(path, "no path holds a NUL")
    try:
        data, status = _read(path, os.path.join(folder, path), most)
    except OSError as fault:
        raise _refused(path, os.strerror(fault.errno or 0)) from fault
    try:
        data.decode()
    except UnicodeDecodeError:
        raise _refused(path, "is no UTF-8 text") from None
    if b"\0" in data:
        raise _refused(path, "holds a NUL byte, which no text has")
    return File(_name(path), data, (status.st_dev, status.st_ino))


def distinct(names: Iterable[str]) -> list[str]:
    """Give each name once: the second file of a name is shown with ` (2)` behind it, and so on."""
    given: list[str] = []
    taken: set[str] = set()
    for name in names:
        one, count = name, 1
        while one in taken:
            count += 1
            ending = f" ({count})"
            one = name[: ATTACHMENT_NAME_CHARACTERS - len(ending)] + ending
        taken.add(one)
        given.append(one)
    return given


def _read(path: str, whole_path: str, most: int) -> tuple[bytes, os.stat_result]:
    real = os.path.realpath(whole_path, strict=True)
    _require_regular(path, os.lstat(real))  # before: to open a device can do something
    number = os.open(real, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        before = os.fstat(number)
        _require_regular(path, before)
        if before.st_size > most:
            raise MessageTooLarge(
                f"file {path!r} has {before.st_size} bytes, more than inline_attachment_bytes, {most}",
                hint="Attach a part of it, or say in the message where on this machine it lies.",
                entry=path,
            )
        data = _all_of(number, before.st_size)
        after = os.fstat(number)
    finally:
        os.close(number)
    # A link that was led elsewhere meanwhile, above the file or at its name, shows in where the path leads.
    still_there = os.path.realpath(whole_path, strict=True) == real and _same(os.lstat(real), after)
    if len(data) != before.st_size or not _same(before, after) or not still_there:
        raise _refused(path, "changes while it is read; attach it when nobody writes to it")
    return data, after


def _all_of(number: int, size: int) -> bytes:
    parts: list[bytes] = []
    left = size + 1  # one more than there should be, so that a file that grows is noticed
    while left > 0 and (part := os.read(number, min(left, _READ_BYTES))):
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


def _same(one: os.stat_result, other: os.stat_result) -> bool:
    return all(
        getattr(one, field) == getattr(other, field)
        for field in ("st_dev", "st_ino", "st_size", "st_mtime_ns", "st_ctime_ns")
    )


def _require_regular(path: str, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise _refused(path, "is no regular file")


def _name(path: str) -> str:
    name = os.path.basename(os.path.normpath(path))
    # Whatever looks like a reference is one: only a result may be shown under it.
    shown = f"_{name}" if name.startswith(PREFIX) else name
    return shown[:ATTACHMENT_NAME_CHARACTERS]


def _refused(path: str, why: str) -> InvalidParams:
    return InvalidParams(
        f"files: {path!r} {why}{NOTHING_SENT}",
        hint="Give paths of regular UTF-8 text files; relative ones start from the session's folder.",
        field="files",
        entry=path,
    )
