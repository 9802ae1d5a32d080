"""Two sessions of one project, reviewer and builder, as their people and hosts use them: scene by scene.

Each scene is played by real processes at the adapter API and the command line; a composer is what stands in
the test, as it would in a host's extension. What is hostile and proved elsewhere is named at the end.
"""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from herd.core.errors import HerdError, InvalidReply, PeerOffline, UnknownTarget
from herd.core.identity import SessionName, peer_id_of
from herd.core.references import parse
from tests.fakes.command_line import CommandLine
from tests.fakes.herd_session import WAIT_S, HerdSession
from tests.processes.conftest import Machine

BUILDER = SessionName("pi", "b1")
ROOT = Path(__file__).parents[2]


class Lab:
    """One project, and two sessions in it that have settings of their own.

    Attributes:
        reviewer: A session that mail wakes.
        builder: A session that mail does not wake.
        at_builder: A command line in the builder's agent.
    """

    def __init__(self, machine: Machine, project: Path) -> None:
        self._machine = machine
        self.project = project
        self._settings = {"reviewer": "auto", "builder": "notify"}
        self.reviewer = self.start("reviewer", "claude", "r1")
        self._builder_host = machine.new_host()
        self.builder = self.start_builder()
        self.at_builder = machine.command_line(self._builder_host)

    def start(self, name: str, host: str, session_id: str, **more: Any) -> HerdSession:
        """Start a session of the project."""
        idle = self._settings.get(name, "auto")
        folder = self._machine.home / f"settings of {name}"
        (folder / "herd").mkdir(parents=True, exist_ok=True)
        (folder / "herd" / "config.toml").write_text(f'idle = "{idle}"\n', encoding="utf-8")
        environ = {"XDG_CONFIG_HOME": str(folder)}
        return self._machine.session(host, session_id, name=name, cwd=self.project, environ=environ, **more)

    def start_builder(self) -> HerdSession:
        """Start the builder's session, or its next instance."""
        return self.start("builder", *BUILDER[:2], parent=self._builder_host)

    def builder_id(self) -> str:
        """Give the peer id of the instance that runs the builder's session now."""
        record = json.loads(Path(self._machine.layout.record(BUILDER.key)).read_bytes())
        return peer_id_of(record["instance"]["id"])


@pytest.fixture
def lab(machine: Machine, tmp_path: Path) -> Lab:
    return Lab(machine, tmp_path)


class Composer:
    """What a person types in one session: a text, and the peers picked in it. It is the host's alone."""

    def __init__(self, session: HerdSession) -> None:
        self.session = session
        self.text = ""
        self.references: list[dict[str, Any]] = []

    def write(self, text: str) -> None:
        """Type a text that holds no picked peer."""
        self.text, self.references = text, []

    def pick(self, name: str, *, to: str | None = None) -> None:
        """Pick the peer that a list shows under the name behind a colon, as a target or as `to`."""
        (one,) = [one for one in parse(self.text) if one.name == name]
        (peer,) = [peer for peer in self.session.request("session.list")["peers"] if peer["name"] == name]
        self.references.append({"start": one.start, "end": one.end, "to": to or peer["target"]})

    def put_before(self, text: str) -> None:
        """Type before everything, as when a queued text is edited; what is picked moves along."""
        self.text = text + self.text
        for one in self.references:
            one["start"] += len(text)
            one["end"] += len(text)

    def enter(self) -> dict[str, Any]:
        """Submit; the draft goes once there is an answer, and stays where there is a refusal."""
        answer = self.session.request("session.compose", text=self.text, references=self.references)
        self.write("")
        return answer

    @property
    def kept(self) -> dict[str, Any]:
        """Give the draft as a history keeps it."""
        return json.loads(json.dumps({"text": self.text, "references": self.references}))  # type: ignore[no-any-return]

    def recall(self, kept: dict[str, Any]) -> None:
        """Get a draft back from a history."""
        self.text, self.references = kept["text"], kept["references"]


def state(session: HerdSession, message_id: str) -> str:
    return str(session.request("session.status", message_id=message_id)["state"])


def told(session: HerdSession) -> list[dict[str, Any]]:
    """Give what the session's host has been told since the last time, all that is on its way included."""
    session.request("session.whoami")
    frames, session.others[:] = list(session.others), []
    return [frame["params"] for frame in frames if frame["method"] == "peer_update"]


