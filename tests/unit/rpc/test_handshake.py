import copy
import hashlib
import pickle
from base64 import b64decode, b64encode

import pytest

from herd.core.clock import FakeClock
from herd.core.errors import AuthenticationFailed, InvalidParams, UnsupportedProtocol
from herd.core.public_key import is_public_key
from herd.rpc.handshake import (
    DOMAIN,
    ClientHandshake,
    Identity,
    KeyPair,
    NonceMemory,
    ServerHandshake,
    checked_nonce,
    checked_public_key,
    new_nonce,
    transcript,
    verify,
)

A_DOMAIN = "autohand.local-peers.handshake.v1"
CLIENT_KEYS = KeyPair.from_seed(b"\x01" * 32)
SERVER_KEYS = KeyPair.from_seed(b"\x02" * 32)
VECTOR = {
    "domain": A_DOMAIN,
    "client_id": "client-instance",
    "server_id": "server-instance",
    "client_key": CLIENT_KEYS.public_key,
    "server_key": SERVER_KEYS.public_key,
    "client_nonce": b64encode(b"\x03" * 32).decode(),
    "server_nonce": b64encode(b"\x04" * 32).decode(),
}
NO_NONCES = [
    "",
    None,
    7,
    b64encode(b"\x03" * 31).decode(),
    b64encode(b"\x03" * 33).decode(),
    b64encode(b"\x03" * 32).decode().rstrip("="),
    b64encode(b"\x03" * 32).decode() + "\n",
    " " + b64encode(b"\x03" * 32).decode(),
    b64encode(b"\xfb" * 32, b"-_").decode(),
    b64encode(b"\x03" * 32).decode().replace("M=", "N="),  # the same bytes, another text
    "é" * 44,
    "\ud800" * 44,
]


class Sides:
    """Both sides of a handshake, and the record that the server looks into."""

    def __init__(self, **client):
        self.clock = FakeClock()
        self.record = {"client-1": CLIENT_KEYS.public_key}
        self.looked_up = []
        self.client_nonces = NonceMemory(self.clock)
        self.server_nonces = NonceMemory(self.clock)
        self.client = self.new_client(**client)
        self.server = self.new_server()

    def new_client(self, *, instance_id="client-1", keys=CLIENT_KEYS, server_id="server-1", domain=DOMAIN):
        identity = Identity(instance_id, keys)
        return ClientHandshake(identity, server_id, SERVER_KEYS.public_key, self.client_nonces, domain)

    def new_server(self, domain=DOMAIN):
        identity = Identity("server-1", SERVER_KEYS)
        return ServerHandshake(identity, self.server_nonces, self.find_key, ["message.receive"], domain)

    def find_key(self, instance_id):
        self.looked_up.append(instance_id)
        return self.record.get(instance_id)

    def up_to_proof(self):
        return self.client.authenticate(self.server.hello(self.client.hello()))


@pytest.fixture
def sides():
    return Sides()


class TestKeys:
    @pytest.mark.requirement("A-auth-02")
    def test_the_published_key_is_60_characters_of_base64_over_a_44_byte_spki(self):
        for keys in (KeyPair.generate(), CLIENT_KEYS):
            assert len(keys.public_key) == 60
            assert len(b64decode(keys.public_key, validate=True)) == 44
            assert b64encode(b64decode(keys.public_key)).decode() == keys.public_key
            assert is_public_key(checked_public_key(keys.public_key))
        assert CLIENT_KEYS.public_key == "MCowBQYDK2VwAyEAiojj3XQJ8ZX9UtstPLpdcspnCb8dlBIb83SIAbQPb1w="

    def test_two_pairs_are_never_the_same(self):
        assert len({KeyPair.generate().public_key for _ in range(20)}) == 20

    @pytest.mark.parametrize("leak", [pickle.dumps, copy.copy, copy.deepcopy, vars])
    def test_the_private_key_can_be_neither_copied_nor_stored(self, leak):
        with pytest.raises(TypeError):
            leak(CLIENT_KEYS)

    def test_nothing_shows_the_private_key(self):
        shown = f"{CLIENT_KEYS!r} {CLIENT_KEYS} {Identity('a', CLIENT_KEYS)!r} {[CLIENT_KEYS]}"

        assert shown == "<KeyPair> <KeyPair> Identity(instance_id='a', keys=<KeyPair>) [<KeyPair>]"

    @pytest.mark.parametrize(
        "text", ["", None, 7, "x" * 60, CLIENT_KEYS.public_key + "\n", CLIENT_KEYS.public_key[:-1], "\ud800"]
    )
    def test_anything_else_is_no_public_key(self, text):
        with pytest.raises(AuthenticationFailed):
            checked_public_key(text)


