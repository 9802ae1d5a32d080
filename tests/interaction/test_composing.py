"""What a person writes with peers selected in it: what is sent, what is metadata, and what is refused."""

import pytest

from herd.core.clock import SystemClock
from herd.core.errors import (
    AmbiguousTarget,
    AutomaticReplyLimit,
    CapabilityDenied,
    EligibilityDenied,
    EligibilityUnverified,
    HerdError,
    InvalidParams,
    MessageTooLarge,
    PeerOffline,
    TargetEnded,
    UnknownTarget,
)
from herd.core.identity import SessionName, peer_id_of
from herd.core.limits import DEFAULT_LIMITS, REFERENCES_AT_ONCE
from herd.core.references import parse
from herd.mail import shown
from herd.mail.receipts import REJECTED
from herd.mail.shown import Shown
from herd.mail.steps import OUTBOX_AFTER
from herd.presence.record import SEND
from roles.eligibility_fake import FakeJudge
from roles.model import Denied, Unverified
from tests.fakes.coordinators import asked, running
from tests.fakes.incoming import incoming
from tests.fakes.listening import Listening, drained
from tests.fakes.raw_peer import RawPeer
from tests.fakes.records import ALICE, BOB, CAROL

COLLIDING = SessionName("claude", "twin-1339143"), SessionName("claude", "twin-22396715")
"""Two sessions whose targets are the same 50 bits."""

MOST = DEFAULT_LIMITS.automatic_replies


@pytest.fixture
async def alice(layout):
    async with running(layout, ALICE, name="alice") as one:
        yield one


@pytest.fixture
async def bob(layout, alice):
    async with running(layout, BOB, name="bob") as one:
        await alice.sees(one)
        yield one


def peer_id(session):
    return peer_id_of(session.coordinator.own.instance_id)


def selected(text, *peers):
    """Give the params of a draft in which the references stand for these peers, one after the other."""
    found = parse(text)
    to = [peer if isinstance(peer, str) else peer.target for peer in peers]
    return {
        "text": text,
        "references": [
            {"start": one.start, "end": one.end, "to": exact} for one, exact in zip(found, to, strict=False)
        ],
    }


async def compose(session, text, *peers, **more):
    return await session.ask("compose", **selected(text, *peers), **more)


async def refused(session, kind, text, *peers, field="references[0]"):
    """Have a draft refused, and nothing of it queued."""
    with pytest.raises(HerdError) as refusal:
        await compose(session, text, *peers)

    assert type(refusal.value) is kind
    assert refusal.value.details.get("field") == field
    assert await session.outgoing() == []
    return refusal.value


# --- a message -------------------------------------------------------------------------------------


@pytest.mark.requirement("A-boundary-16")
async def test_a_line_that_begins_with_a_selected_peer_is_sent_to_it_at_once(alice, bob):
    ear = Listening(alice)
    answer = await compose(alice, ":bob is it green?", bob)
    (row,) = await alice.outgoing()

    assert answer == {
        "sent": {"message_id": row.message_id, "target": bob.target, "status": "accepted"},
    }
    assert await bob.texts() == ["is it green?"]
    assert await ear.all_heard() == []


@pytest.mark.requirement("A-boundary-16")
async def test_it_is_sent_in_the_middle_of_a_turn_which_goes_on_as_it_was(alice, bob):
    await bob.sees(alice)
    await alice.ask("update", activity="working")
    given_id = (await bob.send(alice, "for the turn"))["message_id"]
    given = await drained(alice)
    answer = await compose(alice, ":bob meanwhile", bob)

    assert answer["sent"]["status"] == "accepted"
    assert await bob.texts() == ["meanwhile"]
    assert given["message_ids"] == [given_id]
    assert [row.receipt.state for row in await alice.incoming()] == ["accepted"]
    assert alice.presence().activity == "working"
    await alice.ask("confirm", message_ids=given["message_ids"], evidence="test")
    assert [row.receipt.state for row in await alice.incoming()] == ["delivered"]


@pytest.mark.requirement("A-boundary-16")
@pytest.mark.parametrize(
    ("text", "message"),
    [
        (":bob hello", "hello"),
        (":bob, hello", "hello"),
        ("  :bob  hello \n", "hello"),
        (":bob: :bob, hello", None),
        (":bob /clear", "/clear"),
        (":bob ask :carol `:code`", "ask :carol `:code`"),
        (":bob? hello", "? hello"),
    ],
)
async def test_what_stands_behind_the_name_is_the_message(alice, bob, text, message):
    answer = await compose(alice, text, bob)

    assert ("sent" in answer) == (message is not None)
    assert await bob.texts() == ([] if message is None else [message])


