"""One thing that was looked at, and how what stops a look is told."""

import re
import sqlite3
import time
from collections.abc import Callable, Collection, Iterator
from typing import NamedTuple, TypeVar

from herd.core.errors import HerdError
from herd.core.limits import LOOK_AGAIN_MS

_MEND = "Mend what holds it, or who may read it; nothing there was changed."
_LOOKS = 10

Seen = TypeVar("Seen")


class Finding(NamedTuple):
    """One thing looked at."""

    what: str
    ok: bool
    detail: str
    next_step: str | None = None


Findings = Iterator[Finding]


def tried(
    what: str, check: Callable[[], Findings], label: str = "", *, named: Collection[str] = ()
) -> Findings:
    """Give what a look finds; a refusal or a failing disk is a finding too, and ends this look alone.

    Args:
        what: What is looked at.
        check: The look.
        label: Whose it is; it is put in front of a refusal, together with the refusal's code.
        named: Paths that another look has named as wrong; a refusal over one of them says nothing more.
    """
    try:
        yield from check()
    except HerdError as refusal:
        if any(_is_over(refusal, path) for path in named):
            return
        detail = f"{label}: {refusal.code}: {refusal.message}" if label else refusal.message
        yield Finding(what, ok=False, detail=detail, next_step=refusal.next_step)
    except OSError as fault:
        yield Finding(what, ok=False, detail=_told(label, fault.filename, fault.strerror), next_step=_MEND)
    except sqlite3.Error as fault:
        yield Finding(what, ok=False, detail=_told(label, "its mailbox", str(fault)), next_step=_MEND)


def lasting(look: Callable[[], Seen], passing: Callable[[Seen], bool]) -> Seen:
    """Look again for `_LOOKS * LOOK_AGAIN_MS` milliseconds while what is seen may be a step of somebody's.

    A session that starts, ends or publishes writes several files one after the other; what is seen in between
    is true of that moment and of nothing else.
    """
    seen = look()
    for _ in range(_LOOKS):
        if not passing(seen):
            break
        time.sleep(LOOK_AGAIN_MS / 1000)
        seen = look()
    return seen


def _is_over(refusal: HerdError, path: str) -> bool:
    # A folder's path begins that of everything in it.
    return re.search(rf"{re.escape(path)}(?![\w./-])", refusal.message) is not None


def _told(*parts: object) -> str:
    return ": ".join(str(part) for part in parts if part)
