"""The quick way to read a parsed record: its whole schema at once, for a record without surprises.

A list reads every record of the machine, and taking field by field costs more than all that the kernel does
for it. This reader says nothing about what is wrong: it gives the very record that the careful one
(`herd.presence.record`) would give, or None, and then that one decides. A test holds the two together.
"""

from typing import Any

from herd.core.build import Build
from herd.core.errors import InvalidParams
from herd.core.identity import SessionName, checked_session
from herd.core.limits import MOMENT_MS, RECORD_CAPABILITIES, RECORD_VERSION
from herd.core.locks import Owner
from herd.core.public_key import is_public_key
from herd.presence.values import ACTIVITIES, CAPABILITIES, KINDS, ROLES, Presence, Record

_PLAIN_CHARACTERS = 128
"""Characters of a plain text: what every text of a record may have. Some may have more; see the top."""

_HASH_CHARACTERS = 64
_INTEGER_MOST = 2**63 - 1
_KNOWN_CAPABILITIES = frozenset(CAPABILITIES)
_ABSENT: Any = object()


def plain_record(parsed: Any) -> Record | None:
    """Give the record that a parsed file holds; None where the careful reader has to look."""
    try:
        return _record(**parsed)
    # A field is missing, unknown or of another type, or the session is none.
    except (TypeError, KeyError, InvalidParams):
        return None


def _record(
    *,
    version: Any,
    session: Any,
    kind: Any,
    claim: Any,
    host: Any,
    instance: Any,
    build: Any,
    presence: Any = _ABSENT,
) -> Record | None:
    name, owner, code = SessionName(**session), Owner(**claim), Build(**build)
    pid, start, capabilities = host["pid"], host["start"], instance["capabilities"]
    one = instance["id"], instance["protocol"], instance["socket"], instance["public_key"]
    if (len(session), len(host), len(instance)) != (3, 2, 5):  # one is left out, or there is one more
        return None
    listed, labels = (None, ()) if presence is _ABSENT else _presence(presence)
    if not (
        _are_plain([name[0], name[1], owner.start, one[0], one[2], *code, *labels], name[2], start, owner.id)
        and type(version) is type(owner.pid) is type(pid) is type(one[1]) is int
        and version == RECORD_VERSION
        and 0 < owner.pid <= _INTEGER_MOST
        and 0 <= pid <= _INTEGER_MOST
        and 0 < one[1] <= _INTEGER_MOST
        and kind in KINDS
        and len(code.sha256) == _HASH_CHARACTERS
        and type(capabilities) is list
        and len(capabilities) <= RECORD_CAPABILITIES
        and len(set(capabilities) & _KNOWN_CAPABILITIES) == len(capabilities)
        and is_public_key(one[3])
        and (listed is not None or presence is _ABSENT)
    ):
        return None
    return Record(checked_session(*name), kind, owner, pid, start, *one, tuple(capabilities), code, listed)


def _presence(fields: Any) -> tuple[Presence | None, Any]:
    """Give the presence, None where it is for the careful reader, and its texts, not yet looked at."""
    found, texts = Presence(**fields), dict(fields)
    moments = texts.pop("since", 0), texts.pop("undrained_since", 0)
    known = found.role in ROLES and (found.activity in ACTIVITIES or "activity" not in texts)
    timed = all(type(moment) is int and 0 <= moment <= MOMENT_MS for moment in moments)
    return found if known and timed else None, texts.values()


def _are_plain(full: list[str], created: str, start: str, claim: str | None) -> bool:
    """Tell whether all are short ASCII texts without NUL that say something; the three others may be empty.

    A claim may be absent, and may not be empty.
    """
    every = [*full, created, start, "?" if claim is None else claim]
    whole = "".join(every)  # it takes texts only
    if not whole.isascii() or "\0" in whole or claim == "":
        return False
    return all(map(str.strip, full)) and max(map(len, every)) <= _PLAIN_CHARACTERS
