"""Attached files written where a person wants them: under safe names, and never over anything."""

import os
from collections.abc import Iterator
from typing import Any

from herd.cli.calling import Call
from herd.core.errors import InvalidParams
from herd.core.limits import ATTACHMENT_NAME_CHARACTERS, SAVED_NAMES
from herd.core.text import printable

_NAME_BYTES = 200
"""Bytes of a saved file's name, before what keeps it from another's: file systems take 255."""


def saved(call: Call, message: dict[str, Any], folder: str) -> Iterator[str]:
    """Write the files attached to a message into a folder, and give each path.

    Args:
        call: Asks the session's coordinator.
        message: As `session.read` showed it.
        folder: It must be there.

    Raises:
        InvalidParams: the folder is none, or a file cannot be written there.
    """
    for number, attached in enumerate(message.get("attachments", []), 1):
        # By its number: a name of digits alone is found by no other way.
        text = _text(call, message["message_id"], str(number))
        yield _written(folder, safe_name(attached["name"]), text.encode())


def require_folder(folder: str) -> None:
    """Refuse a folder into which nothing can be written, before any message is handed over for it.

    Raises:
        InvalidParams: it is not there, is no folder, or takes no files of this user's.
    """
    if not os.path.isdir(folder):
        raise InvalidParams(f"--save: {printable(folder, None)} is no folder", field="save")
    if not os.access(folder, os.W_OK | os.X_OK, effective_ids=os.access in os.supports_effective_ids):
        raise InvalidParams(f"--save: {printable(folder, None)} cannot be written into", field="save")


def safe_name(name: str) -> str:
    """Give a name under which a file may be written, whatever its sender called it.

    No separator, no control character, no dot or dash in front; never empty.
    """
    plain = printable(name, ATTACHMENT_NAME_CHARACTERS).replace("/", "_").replace("\\", "_").replace(":", "_")
    short = plain.encode()[:_NAME_BYTES].decode("utf-8", "ignore").strip().lstrip(".-").strip()
    return short or "attachment"


def _text(call: Call, message_id: str, number: str) -> str:
    parts: list[str] = []
    offset: int | None = 0
    while offset is not None:
        wanted = {"message_id": message_id, "attachment": number, "offset": offset}
        (shown,) = call("session.read", wanted)["messages"]
        parts.append(shown["text"])
        offset = shown.get("next_offset")
    return "".join(parts)


def _written(folder: str, name: str, data: bytes) -> str:
    stem, ending = os.path.splitext(name)
    for count in range(1, SAVED_NAMES + 1):
        path = os.path.join(folder, name if count == 1 else f"{stem}-{count}{ending}")
        try:
            number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except FileExistsError:
            continue
        except OSError as fault:
            raise InvalidParams(f"{path} cannot be written: {os.strerror(fault.errno or 0)}") from fault
        with os.fdopen(number, "wb") as file:
            file.write(data)
        return path
    raise InvalidParams(f"{folder} holds {SAVED_NAMES} files called like {name} already")
