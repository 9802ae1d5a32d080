"""The published form of an Ed25519 key, checked without loading any cryptography.

A record is read on paths that must stay cheap, so its key is checked by form alone here; what the key
proves is the handshake's matter.
"""

import re

CANONICAL_KEY = "MCowBQYDK2VwAyEA[A-Za-z0-9+/]{42}[AEIMQUYcgkosw048]="
"""A pattern: base64 of the twelve bytes that every Ed25519 SPKI begins with, then of 32 bytes.

Those are ten groups of three and two bytes more, so the last letter carries four bits: of the letters that
decode to the same bytes only the one whose other two bits are zero is canonical.
"""

_CANONICAL = re.compile(CANONICAL_KEY)


def is_public_key(text: str) -> bool:
    """Tell whether a text is the canonical base64 (60 characters) of a 44-byte Ed25519 SPKI."""
    return _CANONICAL.fullmatch(text) is not None