@pytest.mark.requirement("A-boundary-16")
@pytest.mark.parametrize("of", ["target", "peer id"])
async def test_an_exact_target_or_peer_id_may_stand_behind_the_colon_too(alice, bob, of):
    exact = bob.target if of == "target" else peer_id(bob)
    answer = await compose(alice, f":{exact} hello", exact)

    assert answer["sent"]["target"] == exact
    assert await bob.texts() == ["hello"]


async def test_a_submission_that_is_made_again_is_the_same_message(alice, bob):
    first = await compose(alice, ":bob once", bob, call_id="draft-1")
    second = await compose(alice, ":bob once", bob, call_id="draft-1")

    assert first == second
    assert await bob.texts() == ["once"]


@pytest.mark.requirement("A-boundary-16")
async def test_a_persons_line_begins_a_conversation_and_is_no_prompt_for_what_the_agent_sends(alice, bob):
    Listening(alice)
    alice.coordinator.thread.handed([incoming(depth=MOST)])
    answer = await compose(alice, ":bob a word of mine", bob)
    (row,) = await alice.outgoing()

    assert (row.depth, row.conversation_id) == (0, answer["sent"]["message_id"])
    with pytest.raises(AutomaticReplyLimit):
        await alice.send(bob, "a word of the agent")


# --- metadata --------------------------------------------------------------------------------------


@pytest.mark.requirement("A-boundary-17")
@pytest.mark.parametrize(
    "text",
    [
        "ask :bob for it",
        ":bob",
        ":bob,",
        " :bob ",
        ":bob hello\nand more",
        "first\n:bob hello",
        "(:bob) hello",
    ],
)
async def test_in_any_other_place_a_selected_peer_is_metadata_and_nothing_is_sent(alice, bob, text):
    (entry,) = (await alice.ask("list"))["peers"]
    (reference,) = parse(text)
    answer = await compose(alice, text, bob)

    assert answer == {"references": [{**reference._asdict(), "to": bob.target, "peer": entry}]}
    assert await alice.outgoing() == []
    assert await bob.incoming() == []


@pytest.mark.requirement("A-boundary-17")
async def test_metadata_of_a_peer_id_says_which_peer_it_is_and_confers_no_right(alice, bob):
    (entry,) = (await alice.ask("list"))["peers"]
    answer = await compose(alice, "ask :bob for it", peer_id(bob))

    assert answer["references"] == [
        {"name": "bob", "start": 4, "end": 8, "to": peer_id(bob), "peer": entry},
    ]
    with pytest.raises(UnknownTarget):
        await alice.send(peer_id(bob), "the agent was not shown that id")
    assert await bob.incoming() == []


@pytest.mark.requirement("A-boundary-17")
async def test_what_is_not_selected_is_text(alice, bob):
    assert await compose(alice, ":bob hello") == {"references": []}
    assert await compose(alice, "at 12:30 see https://x.org:80/:bob and `:bob`") == {"references": []}
    (only,) = (
        await alice.ask(
            "compose",
            text=":bob ask :bob",
            references=[
                {"start": 9, "end": 13, "to": bob.target},
            ],
        )
    )["references"]

    assert (only["start"], only["to"]) == (9, bob.target)
    assert await alice.outgoing() == []


@pytest.mark.requirement("A-boundary-17")
async def test_several_peers_are_told_in_the_order_in_which_they_were_selected(layout, alice, bob):
    async with running(layout, CAROL, name="carol") as carol:
        await alice.sees(carol)
        text = "let :bob and :carol talk"
        params = selected(text, bob, carol)
        answer = await alice.ask("compose", text=text, references=params["references"][::-1])

    assert [(one["name"], one["to"]) for one in answer["references"]] == [
        ("carol", carol.target),
        ("bob", bob.target),
    ]


async def test_the_parser_of_the_coordinator_is_there_for_its_adapters(alice):
    text = "ask :bob at 12:30, not `:carol`"

    assert await alice.ask("references", text=text) == {"references": [{"name": "bob", "start": 4, "end": 8}]}
    assert await alice.ask("references", text="") == {"references": []}


# --- selections that hold nothing ------------------------------------------------------------------