def told_of_mail(session: HerdSession) -> dict[str, Any]:
    """Wait until the session's host is told of mail."""
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        for update in told(session):
            if update.get("unread"):
                return update
    raise TimeoutError("no host was told of mail")


def taken(session: HerdSession) -> list[dict[str, Any]]:
    """Have the session's host take what came, and say so."""
    messages = session.request("session.read", wait_ms=20_000)["messages"]
    ids = [message["message_id"] for message in messages]
    session.request("session.confirm", message_ids=ids, evidence="a test")
    return list(messages)


def waiting(commands: CommandLine, *words: str) -> list[str]:
    return [message["text"] for message in commands.run("inbox", "--look", "--json", *words).json["messages"]]


# --- 1 and 2: they see each other; select and send -------------------------------------------------


def test_each_lists_the_other_by_its_name_under_a_target(lab: Lab):
    (builder,) = lab.reviewer.request("session.list")["peers"]
    (reviewer,) = lab.builder.request("session.list")["peers"]

    assert (builder["name"], builder["cwd"]) == ("builder", str(lab.project))
    assert (reviewer["name"], reviewer["cwd"]) == ("reviewer", str(lab.project))
    assert builder["target"] != reviewer["target"]


@pytest.mark.requirement("A-boundary-16")
def test_a_picked_peer_and_a_text_behind_it_are_sent_and_the_senders_model_is_not_called(lab: Lab):
    lab.reviewer.request("session.subscribe")
    lab.builder.request("session.subscribe")
    lab.reviewer.request("session.update", activity="working")
    composer = Composer(lab.reviewer)
    composer.write(":builder is it green?")
    composer.pick("builder")
    sent = composer.enter()["sent"]
    assert sent["status"] == "accepted"
    assert told_of_mail(lab.builder)["unread"] == 1
    (message,) = taken(lab.builder)

    assert message["text"] == "is it green?"
    assert message["from"]["name"] == "reviewer"
    assert composer.text == ""
    assert not any(update.get("unread") or update.get("wake") for update in told(lab.reviewer))


# --- 3 and 4: look, reply --------------------------------------------------------------------------


@pytest.mark.requirement("A-boundary-21")
def test_looking_takes_nothing_and_begins_no_turn_and_a_reply_reaches_who_asked(lab: Lab):
    for session in (lab.reviewer, lab.builder):
        session.request("session.subscribe")
        session.request("session.update", activity="idle", turn_ended=True)
    message_id = lab.reviewer.send(lab.reviewer.until_listed("builder"), "is it green?")
    update = told_of_mail(lab.builder)
    assert (update["unread"], update["wake"]) == (1, False)
    for _ in range(2):
        assert waiting(lab.at_builder) == ["is it green?"]
        assert "is it green?" in lab.at_builder.run("inbox", "--look").text
    assert state(lab.reviewer, message_id) == "accepted"

    (message,) = taken(lab.builder)
    assert state(lab.reviewer, message_id) == "delivered"
    replied = lab.at_builder.run("send", ":reviewer", "yes", "--reply-to", message["message_id"], "--json")
    assert replied.status == 0, replied.stderr
    assert not any(update.get("wake") for update in told(lab.builder))
    told_of_mail(lab.reviewer)
    (reply,) = taken(lab.reviewer)

    assert (reply["text"], reply["reply_to"], reply["correlation_id"]) == ("yes", message_id, message_id)
    assert state(lab.reviewer, message_id) == "replied"
    deadline = time.monotonic() + WAIT_S
    while state(lab.builder, replied.json["message_id"]) != "delivered":
        assert time.monotonic() < deadline
    assert not any(update.get("wake") for update in told(lab.builder)), "its receipt has come"


