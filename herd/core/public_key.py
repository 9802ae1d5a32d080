"""The published form of an Ed25519 key, checked without loading any cryptography.

A record is read on paths that must stay cheap, so its key is checked by form alone here; what the key
proves is the handshake's matter.
"""

import binascii

_PREFIX = bytes.fromhex("302a300506032b6570032100")
_DER_BYTES = 44


def is_public_key(text: str) -> bool:
    """Tell whether a text is the canonical base64 (60 characters) of a 44-byte Ed25519 SPKI."""
    try:
        der = binascii.a2b_base64(text.encode("ascii"), strict_mode=True)
    except (ValueError, UnicodeEncodeError):
        return False
    canonical = binascii.b2a_base64(der, newline=False).decode("ascii") == text
    return canonical and len(der) == _DER_BYTES and der.startswith(_PREFIX)
