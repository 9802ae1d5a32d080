"""Arguments and folders as text, whatever the locale made of their bytes."""

import os

from herd.core.errors import InvalidParams


def exact_text(argument: str) -> str:
    """Give an argument as the UTF-8 text its bytes are.

    Raises:
        InvalidParams: the bytes are no UTF-8.
    """
    return decoded(os.fsencode(argument), "an argument")


def as_text(path: str) -> str:
    """Give a path as text to show and to store; a byte that is no UTF-8 becomes U+FFFD."""
    return os.fsencode(path).decode("utf-8", "replace")


def decoded(data: bytes, source: str) -> str:
    """Give bytes as the UTF-8 text that they are.

    Args:
        data: The bytes.
        source: Where they come from, for the refusal.

    Raises:
        InvalidParams: they are no UTF-8.
    """
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as fault:
        raise InvalidParams(f"{source} is no UTF-8 text at byte {fault.start}") from None