@pytest.mark.requirement("A-boundary-21")
def test_receipts_and_who_comes_and_goes_wake_no_idle_session(lab: Lab, machine: Machine):
    lab.reviewer.request("session.subscribe")
    lab.reviewer.request("session.update", activity="idle", turn_ended=True)
    message_id = lab.reviewer.send(lab.reviewer.until_listed("builder"), "is it green?")
    taken(lab.builder)
    assert state(lab.reviewer, message_id) == "delivered"
    other = machine.session("codex", "o1", name="other", parent=machine.new_host())
    lab.reviewer.until_listed("other")
    other.request("session.update", name="another", activity="waiting")
    lab.reviewer.until_listed("another")
    other.kill()
    lab.builder.request("session.update", activity="away")
    assert lab.builder.end() == 0
    assert lab.reviewer.request("session.list")["peers"] == []

    assert not any(update.get("wake") for update in told(lab.reviewer))


# --- 5: a draft stays ------------------------------------------------------------------------------


@pytest.mark.requirement("A-boundary-18")
def test_an_unfinished_text_survives_an_arrival_a_history_an_edit_and_a_restart_of_its_host(lab: Lab):
    lab.reviewer.request("session.subscribe")
    composer = Composer(lab.reviewer)
    composer.write(":builder is it")
    composer.pick("builder")
    before = composer.kept
    lab.builder.send(lab.builder.until_listed("reviewer"), "something else")
    update = told_of_mail(lab.reviewer)
    assert composer.kept == before
    assert "something else" not in json.dumps(update), "an adapter is told of counts, and of no text"

    history = composer.kept
    composer.write("")
    lab.reviewer.request("session.whoami")
    composer.recall(history)
    composer.text += " green?"
    composer.put_before("  ")
    assert lab.reviewer.end() == 0
    lab.reviewer = composer.session = lab.start("reviewer", "claude", "r1")
    assert composer.enter()["sent"]["status"] == "accepted"

    assert [message["text"] for message in taken(lab.builder)] == ["is it green?"]


# --- 6: a reference, and a message -----------------------------------------------------------------


@pytest.mark.requirement("A-boundary-15", "A-boundary-17")
def test_a_peer_picked_within_a_text_is_metadata_and_what_only_looks_like_one_is_text(lab: Lab):
    lab.builder.request("session.subscribe")
    composer = Composer(lab.reviewer)
    composer.write("look at what :builder did at 12:30 in https://host:80/a:b, not `:builder`")
    found = lab.reviewer.request("session.references", text=composer.text)["references"]
    assert [one["name"] for one in found] == ["builder"]
    composer.pick("builder")
    (reference,) = composer.enter()["references"]
    (entry,) = lab.reviewer.request("session.list")["peers"]
    assert (reference["name"], reference["to"], reference["peer"]) == ("builder", entry["target"], entry)

    for text in (
        "a:b",
        "12:30 :80",
        "https://x.org/(:builder",
        "/tell :builder",
        "!echo :builder",
        "\\:builder",
    ):
        assert lab.reviewer.request("session.references", text=text) == {"references": []}
        composer.write(text)
        assert composer.enter() == {"references": []}
    assert waiting(lab.at_builder) == []
    assert not any(update.get("unread") for update in told(lab.builder))


@pytest.mark.requirement("A-boundary-15")
def test_a_command_line_takes_the_same_references(lab: Lab, machine: Machine):
    for named in (":builder", f":{lab.reviewer.until_listed('builder')}", f":{lab.builder_id()}"):
        sent = machine.shell.run("send", named, f"to {named}")
        assert sent.status == 0, sent.stderr
    for none in (":builder:", ":8080", "\\:builder"):
        refusal = machine.shell.run("send", none, "to nobody", "--json")
        assert refusal.refusal["code"] == UnknownTarget.code

    assert [message["text"].partition(" ")[0] for message in taken(lab.builder)] == ["to", "to", "to"]


# --- 8: another instance ---------------------------------------------------------------------------