class TestTranscripts:
    @pytest.mark.requirement("A-auth-06")
    def test_the_vectors_of_the_protocol_come_out_byte_for_byte(self):
        server = transcript(role="server", **VECTOR)
        client = transcript(role="client", **VECTOR)

        assert len(server) == 314
        assert (
            hashlib.sha256(server).hexdigest()
            == "0842adc11948b5c3abba8fc55dc96923c27bc9c27f9048f8c46054ffb7ef8645"
        )
        assert (
            hashlib.sha256(client).hexdigest()
            == "22350bfa5a08c92b2869d3baf65fd845704e24eaf4c98e1416844e73d5ee9ddb"
        )

    def test_the_server_s_proof_is_that_of_the_vectors(self):
        proof = SERVER_KEYS.sign(transcript(role="server", **VECTOR))

        assert proof == (
            "5VX/TguEzAk7CAMZQnU7TBQavTxCyMIlNUq6C1GwrN6lBe34ZJJQVz6gLsQClnhQjzc+4SzPg59IPJiWVQE1CQ=="
        )
        verify(SERVER_KEYS.public_key, transcript(role="server", **VECTOR), proof)

    @pytest.mark.requirement("A-auth-04")
    def test_it_is_nine_fields_in_order_each_after_its_length(self):
        data = transcript(role="client", **VECTOR)
        fields = []
        while data:
            size = int.from_bytes(data[:4], "big")
            fields.append(data[4 : 4 + size].decode())
            data = data[4 + size :]

        assert fields == [
            A_DOMAIN,
            "1",
            "client",
            "client-instance",
            "server-instance",
            CLIENT_KEYS.public_key,
            SERVER_KEYS.public_key,
            VECTOR["client_nonce"],
            VECTOR["server_nonce"],
        ]

    @pytest.mark.parametrize("field", [*VECTOR, "role", "version"])
    def test_a_proof_holds_for_no_transcript_with_another_field(self, field):
        fields = {"role": "server", "version": 1, **VECTOR}
        other = fields | {field: {"role": "client", "version": 2}.get(field, fields[field] and "other")}
        proof = SERVER_KEYS.sign(transcript(**fields))

        with pytest.raises(AuthenticationFailed):
            verify(SERVER_KEYS.public_key, transcript(**other), proof)

    @pytest.mark.parametrize("proof", ["", None, 7, "x" * 88, "A" * 86 + "==", b64encode(b"x" * 63).decode()])
    def test_a_proof_of_another_form_fails(self, proof):
        with pytest.raises(AuthenticationFailed):
            verify(SERVER_KEYS.public_key, b"transcript", proof)

    def test_the_same_signature_in_another_text_fails(self):
        proof = SERVER_KEYS.sign(b"transcript")
        last = proof[85]
        other = proof[:85] + chr(ord(last) + 1) + "=="

        assert b64decode(other) == b64decode(proof)
        with pytest.raises(AuthenticationFailed):
            verify(SERVER_KEYS.public_key, b"transcript", other)

    def test_no_signature_counts_under_a_key_of_small_order(self):
        weak = b64encode(bytes.fromhex("302a300506032b6570032100") + bytes([1]) + bytes(31)).decode()

        with pytest.raises(AuthenticationFailed):
            verify(weak, b"transcript", SERVER_KEYS.sign(b"transcript"))


