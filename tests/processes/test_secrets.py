"""Where no key, token or text may be found: files, logs, arguments, environments, children, listings."""

import base64
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from herd.core.identity import SessionName
from herd.presence.registry import Registry
from tests.fakes.programs import hanging_git
from tests.fakes.watching import command_line_of, environment_of
from tests.processes.conftest import Machine

TEXT = "a text that nobody else may see"
TOPIC = "a topic of the command line"

_SEED_BYTES = 32
_PKCS8 = bytes.fromhex("302e020100300506032b657004220420")
_PKCS8_BASE64 = base64.b64encode(_PKCS8)[:20]


class Witness:
    """Everything that can be seen of two sessions while they exchange messages, and afterwards."""

    def __init__(self, machine: Machine, folder: Path) -> None:
        self.machine = machine
        self.seen: dict[str, bytes] = {}
        begun = folder / "begun"
        environ = hanging_git(folder, begun)
        self.alice = machine.starting("claude", "alice", name="alice", environ=environ)
        self._note_process("child", int(begun.read_text(encoding="utf-8")))
        self.alice.ready()
        self.bob = machine.session("codex", "bob", name="bob")
        keys = Registry(machine.layout).scan()
        self.public_keys = {base64.b64decode(record.public_key)[-_SEED_BYTES:] for record in keys}
        self.tokens = [
            Path(machine.layout.token(SessionName(*one).key)).read_bytes()
            for one in (("claude", "alice"), ("codex", "bob"))
        ]

    def watch(self) -> None:
        """Let the two exchange messages, and note what can be seen of it."""
        [peer] = self.alice.request("session.list")["peers"]
        frames = [{"message_id": self.alice.send(peer["target"], TEXT)}]
        frames += [self.bob.request("session.read", wait_ms=5_000), self.bob.request("session.list")]
        shell = self.machine.shell
        with shell.start("inbox", "--wait", "--json") as waiting:
            terminal = self.bob.until_listed("terminal")
            for name, pid in (("alice", self.alice.pid), ("bob", self.bob.pid), ("command", waiting.pid)):
                self._note_process(name, pid)
            command = shell.run("send", "bob", TEXT, "--topic", TOPIC)
            self.bob.send(terminal, TEXT)
            shown = waiting.outcome()
        self.seen["frames"] = repr(frames).encode()
        self.seen["commands"] = command.stdout + command.stderr.encode() + shown.stdout
        self._note_files("while they run")

    def end(self) -> None:
        """End everything, and note what is left."""
        for name, session in (("alice", self.alice), ("bob", self.bob)):
            session.end()
            self.seen[f"log of {name}"] = session.stderr.encode()
        self._note_files("afterwards")

    def _note_process(self, name: str, pid: int) -> None:
        self.seen[f"arguments of {name}"] = command_line_of(pid)
        self.seen[f"environment of {name}"] = environment_of(pid)
        assert self.seen[f"environment of {name}"]

    def _note_files(self, when: str) -> None:
        for folder, _, names in os.walk(self.machine.home):
            for path in (Path(folder, name) for name in names):
                if path.is_file():
                    self.seen[f"{path} {when}"] = path.read_bytes()


@pytest.fixture
def witness(machine: Machine, tmp_path: Path) -> Witness:
    return Witness(machine, tmp_path)


def possible_seeds(data: bytes) -> Iterator[bytes]:
    """Give whatever could be 32 random bytes: as they are, in hex, or in base64."""
    for at in range(len(data) - _SEED_BYTES + 1):
        window = data[at : at + _SEED_BYTES]
        if max(window) > 0x7F and len(set(window)) > 16:
            yield window
    for found in re.finditer(rb"(?=([0-9a-fA-F]{64}))", data):
        yield bytes.fromhex(found[1].decode())
    for found in re.finditer(rb"(?=([A-Za-z0-9+/_-]{43}))", data):
        yield base64.urlsafe_b64decode(found[1].translate(bytes.maketrans(b"+/", b"-_")) + b"=")


def holds_private_key(data: bytes, public_keys: set[bytes]) -> bool:
    if b"PRIVATE KEY" in data or _PKCS8 in data or _PKCS8_BASE64 in data:
        return True
    seeds = {seed for seed in possible_seeds(data) if len(seed) == _SEED_BYTES}
    keys = (Ed25519PrivateKey.from_private_bytes(seed).public_key() for seed in seeds)
    return any(key.public_bytes_raw() in public_keys for key in keys)


def test_a_private_key_is_found_however_it_is_written():
    key = Ed25519PrivateKey.generate()
    seed, public = key.private_bytes_raw(), {key.public_key().public_bytes_raw()}

    for form in (seed, seed.hex().encode(), base64.b64encode(seed), base64.urlsafe_b64encode(seed), _PKCS8):
        assert holds_private_key(b"\0before" + form + b"after\0", public)
    assert not holds_private_key(os.urandom(4_096), public)


@pytest.mark.requirement("A-auth-01")
def test_the_private_key_of_a_session_is_in_its_memory_and_nowhere_else(witness: Witness):
    witness.watch()
    witness.end()

    assert len(witness.public_keys) == 2
    assert [
        place for place, data in witness.seen.items() if holds_private_key(data, witness.public_keys)
    ] == []


@pytest.mark.requirement("A-auth-01")
def test_each_start_has_a_key_of_its_own(machine: Machine):
    found = set()
    for _ in range(3):
        session = machine.session("claude", "alice")
        [record] = Registry(machine.layout).scan()
        found.add(record.public_key)
        session.end()

    assert len(found) == 3


@pytest.mark.requirement("A-auth-17")
def test_a_token_lies_in_its_private_file_and_nowhere_else(witness: Witness):
    places = [Path(witness.machine.layout.token(SessionName(*one).key)) for one in SESSIONS]
    assert [stat.S_IMODE(path.stat().st_mode) for path in places] == [0o600, 0o600]

    witness.watch()
    witness.end()

    assert len(set(witness.tokens)) == 2
    assert all(len(token) >= 32 for token in witness.tokens)
    held = [place for place, data in witness.seen.items() if any(token in data for token in witness.tokens)]
    assert {place.partition(" ")[0] for place in held} <= {str(path) for path in places}


@pytest.mark.requirement("A-presence-09")
def test_records_and_listings_hold_no_text_key_token_or_argument(witness: Witness):
    witness.watch()

    records = [Path(folder.path).read_bytes() for folder in os.scandir(witness.machine.layout.peers)]
    listed = [repr(session.request("session.list")).encode() for session in (witness.alice, witness.bob)]
    listed += [witness.machine.shell.run("peers", *words).stdout for words in ([], ["--json"])]
    assert len(records) == 2
    for data in (*records, *listed):
        assert TEXT.encode() not in data
        assert TOPIC.encode() not in data
        assert b"--host" not in data
        assert not any(token in data for token in witness.tokens)
        assert not holds_private_key(data, witness.public_keys)


SESSIONS = (("claude", "alice"), ("codex", "bob"))