@pytest.mark.requirement("A-boundary-18", "A-boundary-19")
@pytest.mark.parametrize("how", ["ended", "killed"])
def test_a_draft_for_one_instance_is_refused_after_a_restart_and_one_for_the_session_follows_it(
    lab: Lab, machine: Machine, how: str
):
    exact, follows = Composer(lab.reviewer), Composer(lab.reviewer)
    for composer, to in ((exact, lab.builder_id()), (follows, None)):
        composer.write(":builder is it green?")
        composer.pick("builder", to=to)
    unread = lab.reviewer.send(lab.reviewer.until_listed("builder"), "accepted before the restart")
    assert lab.builder.end() == 0 if how == "ended" else lab.builder.kill() is None
    impostor = lab.start("builder", "codex", "i1", parent=machine.new_host())
    refused(exact)
    lab.builder = lab.start_builder()
    refused(exact)
    assert follows.enter()["sent"]["status"] == "accepted"

    assert [message["text"] for message in taken(lab.builder)] == [
        "accepted before the restart",
        "is it green?",
    ]
    assert state(lab.reviewer, unread) == "delivered"
    assert impostor.request("session.read")["messages"] == []
    exact.references.clear()
    exact.references.append({"start": 0, "end": len(":builder"), "to": lab.builder_id()})
    assert exact.enter()["sent"]["status"] == "accepted"
    assert [message["text"] for message in taken(lab.builder)] == ["is it green?"]
    assert impostor.request("session.read")["messages"] == []


def refused(composer: Composer) -> None:
    """Have a submission refused; the draft stays as it was."""
    before = composer.kept
    with pytest.raises(HerdError) as refusal:
        composer.enter()

    assert refusal.value.code == PeerOffline.code
    assert composer.kept == before


@pytest.mark.requirement("A-boundary-19")
def test_a_reply_goes_to_the_session_that_asked_and_to_no_other_that_bears_its_name(
    lab: Lab, machine: Machine
):
    message_id = lab.reviewer.send(lab.reviewer.until_listed("builder"), "is it green?")
    (message,) = taken(lab.builder)
    assert lab.reviewer.end() == 0
    impostor = lab.start("reviewer", "codex", "i1", parent=machine.new_host())
    lab.builder.until_listed("reviewer")
    with pytest.raises(InvalidReply):
        lab.builder.request(
            "session.send",
            target=impostor.request("session.whoami")["target"],
            message="yes",
            reply_to=message["message_id"],
        )
    lab.builder.send(message["from"]["target"], "yes", reply_to=message["message_id"])
    lab.reviewer = lab.start("reviewer", "claude", "r1")

    (reply,) = taken(lab.reviewer)
    assert (reply["text"], reply["reply_to"]) == ("yes", message_id)
    assert impostor.request("session.read")["messages"] == []


# --- 10: the negative set --------------------------------------------------------------------------

ELSEWHERE = {
    "a replayed nonce": (
        "interaction/test_coordinator_peers.py",
        "test_a_nonce_that_was_used_before_is_refused_whoever_used_it",
    ),
    "another key than on record": (
        "interaction/test_coordinator_peers.py",
        "test_an_instance_on_record_with_another_key_is_refused",
    ),
    "a sender that is not on record": (
        "interaction/test_coordinator_peers.py",
        "test_an_instance_that_is_not_on_record_is_refused",
    ),
    "peer.read": ("interaction/test_coordinator_peers.py", "test_no_peer_reads_an_inbox"),
    "a send as a notification": (
        "interaction/test_coordinator_peers.py",
        "test_several_that_come_as_a_notification_leave_nothing",
    ),
    "the 33rd unread message": (
        "contracts/test_reach.py",
        "test_the_33rd_message_stays_in_the_outbox_of_its_sender",
    ),
    "a known id with other content": (
        "contracts/test_reach.py",
        "test_a_known_id_with_other_content_is_a_conflict",
    ),
    "an invented reply_to": (
        "interaction/test_coordinator_sending.py",
        "test_a_reply_to_what_that_target_did_not_send_is_refused",
    ),
    "a damaged mailbox": (
        "processes/test_bad_state.py",
        "test_a_damaged_mailbox_is_named_everywhere_kept_and_never_taken_for_a_new_one",
    ),
    "two of one name": (
        "processes/test_cases.py",
        "test_c6_two_of_one_name_are_reached_by_their_targets_alone",
    ),
    "a long socket folder": (
        "processes/test_cases.py",
        "test_c8_a_long_home_and_a_long_uid_get_short_private_sockets",
    ),
}
"""What the lab would repeat: where each of it is proved."""


@pytest.mark.parametrize("case", ELSEWHERE)
def test_what_is_hostile_is_proved_where_the_lab_says_so(case: str):
    file, name = ELSEWHERE[case]

    assert f"def {name}(" in (ROOT / "tests" / file).read_text(encoding="utf-8")