class TestNonces:
    @pytest.mark.requirement("A-auth-08")
    def test_each_handshake_has_a_fresh_one_and_another_form_is_refused(self):
        nonces = {sides.client.hello()["nonce"] for sides in [Sides() for _ in range(20)]}
        nonces |= {
            sides.server.hello(sides.client.hello())["nonce"] for sides in [Sides() for _ in range(20)]
        }

        assert len(nonces) == 40
        assert {len(nonce) for nonce in nonces} == {44}
        assert {len(b64decode(checked_nonce(nonce), validate=True)) for nonce in nonces} == {32}
        for wrong in NO_NONCES:
            sides = Sides()
            with pytest.raises(AuthenticationFailed, match="nonce"):
                sides.server.hello(sides.client.hello() | {"nonce": wrong})
            sides = Sides()
            answer = sides.server.hello(sides.client.hello()) | {"nonce": wrong}
            with pytest.raises(AuthenticationFailed, match="nonce"):
                sides.client.authenticate(answer)

    @pytest.mark.parametrize("text", NO_NONCES)
    def test_another_form_is_no_nonce(self, text):
        with pytest.raises(AuthenticationFailed):
            checked_nonce(text)

    @pytest.mark.requirement("A-auth-09")
    def test_one_seen_before_fails_for_an_hour_and_among_the_last_8192(self):
        clock = FakeClock()
        memory = NonceMemory(clock)
        nonces = [f"{number}" for number in range(8_193)]
        memory.remember(nonces[0])
        clock.advance(3_599.9)
        with pytest.raises(AuthenticationFailed):
            memory.remember(nonces[0])
        clock.advance(0.2)
        for nonce in nonces[:8_192]:
            memory.remember(nonce)
        with pytest.raises(AuthenticationFailed):
            memory.remember(nonces[0])
        memory.remember(nonces[8_192])

        assert len(memory) == 8_192
        memory.remember(nonces[0])
        with pytest.raises(AuthenticationFailed):
            memory.remember(nonces[2])

    def test_a_refused_repeat_does_not_prolong_its_life(self):
        clock = FakeClock()
        memory = NonceMemory(clock, lifetime_s=10)
        memory.remember("a")
        clock.advance(9)
        with pytest.raises(AuthenticationFailed):
            memory.remember("a")
        clock.advance(1)

        memory.remember("a")

    def test_what_is_too_old_is_forgotten_and_not_only_passed_over(self):
        clock = FakeClock()
        memory = NonceMemory(clock, lifetime_s=10)
        for number in range(100):
            memory.remember(f"{number}")
        clock.advance(10)
        memory.remember("new")

        assert len(memory) == 1

    def test_a_replayed_hello_fails(self, sides):
        hello = sides.client.hello()
        sides.server.hello(hello)

        with pytest.raises(AuthenticationFailed, match="nonce"):
            sides.new_server().hello(hello)

    def test_a_replayed_answer_fails(self, sides):
        answer = sides.server.hello(sides.client.hello())
        sides.client.authenticate(answer)
        again = sides.new_client()
        again.hello()

        with pytest.raises(AuthenticationFailed, match="nonce"):
            again.authenticate(answer)

    def test_a_nonce_of_the_server_s_own_fails_as_a_caller_s(self, sides):
        answer = sides.server.hello(sides.client.hello())

        with pytest.raises(AuthenticationFailed, match="nonce"):
            sides.new_server().hello(sides.new_client().hello() | {"nonce": answer["nonce"]})

    def test_our_own_nonce_sent_back_to_us_fails(self, sides):
        hello = sides.client.hello()
        answer = sides.server.hello(hello) | {"nonce": hello["nonce"]}

        with pytest.raises(AuthenticationFailed, match="nonce"):
            sides.client.authenticate(answer)


