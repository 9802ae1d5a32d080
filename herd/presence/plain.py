"""The quick way to read a record: one pattern, which is what our own writer writes of plain texts.

A list reads every record of the machine, and to parse one and take it field by field costs twice what all
else does that a list does for it. A record that fits this pattern holds each field once, in the writer's
order, of the right type and within its bounds, and its texts are ASCII without quotes, escapes and controls.
Whatever does not fit is no worse for it: the careful reader (`herd.presence.record`) decides, and it alone
says what is wrong. A test holds the two together.
"""

import re
from functools import lru_cache
from typing import Any

from herd.core.build import Build
from herd.core.identity import SessionName
from herd.core.limits import HOST_CHARACTERS, MOMENT_MS, RECORD_CAPABILITIES, RECORD_VERSION
from herd.core.locks import Owner
from herd.core.public_key import CANONICAL_KEY
from herd.presence.scopes import SCOPES
from herd.presence.values import ACTIVITIES, CAPABILITIES, KINDS, ROLES, Presence, Record

_PLAIN_CHARACTERS = 128
"""Characters of a plain text: as many as every text of a record may have. Some may have more."""

_SHARED = 64

# Possessive, so that no text makes the search go back and forth.
_FILLED = rf"([!#-\[\]-~][ !#-\[\]-~]{{0,{_PLAIN_CHARACTERS - 1}}}+)"
_ANY = rf"([ !#-\[\]-~]{{0,{_PLAIN_CHARACTERS}}}+)"
_NUMBER = r"(0|[1-9][0-9]{0,17}+)"
_COUNT = r"([1-9][0-9]{0,17}+)"
_HOST = rf"([a-z][a-z0-9_-]{{0,{HOST_CHARACTERS - 1}}}+)"
_CAPABILITY = f'"(?:{"|".join(map(re.escape, CAPABILITIES))})"'


def _one_of(words: tuple[str, ...]) -> str:
    return f"({'|'.join(words)})"


def _optional(name: str, pattern: str) -> str:
    return f'(?:,"{name}":{pattern})?+'


def _labels(*names: str) -> str:
    return "".join(_optional(name, f'"{_FILLED}"') for name in names)


_SINCE = Presence._fields.index("since")
_UNDRAINED = Presence._fields.index("undrained_since")
_RUNS = Presence._fields.index("runs")
_PRESENCE = (
    rf'\{{"role":"{_one_of(ROLES)}","socket":"{_FILLED}"'
    + _labels("cwd", "name", "repo", "branch", "workspace_label")
    + _optional("activity", f'"{_one_of(ACTIVITIES)}"')
    + _optional("since", _NUMBER)
    + _labels("pane_id", "tab_id", "workspace_id")
    + f',"scope":"{_one_of(SCOPES)}"'
    + _labels("workspace", "repository")
    + _optional("undrained_since", _NUMBER)
    + _optional("runs", "(true)")
    + _labels("group")
    + r"\}"
)
_RECORD = re.compile(
    rf'\{{"version":{RECORD_VERSION},"session":\{{"host":"{_HOST}","session_id":"{_FILLED}","created":"{_ANY}"\}},'
    rf'"kind":"{_one_of(KINDS)}","claim":\{{"pid":{_COUNT},"start":"{_FILLED}","id":(?:null|"{_FILLED}")\}},'
    rf'"host":\{{"pid":{_NUMBER},"start":"{_ANY}"\}},"instance":\{{"id":"{_FILLED}","protocol":{_COUNT},'
    rf'"socket":"{_FILLED}","public_key":"({CANONICAL_KEY})",'
    rf'"capabilities":\[((?:{_CAPABILITY}(?:,{_CAPABILITY})*+)?+)\]\}},'
    rf'"build":\{{"version":"{_FILLED}","sha256":"([!#-\[\]-~]{{64}})"\}}(?:,"presence":{_PRESENCE})?+\}}\n'
)


def plain_record(data: bytes) -> Record | None:
    """Give the record that a file's bytes hold; None where the careful reader has to look."""
    try:
        found = _RECORD.fullmatch(data.decode("ascii"))
    except UnicodeDecodeError:
        return None
    return None if found is None else _record(*found.groups())


def _record(
    host: str,
    session_id: str,
    created: str,
    kind: str,
    pid: str,
    start: str,
    claim: str | None,
    host_pid: str,
    host_start: str,
    instance_id: str,
    protocol: str,
    endpoint: str,
    public_key: str,
    listed: str,
    version: str,
    sha256: str,
    *presence: str | None,
) -> Record | None:
    capabilities = _capabilities(listed)
    if capabilities is None:
        return None
    shown = _presence(*presence) if presence[0] is not None else None
    if presence[0] is not None and shown is None:
        return None
    return Record(
        SessionName(host, session_id, created),
        kind,
        Owner(int(pid), start, claim),
        int(host_pid),
        host_start,
        instance_id,
        int(protocol),
        endpoint,
        public_key,
        capabilities,
        _build(version, sha256),
        shown,
    )


# Nearly every session of a machine runs the same build and can do the same, so these are shared.


@lru_cache(maxsize=_SHARED)
def _build(version: str, sha256: str) -> Build:
    return Build(version, sha256)


@lru_cache(maxsize=_SHARED)
def _capabilities(listed: str) -> tuple[str, ...] | None:
    """Give what the inside of the list names; None where that is too much, or something twice."""
    found = tuple(listed[1:-1].split('","')) if listed else ()
    return found if len(found) <= RECORD_CAPABILITIES and len(set(found)) == len(found) else None


def _presence(*fields: Any) -> Presence | None:
    """Give the presence from its fields in their order; None where a moment is later than any can be."""
    since = None if fields[_SINCE] is None else int(fields[_SINCE])
    undrained_since = None if fields[_UNDRAINED] is None else int(fields[_UNDRAINED])
    runs = None if fields[_RUNS] is None else True
    if max(since or 0, undrained_since or 0) > MOMENT_MS:
        return None
    between = fields[_SINCE + 1 : _UNDRAINED]
    return Presence._make((*fields[:_SINCE], since, *between, undrained_since, runs, *fields[_RUNS + 1 :]))