@pytest.mark.requirement("A-boundary-18")
@pytest.mark.parametrize(
    ("text", "span"),
    [
        (":bob hello", (1, 4)),
        (":bob hello", (0, 3)),
        (":bob hello", (0, 5)),
        (":bob hello", (5, 10)),
        (":bob hello", (0, 99)),
        (":bob hello", (4, 4)),
        ("`:bob` hello", (1, 5)),
        ("/tell :bob", (6, 10)),
        ("!echo :bob", (6, 10)),
        ("a:bob hello", (1, 5)),
        ("\\:bob hello", (1, 5)),
    ],
)
async def test_a_selection_has_to_hold_a_reference(alice, bob, text, span):
    references = [{"start": span[0], "end": span[1], "to": bob.target}]
    with pytest.raises(InvalidParams, match=r"references\[0\] holds") as refusal:
        await alice.ask("compose", text=text, references=references)

    assert refusal.value.details["field"] == "references[0]"
    assert await alice.outgoing() == []


async def test_one_span_is_selected_once_and_only_so_many_are(alice, bob):
    one = {"start": 0, "end": 4, "to": bob.target}
    with pytest.raises(InvalidParams, match=r"references\[1\]"):
        await alice.ask("compose", text=":bob hello", references=[one, one])
    with pytest.raises(InvalidParams):
        await compose(alice, ":bob " * (REFERENCES_AT_ONCE + 1), *[bob] * (REFERENCES_AT_ONCE + 1))

    assert await alice.outgoing() == []


@pytest.mark.parametrize("to", ["bob", "", "lead:short", 7, None])
async def test_a_selection_is_bound_to_an_exact_peer(alice, bob, to):
    with pytest.raises(InvalidParams):
        await alice.ask("compose", text=":bob hello", references=[{"start": 0, "end": 4, "to": to}])

    assert await alice.outgoing() == []


async def test_a_text_that_names_one_peer_exactly_is_not_bound_to_another(layout, alice, bob):
    async with running(layout, CAROL) as carol:
        await alice.sees(carol)
        for exact in (bob.target, peer_id(bob)):
            refusal = await refused(alice, InvalidParams, f":{exact} hello", carol)
            assert exact in refusal.message


# --- verified at each submission -------------------------------------------------------------------


@pytest.mark.requirement("A-boundary-18")
async def test_a_bound_target_means_the_same_peer_after_edits_renames_and_a_restart_of_the_adapter(
    layout, alice, bob
):
    await bob.ask("update", name="robert")
    await compose(alice, ":bob was renamed", bob)
    async with running(layout, CAROL, name="bob") as carol:
        await compose(alice, ":bob is another one's name now", bob)
        await compose(alice, ":bobby was edited", bob)
        again = alice.other_adapter()
        await asked(again, "compose", **selected(":bob from another connection", bob))

        assert await carol.incoming() == []
    assert await bob.texts() == [
        "was renamed",
        "is another one's name now",
        "was edited",
        "from another connection",
    ]


@pytest.mark.requirement("A-boundary-18")
async def test_a_draft_that_outlives_the_session_that_wrote_it_means_the_same_peer_in_the_next(layout):
    async with running(layout, BOB, name="bob") as bob:
        async with running(layout, ALICE) as alice:
            await alice.sees(bob)
            drafts = [selected(":bob kept", bob), selected(":bob kept too", peer_id(bob))]
        async with running(layout, ALICE) as alice:
            for draft in drafts:
                await alice.ask("compose", **draft)

        assert await bob.texts() == ["kept", "kept too"]


@pytest.mark.requirement("A-boundary-19")
async def test_a_bound_target_follows_its_session_into_the_next_instance(layout, alice):
    async with running(layout, BOB, name="bob") as bob:
        await alice.sees(bob)
        draft = selected(":bob hello", bob)
        elsewhere = selected("later :bob", bob)
    answer = await alice.ask("compose", **draft)
    assert (answer["sent"]["status"], answer["sent"]["peer_running"]) == ("accepted", False)
    (told,) = (await alice.ask("compose", **elsewhere))["references"]
    assert told["peer"] == {"target": bob.target, "name": "bob", "offline": True}

    async with running(layout, BOB, name="bob") as bob:
        await alice.ask("compose", **draft)

        assert await bob.texts() == ["hello", "hello"]


@pytest.mark.requirement("A-boundary-19")
@pytest.mark.parametrize("text", [":bob hello", "later :bob"])
@pytest.mark.parametrize("was_shown", [False, True])
async def test_a_peer_id_whose_instance_is_gone_gets_nothing_and_nobody_else_does(
    layout, alice, text, was_shown
):
    async with running(layout, BOB, name="bob") as bob:
        await alice.sees(bob)
        draft = (text, peer_id(bob))
        await alice.ask("compose", **selected("first :bob", bob))
        if was_shown:
            one = Shown(peer_id(bob), bob.key, "bob")
            await alice.coordinator.mailbox.run(lambda connection: shown.remember(connection, [one], 0))
    await refused(alice, PeerOffline, *draft)

    async with running(layout, BOB, name="bob") as bob:
        await refused(alice, TargetEnded if was_shown else PeerOffline, *draft)
        assert await bob.incoming() == []
        assert "sent" in await compose(alice, ":bob selected anew", peer_id(bob))
        assert await bob.texts() == ["selected anew"]