class TestSteps:
    @pytest.mark.requirement("A-auth-03")
    def test_two_steps_prove_both_sides(self, sides):
        hello = sides.client.hello()
        assert hello.keys() == {"version", "instanceId", "publicKey", "nonce"}
        assert (hello["version"], hello["instanceId"]) == (1, "client-1")
        assert hello["publicKey"] == CLIENT_KEYS.public_key

        answer = sides.server.hello(hello)
        assert answer.keys() == hello.keys() | {"proof", "capabilities"}
        assert (answer["version"], answer["instanceId"]) == (1, "server-1")
        assert answer["publicKey"] == SERVER_KEYS.public_key
        assert answer["capabilities"] == ["message.receive"]

        proof = sides.client.authenticate(answer)
        assert proof.keys() == {"proof"}
        assert len(proof["proof"]) == len(answer["proof"]) == 88

        result = sides.server.authenticate(proof)
        assert result == {"authenticated": True, "version": 1}
        sides.client.finish(result)
        assert sides.server.authenticated
        assert (sides.server.peer_instance_id, sides.server.peer_key) == ("client-1", CLIENT_KEYS.public_key)

    def test_who_the_caller_is_cannot_be_asked_before_it_is_proved(self, sides):
        for step in (lambda: None, sides.up_to_proof):
            step()
            assert not sides.server.authenticated
            with pytest.raises(AuthenticationFailed):
                _ = sides.server.peer_instance_id
            with pytest.raises(AuthenticationFailed):
                _ = sides.server.peer_key

    def test_the_server_s_steps_come_in_order_and_once(self, sides):
        with pytest.raises(AuthenticationFailed):
            sides.server.authenticate({"proof": CLIENT_KEYS.sign(b"")})
        with pytest.raises(AuthenticationFailed):  # and a failed handshake does not begin anew
            sides.server.hello(sides.client.hello())

    def test_a_second_hello_ends_a_handshake(self, sides):
        proof = sides.up_to_proof()
        with pytest.raises(AuthenticationFailed):
            sides.server.hello(sides.new_client().hello())
        with pytest.raises(AuthenticationFailed):
            sides.server.authenticate(proof)

    def test_a_step_repeated_after_the_end_takes_the_proof_away(self, sides):
        proof = sides.up_to_proof()
        sides.server.authenticate(proof)
        with pytest.raises(AuthenticationFailed):
            sides.server.authenticate(proof)

        assert not sides.server.authenticated

    def test_a_failed_proof_cannot_be_tried_again(self, sides):
        proof = sides.up_to_proof()
        with pytest.raises(AuthenticationFailed):
            sides.server.authenticate({"proof": SERVER_KEYS.sign(b"")})
        with pytest.raises(AuthenticationFailed):
            sides.server.authenticate(proof)

    def test_the_client_s_steps_come_in_order_and_once(self, sides):
        answer = sides.server.hello(sides.client.hello())
        with pytest.raises(AuthenticationFailed):
            sides.client.hello()
        with pytest.raises(AuthenticationFailed):
            sides.client.authenticate(answer)
        other = Sides()
        with pytest.raises(AuthenticationFailed):
            other.client.finish({"authenticated": True, "version": 1})

    @pytest.mark.parametrize(
        "result",
        [
            {},
            {"authenticated": False, "version": 1},
            {"authenticated": 1, "version": 1},
            {"authenticated": True},
            {"authenticated": True, "version": True},
            {"authenticated": True, "version": 1, "more": 1},
        ],
    )
    def test_the_client_is_done_only_when_the_server_says_exactly_so(self, sides, result):
        sides.server.authenticate(sides.up_to_proof())

        with pytest.raises(AuthenticationFailed):
            sides.client.finish(result)


class TestWhoIsRefused:
    @pytest.mark.requirement("A-auth-05")
    def test_a_signature_under_another_domain_fails_on_either_side(self):
        assert DOMAIN == "herd.peers.handshake.v1"
        sides = Sides(domain=A_DOMAIN)
        with pytest.raises(AuthenticationFailed):
            sides.up_to_proof()

        sides = Sides()
        foreign = sides.new_server(A_DOMAIN)
        ours = sides.new_server()
        client, mirror = sides.new_client(domain=A_DOMAIN), sides.new_client()
        with pytest.raises(AuthenticationFailed):
            mirror.authenticate(foreign.hello(mirror.hello()))
        answer = ours.hello(client.hello())
        nonces = {"client_nonce": client._nonce, "server_nonce": answer["nonce"]}
        keys = {"client_key": CLIENT_KEYS.public_key, "server_key": SERVER_KEYS.public_key}
        ids = {"client_id": "client-1", "server_id": "server-1"}
        signed = CLIENT_KEYS.sign(transcript(domain=A_DOMAIN, role="client", **ids, **keys, **nonces))
        with pytest.raises(AuthenticationFailed):
            ours.authenticate({"proof": signed})

    @pytest.mark.requirement("A-auth-10")
    def test_a_side_that_is_not_what_its_record_says_is_refused(self):
        for changed in (
            {"instance_id": "client-2"},
            {"keys": KeyPair.generate()},
            {"server_id": "server-2"},
        ):
            with pytest.raises(AuthenticationFailed):
                Sides(**changed).up_to_proof()
        for changed in ({"instanceId": "server-2"}, {"publicKey": KeyPair.generate().public_key}):
            sides = Sides()
            with pytest.raises(AuthenticationFailed):
                sides.client.authenticate(sides.server.hello(sides.client.hello()) | changed)

    def test_a_caller_on_record_under_another_key_costs_no_nonce(self, sides):
        sides.record["client-1"] = KeyPair.generate().public_key
        with pytest.raises(AuthenticationFailed):
            sides.server.hello(sides.client.hello())

        assert len(sides.server_nonces) == 0

    @pytest.mark.parametrize("ended", [None, "another key"])
    def test_an_instance_that_leaves_the_record_before_its_proof_is_refused(self, sides, ended):
        proof = sides.up_to_proof()
        sides.record["client-1"] = ended and KeyPair.generate().public_key
        with pytest.raises(AuthenticationFailed, match="record"):
            sides.server.authenticate(proof)

        assert sides.looked_up == ["client-1", "client-1"]

    def test_the_server_s_proof_sent_back_is_none_of_the_client_s(self, sides):
        answer = sides.server.hello(sides.client.hello())

        with pytest.raises(AuthenticationFailed):
            sides.server.authenticate({"proof": answer["proof"]})

    def test_a_proof_with_the_right_key_for_another_server_fails(self, sides):
        elsewhere = Sides()
        proof = elsewhere.up_to_proof()
        sides.server.hello(sides.client.hello())

        with pytest.raises(AuthenticationFailed):
            sides.server.authenticate(proof)


