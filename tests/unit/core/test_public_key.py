import base64

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import example, given
from hypothesis import strategies as st

from herd.core.public_key import is_public_key

PREFIX = bytes.fromhex("302a300506032b6570032100")


def text_of(der: bytes) -> str:
    return base64.b64encode(der).decode("ascii")


KEY = text_of(PREFIX + b"\xff" * 32)


@given(st.binary(min_size=32, max_size=32))
def test_the_form_that_the_cryptography_library_gives_is_accepted(seed):
    public = Ed25519PrivateKey.from_private_bytes(seed).public_key()
    text = text_of(public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo))

    assert len(text) == 60
    assert is_public_key(text)


def test_a_key_of_another_algorithm_is_refused():
    public = X25519PrivateKey.generate().public_key()

    assert not is_public_key(text_of(public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "=",
        KEY[:-1],  # without its padding
        KEY + "=",
        KEY + "\n",
        " " + KEY,
        KEY[:30] + "\n" + KEY[30:],
        KEY[:-2] + "9=",  # decodes to the same bytes: the last two bits count for nothing
        KEY.replace("A", "\uff21"),  # a letter A of another width
        KEY.replace("/", "_"),
        KEY + KEY,
        text_of(PREFIX + bytes(31)),
        text_of(PREFIX + bytes(33)),
        text_of(bytes(44)),
        text_of(bytes(32)),
        KEY[:-1] + "\ud800",
    ],
)
def test_every_other_spelling_of_a_key_is_refused(text):
    assert is_public_key(KEY)
    assert not is_public_key(text)


@given(st.text(max_size=70) | st.text("ABCDabcd0189+/=", min_size=56, max_size=64))
@example(KEY)
def test_one_key_has_one_text(text):
    if is_public_key(text):
        der = base64.b64decode(text, validate=True)

        assert text_of(der) == text
        assert der[:12] == PREFIX
        assert len(der) == 44
