"""Cutting a text into pieces that fit into frames: at the ends of characters, by what JSON makes of them."""

from collections.abc import Iterator

_SHORT = b'"\\\b\t\n\f\r'
"""What JSON writes as two bytes; every other byte before the space as six."""

_PLAIN = bytes(byte for byte in range(256) if byte >= ord(" ") and byte not in _SHORT)
_SIX = 6

_CONTINUES, _BITS_OF_IT = 0b1000_0000, 0b1100_0000
"""In UTF-8 a byte whose upper two bits are these goes on with a character."""


def written_bytes(text: bytes) -> int:
    """Give the bytes that a UTF-8 text has inside the quotes of a JSON string."""
    special = text.translate(None, _PLAIN)
    rare = special.translate(None, _SHORT)
    return len(text) + len(special) + (_SIX - 2) * len(rare)


def cut(text: bytes, start: int, most: int) -> Iterator[tuple[int, bytes]]:
    """Give the pieces of a UTF-8 text from a byte on, each with the byte it begins at.

    Args:
        text: The whole text.
        start: The beginning of a character.
        most: Bytes that a piece may have in JSON; one character is given whole however many it has.
    """
    while start < len(text):
        end = _end(text, start, most)
        yield start, text[start:end]
        start = end


def is_inside(text: bytes, place: int) -> bool:
    """Tell whether a byte goes on with a character instead of beginning one."""
    return place < len(text) and text[place] & _BITS_OF_IT == _CONTINUES


def _end(text: bytes, start: int, most: int) -> int:
    piece = text[start : start + most]
    while (size := written_bytes(piece)) > most and len(piece) > 1:
        piece = piece[: len(piece) * most // size]
    end = start + len(piece)
    while is_inside(text, end):
        end -= 1
    if end <= start:
        end = start + 1
        while is_inside(text, end):
            end += 1
    return end