class TestForm:
    @pytest.mark.parametrize("version", [0, 2, -1, 10**4_000])
    def test_another_version_is_unsupported_whatever_else_is_there(self, version):
        for more in ({}, {"more": 1}):
            sides = Sides()
            with pytest.raises(UnsupportedProtocol):
                sides.server.hello({"version": version, **more})
            sides = Sides()
            sides.client.hello()
            with pytest.raises(UnsupportedProtocol):
                sides.client.authenticate({"version": version, **more})
        sides = Sides()
        sides.up_to_proof()
        with pytest.raises(UnsupportedProtocol):
            sides.client.finish({"authenticated": True, "version": version})

    @pytest.mark.parametrize("version", [None, "1", 1.0, True, [1]])
    def test_a_version_of_another_type_is_invalid(self, sides, version):
        with pytest.raises(InvalidParams, match="version"):
            sides.server.hello(sides.client.hello() | {"version": version})

    @pytest.mark.parametrize("field", ["instanceId", "publicKey", "nonce"])
    def test_a_missing_field_of_hello_is_named(self, sides, field):
        hello = sides.client.hello()
        del hello[field]

        with pytest.raises(InvalidParams, match=field):
            sides.server.hello(hello)

    def test_an_extra_field_is_named_and_shown_harmlessly(self, sides):
        with pytest.raises(InvalidParams, match="capabilities"):
            sides.server.hello(sides.client.hello() | {"capabilities": []})
        with pytest.raises(InvalidParams) as refused:
            Sides().server.hello(sides.new_client().hello() | {"\x1b\ud800" * 1_000: 1})
        assert refused.value.message.isascii()
        assert refused.value.message.isprintable()
        assert len(refused.value.message) < 200

    @pytest.mark.parametrize("params", [{}, {"proof": "x", "proofs": 1}, {"Proof": "x"}])
    def test_authenticate_takes_a_proof_alone(self, sides, params):
        sides.up_to_proof()

        with pytest.raises(InvalidParams, match="proof"):
            sides.server.authenticate(params)

    @pytest.mark.parametrize(
        "instance_id", ["", "x" * 129, "../x", "a.b", "a\n", "é", "a b", None, 7, "\ud800"]
    )
    def test_an_instance_id_that_could_not_name_a_socket_is_invalid(self, sides, instance_id):
        with pytest.raises(InvalidParams, match="instanceId"):
            sides.server.hello(sides.client.hello() | {"instanceId": instance_id})

        assert sides.looked_up == []

    @pytest.mark.parametrize(
        "field", ["version", "instanceId", "publicKey", "nonce", "proof", "capabilities"]
    )
    @pytest.mark.parametrize("value", [None, 7, {}, "x"])
    def test_a_malformed_answer_is_a_failed_proof_and_never_our_caller_s_fault(self, field, value):
        sides = Sides()
        answer = sides.server.hello(sides.client.hello())

        with pytest.raises((AuthenticationFailed, UnsupportedProtocol)):
            sides.client.authenticate(answer | {field: value})

    def test_an_answer_with_a_field_more_or_less_is_a_failed_proof(self):
        for change in (lambda answer: answer | {"more": 1}, lambda answer: answer.pop("proof") and answer):
            sides = Sides()
            answer = sides.server.hello(sides.client.hello())
            with pytest.raises(AuthenticationFailed):
                sides.client.authenticate(change(answer))


def test_a_new_nonce_is_one():
    assert checked_nonce(new_nonce())
