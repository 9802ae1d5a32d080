"""What each setting may be: a person's choices are checked as they are read, before anything is begun."""

import re
from collections.abc import Mapping
from typing import Any

from herd.core.config import (
    IDLE_AUTO,
    IDLE_NOTIFY,
    RESTART_DELIVER,
    RESTART_REVIEW,
    SCOPE_MACHINE,
    SCOPE_REPOSITORY,
    SCOPE_WORKSPACE,
    Settings,
)
from herd.core.errors import InvalidParams
from herd.core.limits import (
    DEFAULT_LIMITS,
    FRAME_LEAST_BYTES,
    PAYLOAD_GREATEST_BYTES,
    PAYLOAD_LEAST_BYTES,
    SETTING_GREATEST,
    SHOWN_CHARACTERS,
    Limits,
)

WORDS = {
    "idle": (IDLE_AUTO, IDLE_NOTIFY),
    "scope": (SCOPE_MACHINE, SCOPE_REPOSITORY, SCOPE_WORKSPACE),
    "on_restart": (RESTART_DELIVER, RESTART_REVIEW),
}
"""The settings that are one word of several."""

_PAYLOAD = (PAYLOAD_LEAST_BYTES, PAYLOAD_GREATEST_BYTES)

RANGES = {
    "frame_bytes": (FRAME_LEAST_BYTES, SETTING_GREATEST),
    "inline_attachment_bytes": _PAYLOAD,
    "mailbox_payload_bytes": _PAYLOAD,
}
"""The limits that lie within narrower bounds than the others, with these."""

_ANY = (1, SETTING_GREATEST)

_ORDERED = (("message_bytes", "frame_bytes"), ("expiry_ms", "max_expiry_ms"))
"""Pairs of limits of which the first is not greater than the second."""

_ALIAS = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")


def chosen(defaults: Settings, tables: Mapping[str, Any]) -> Settings:
    """Give the settings as a person chose them.

    Args:
        defaults: What holds where nothing was chosen; its `config_file` stands in what is refused.
        tables: The content of that file.

    Raises:
        InvalidParams: a key is unknown, or a value is none that it may have; the file and the key are named.
    """
    file = defaults.config_file
    for key in tables:
        if key not in {*WORDS, "enabled", "alias", "limits"}:
            raise InvalidParams(f"{file}: unknown key {key!r}")
    return defaults._replace(
        **{key: _word(file, key, tables[key]) for key in WORDS if key in tables},
        limits=_limits(file, tables.get("limits", {})),
        enabled=_enabled(file, tables.get("enabled", defaults.enabled)),
        alias=checked_alias(tables["alias"], f"{file}: 'alias'") if "alias" in tables else defaults.alias,
    )


def _word(file: str, key: str, value: object) -> str:
    *others, last = WORDS[key]
    if not isinstance(value, str) or value not in WORDS[key]:
        said = f"neither {others[0]!r}" if len(others) == 1 else f"none of {', '.join(map(repr, others))}"
        raise InvalidParams(f"{file}: {key!r} is {said} {'nor' if len(others) == 1 else 'and'} {last!r}")
    return value


def _enabled(file: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise InvalidParams(f"{file}: 'enabled' is neither true nor false")
    return value


def checked_alias(value: object, where: str) -> str:
    """Give an alias back.

    Args:
        value: What somebody chose.
        where: What to call it in a refusal.

    Raises:
        InvalidParams: it is none; the message shows it.
    """
    if not isinstance(value, str) or _ALIAS.fullmatch(value) is None:
        raise InvalidParams(
            f"{where} is {str(value)[:SHOWN_CHARACTERS]!r}; a letter, and up to 63 letters, digits, "
            "'_' and '-' behind it, is one"
        )
    return value


def _limits(file: str, values: object) -> Limits:
    if not isinstance(values, dict):
        raise InvalidParams(f"{file}: 'limits' is no table")
    for key, value in values.items():
        _check_limit(file, key, value)
    limits = DEFAULT_LIMITS._replace(**values)
    for lesser, greater in _ORDERED:
        low, high = getattr(limits, lesser), getattr(limits, greater)
        if low > high:
            raise InvalidParams(
                f"{file}: 'limits.{lesser}' is {low}, more than 'limits.{greater}', which is {high}",
                hint="Set both so that the first one is not greater than the second.",
            )
    return limits


def _check_limit(file: str, key: str, value: object) -> None:
    if key not in Limits._fields:
        raise InvalidParams(f"{file}: unknown key {f'limits.{key}'!r}")
    least, greatest = RANGES.get(key, _ANY)
    # bool is an int in Python, and never one in TOML.
    if type(value) is not int or not least <= value <= greatest:
        raise InvalidParams(f"{file}: 'limits.{key}' is no whole number from {least} to {greatest}")
