"""Foreign text made harmless to look at: for a terminal, and as one string for a model.

Both are pure and neither changes what is stored. It does not know who wrote a text or under which header
it appears; that is the caller's part.
"""

import json
import re
import unicodedata

from herd.core.limits import SHOWN_CHARACTERS

_REPLACEMENT = "\ufffd"
_ELLIPSIS = "\u2026"

# What a terminal may act on or nobody can see: controls, format characters, surrogates, private use,
# unassigned, line and paragraph separators.
_HARMFUL = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})

# What could end the line, or hide in it, inside a JSON string.
_ESCAPED = frozenset({"Cc", "Cf", "Cs", "Co", "Zl", "Zp"})

# Letters and marks that show nothing at all, with which whole sentences are smuggled past a reader.
_INVISIBLE = frozenset(
    [0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, *range(0x180B, 0x1810), 0x3164, 0xFFA0, *range(0xE0000, 0xE1000)]
)

_VARIATIONS = frozenset(chr(number) for number in range(0xFE00, 0xFE10))
_JOINERS = "\u200c\u200d"
_NO_BASE = _VARIATIONS | {"", "\n", "\t", _REPLACEMENT, *_JOINERS}
_SKIN_TONES = frozenset(chr(number) for number in range(0x1F3FB, 0x1F400))

# Introducers exist with seven bits (ESC and a letter) and with eight (one C1 character). The contents
# exclude every introducer, and the quantifiers are possessive, so no text makes the search quadratic.
# One pass finds them all: after a first pass, what it removed could have joined a new one.
_CONTROL_STRING = r"(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x80-\x9f]*+(?:\x07|\x1b\\|\x9c)"
_FORMATTING = r"(?:\x1b\[|\x9b)[0-?]*+[ -/]*+[@-~]|\x1b[ -/]*+[0-~]"
_SEQUENCE = re.compile(f"(?P<hides>{_CONTROL_STRING})|{_FORMATTING}")


def printable(text: str, limit: int | None = SHOWN_CHARACTERS) -> str:
    r"""Give a text that no terminal acts on, whatever it was.

    Formatting sequences vanish. A control string (OSC, DCS, APC, PM, SOS), which could hide what it holds,
    becomes one U+FFFD, and so does every other control, format, bidi, private or unassigned character.
    Joiners stay where emoji are built with them.

    Args:
        text: Anything, lone surrogates included.
        limit: Greatest number of characters; a longer text ends in an ellipsis within it. None is for bodies:
            nothing is cut, and newline and tab stay (`\r\n` counts as a newline).
    """
    if not text.isprintable():
        text = _SEQUENCE.sub(lambda found: _REPLACEMENT if found["hides"] else "", text)
    if limit is None:
        return _shown(text.replace("\r\n", "\n"), kept="\n\t")
    shown = _shown(text, kept="")
    if len(shown) <= limit:
        return shown
    return (shown[: max(limit - 1, 0)].rstrip(_JOINERS) + _ELLIPSIS)[:limit]


def quoted(text: str) -> str:
    r"""Give a text as one JSON string literal on one line, from which a JSON reader gets it back exactly.

    Controls, DEL, C1, format characters, separators, surrogates and private use stand as `\uXXXX` (or `\n`
    and the like), everything else as it is. The one text that JSON cannot give back holds a high and a low
    surrogate as two characters side by side, and no UTF-8 contains that.
    """
    literal = json.dumps(text, ensure_ascii=False)
    if literal.isprintable():
        return literal
    return "".join(_escaped(one) if unicodedata.category(one) in _ESCAPED else one for one in literal)


def _escaped(one: str) -> str:
    return json.dumps(one, ensure_ascii=True)[1:-1]


def _shown(text: str, kept: str) -> str:
    if text.isascii() and text.isprintable():
        return text
    shown: list[str] = []
    for at, one in enumerate(text):
        before = shown[-1] if shown else ""
        harmless = one in kept or _is_harmless(one, before, text[at + 1 : at + 2])
        shown.append(one if harmless else _REPLACEMENT)
    return "".join(shown)


def _is_harmless(one: str, before: str, after: str) -> bool:
    if one in _JOINERS:
        # What chooses a look has nothing before it here, so it goes, and the joiner would join nothing.
        return _is_emoji(before) and _is_emoji(after) and after not in _VARIATIONS
    if one in _VARIATIONS:
        # One chooses how the character before it looks; a row of them carries hidden bytes.
        return before not in _NO_BASE
    return ord(one) not in _INVISIBLE and unicodedata.category(one) not in _HARMFUL


def _is_emoji(one: str) -> bool:
    if one in ("", _REPLACEMENT):
        return False
    return one in _SKIN_TONES or one in _VARIATIONS or unicodedata.category(one) == "So"