@pytest.mark.requirement("A-boundary-19")
async def test_an_instance_that_ends_while_it_is_sent_to_leaves_no_message_that_waits_for_nobody(layout):
    def ends(step):
        if step == OUTBOX_AFTER:
            bob.coordinator._presenting.remove()

    async with (
        running(layout, ALICE, step=ends, clock=SystemClock()) as alice,
        running(layout, BOB, name="bob") as bob,
    ):
        await alice.sees(bob)
        with pytest.raises(PeerOffline) as refusal:
            await compose(alice, ":bob hello", peer_id(bob))
        (row,) = await alice.outgoing()

        assert refusal.value.details["field"] == "references[0]"
        assert (row.receipt.state, row.receipt.outcome) == (REJECTED, "CANCELLED")
        assert await bob.incoming() == []


@pytest.mark.requirement("A-boundary-18")
async def test_one_selection_that_means_nobody_refuses_the_whole_submission(layout, alice, bob):
    async with running(layout, CAROL, name="carol") as carol:
        await alice.sees(carol)
        gone = peer_id(carol)
    await refused(alice, PeerOffline, ":bob ask :carol", bob, gone, field="references[1]")

    assert await bob.incoming() == []
    await compose(alice, ":bob ask :carol", bob)
    assert await bob.texts() == ["ask :carol"]


@pytest.mark.requirement("A-boundary-18")
@pytest.mark.parametrize("text", [":bob hello", "later :bob"])
async def test_a_peer_that_was_never_shown_or_is_this_session_is_refused(layout, alice, text):
    async with running(layout, BOB, name="bob") as bob:
        for to in (bob.target, peer_id(bob), alice.target, peer_id(alice)):
            await refused(alice, UnknownTarget, text, to)
        await refused(alice, PeerOffline, text, "peer-" + "0" * 32)

        assert await bob.incoming() == []


@pytest.mark.requirement("A-boundary-18")
@pytest.mark.parametrize("text", [":twin hello", "later :twin"])
async def test_a_target_that_two_sessions_have_by_now_is_refused(layout, alice, text):
    async with running(layout, COLLIDING[0]) as twin:
        await alice.sees(twin)
        await compose(alice, "later :twin", twin)
        async with running(layout, COLLIDING[1]) as other:
            assert other.target == twin.target
            await refused(alice, AmbiguousTarget, text, twin)

            assert [await one.incoming() for one in (twin, other)] == [[], []]


@pytest.mark.requirement("A-boundary-18")
@pytest.mark.parametrize("text", [":bob hello", "later :bob"])
@pytest.mark.parametrize("of", ["target", "peer id"])
@pytest.mark.parametrize(
    ("verdict", "kind"),
    [(Denied("managed by now"), EligibilityDenied), (Unverified("cannot be proved"), EligibilityUnverified)],
)
async def test_a_peer_that_may_not_be_written_to_any_more_is_refused(layout, text, of, verdict, kind):
    judge = FakeJudge()
    async with running(layout, ALICE, judge=judge) as alice, running(layout, BOB, name="bob") as bob:
        await alice.sees(bob)
        judge.now = verdict
        await refused(alice, kind, text, bob if of == "target" else peer_id(bob))

        assert await bob.incoming() == []


@pytest.mark.requirement("A-boundary-18")
@pytest.mark.parametrize("text", [":raw hello", "later :raw"])
async def test_a_peer_that_takes_no_messages_is_refused(layout, alice, text):
    raw = RawPeer(CAROL)
    with raw.registered(layout, capabilities=(SEND,)):
        await alice.ask("list")
        await refused(alice, CapabilityDenied, text, raw.target)


@pytest.mark.requirement("A-boundary-19")
async def test_a_message_that_is_refused_is_not_sent_and_the_same_draft_may_be_tried_again(alice, bob):
    refusal = await refused(alice, MessageTooLarge, ":bob " + "x" * 131_073, bob)
    assert refusal.code == "MESSAGE_TOO_LARGE"
    await compose(alice, ":bob hello", bob)

    assert await bob.texts() == ["hello"]
