"""The pages state what they owe their readers, and what they say of the code is what the code says."""

import re
import tomllib
from collections.abc import Sequence
from pathlib import Path

import pytest

from herd.core import limits
from herd.core.identity import TERMINAL, SessionName, length_prefixed, target_of
from herd.core.limits import DEFAULT_LIMITS
from herd.mail.receipts import NEXT, TOLD
from herd.mail.steps import STEPS
from herd.mail.wire import Envelope, ReceiptShape
from herd.rpc.handshake import DOMAIN
from herd.rpc.proofs import transcript
from herd.rpc.steps import HELLO_FIELDS, HELLO_RESULT_FIELDS

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
DECISIONS = sorted((DOCS / "adr").glob("*.md"))


def page(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


def one_line(text: str) -> str:
    return " ".join(text.split())


def section(text: str, heading: str) -> str:
    """Give what stands below a heading, up to the next one of its level or above."""
    level = len(heading.partition(" ")[0])
    after = text.partition(f"\n{heading}\n")[2]
    assert after, f"there is no {heading!r}"
    return re.split(rf"^#{{1,{level}}} ", after, maxsplit=1, flags=re.MULTILINE)[0]


def rows_of(text: str) -> list[list[str]]:
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    return [[one.strip() for one in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


def without_headings(text: str) -> str:
    return re.sub(r"^#.*$", "", text, flags=re.MULTILINE)


def without_blocks(text: str) -> str:
    return re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)


def words_of(text: str) -> set[str]:
    return set(re.findall(r"`([^`]+)`", text))


# --- what is owed to the reader --------------------------------------------------------------------


@pytest.mark.requirement("A-auth-16")
def test_the_security_page_says_whom_the_local_protocol_guards_against_and_whom_not():
    text = section(page("explanation/security.md"), "## What it guards against, and what not")
    guards, _, not_guards = one_line(text).partition("It does not guard against")

    assert "The local protocol guards against" in guards
    assert "**misrouting**" in guards
    assert "**other users of the operating system**" in guards
    assert "**fields that a model forges**" in guards
    assert not_guards.startswith(" hostile code that runs as the same user.")


@pytest.mark.requirement("A-custody-16")
def test_the_durability_page_promises_no_duplicates_for_inbox_entries_alone():
    text = one_line(
        section(page("explanation/durability.md"), "## What is free of duplicates, and what is not")
    )

    assert text.startswith("Only inbox entries are free of duplicates.")
    assert "A call of the model may happen again, and so may the effect of a tool" in text
    sentences = re.split(r"(?<=\.) ", one_line(without_headings(page("explanation/durability.md"))))
    promises = [sentence for sentence in sentences if "duplicate" in sentence]
    assert promises == ["Only inbox entries are free of duplicates."]


@pytest.mark.requirement("D-cli-10")
def test_the_weaknesses_say_that_a_command_started_through_a_multiplexer_shows_no_host():
    items = re.split(r"^\d+\. ", page("explanation/weaknesses.md"), flags=re.MULTILINE)[1:]
    (item,) = [one for one in items if "multiplexer shows no host" in one]

    assert one_line(item).startswith("**A command started through a terminal multiplexer shows no host.**")
    assert "it acts for the terminal session" in one_line(item)


@pytest.mark.parametrize(
    "words",
    [
        "One replay after a crash",
        "The target may be replaced on the way",
        "Code of the same user",
        "macOS is unproven",
        "A sleeping sender's pending messages wait for its next start",
    ],
)
def test_the_weaknesses_that_are_known_stand_there(words: str):
    assert f"**{words}" in page("explanation/weaknesses.md")


def test_the_weaknesses_are_numbered_without_a_gap():
    numbers = re.findall(r"^(\d+)\. \*\*", page("explanation/weaknesses.md"), re.MULTILINE)

    assert [int(number) for number in numbers] == list(range(1, len(numbers) + 1))


# --- durability ------------------------------------------------------------------------------------


def test_what_a_crash_leaves_is_told_of_every_named_step_in_its_order():
    rows = rows_of(section(page("explanation/durability.md"), "## What a crash leaves"))

    assert [row[0] for row in rows[2:]] == [f"`{step}`" for step in STEPS]
    assert all(all(row) for row in rows[2:])


def test_what_each_status_proves_is_told_of_every_state():
    rows = rows_of(section(page("explanation/durability.md"), "## What each status proves"))

    assert set().union(*(words_of(row[0]) for row in rows)) == set(NEXT)


def test_the_numbers_of_the_durability_page_are_those_in_force():
    text = one_line(page("explanation/durability.md"))

    assert f"within {limits.VISIT_S} seconds" in text
    assert f"waits up to {limits.VISITOR_WAIT_S} seconds for a visitor" in text
    assert f"from {limits.RETRY_FIRST_MS} ms up to {limits.RETRY_GREATEST_MS // 1000} s" in text
    assert f"from {limits.HEALTH_RETRY_MS // 1000} second up to" in text
    assert limits.HANDOVERS == 2
    assert "is repeated when its reader is gone, once, marked `again`" in text


# --- protocol --------------------------------------------------------------------------------------


def fields_in(text: str) -> set[str]:
    """Give the names in the first column of a text's table."""
    return set().union(*(words_of(row[0]) for row in rows_of(text)))


@pytest.mark.parametrize(
    ("heading", "shape"), [("## The envelope", Envelope), ("## The receipt", ReceiptShape)]
)
def test_every_field_that_travels_stands_on_the_page_with_whether_it_may_be_absent(
    heading: str, shape: type[Envelope] | type[ReceiptShape]
):
    text = section(page("reference/protocol.md"), heading)
    schema = shape.model_json_schema(by_alias=True)

    assert fields_in(text) == set(schema["properties"])
    for row in rows_of(text)[2:]:
        for field in words_of(row[0]):
            assert (row[2] == "no") == (field in schema["required"]), field


def test_the_states_that_never_travel_are_those_that_no_custody_tells():
    text = section(page("reference/protocol.md"), "## The receipt")
    (row,) = [row for row in rows_of(text) if row[0] == "`state`"]

    assert words_of(row[3]) == set(NEXT) - TOLD


def test_the_handshake_is_told_with_its_fields_and_its_domain():
    text = section(page("reference/protocol.md"), "## The handshake")
    numbers = [number for row in rows_of(text) for number in re.findall(r"^\d|(?<=, )\d", row[0])]

    assert set(re.findall(r"`{(version, .*)}`", text)[0].split(", ")) == HELLO_FIELDS
    assert words_of(text) | HELLO_FIELDS >= HELLO_RESULT_FIELDS
    assert f"`{DOMAIN}`" in text
    assert "nine texts" in text
    assert numbers[-9:] == [str(number) for number in range(1, 10)]


def test_the_transcript_is_signed_in_the_order_that_the_page_tells():
    signed = transcript(
        domain=DOMAIN,
        role="client",
        client_id="c",
        server_id="s",
        client_key="ck",
        server_key="sk",
        client_nonce="cn",
        server_nonce="sn",
    )

    assert signed == length_prefixed(DOMAIN, "1", "client", "c", "s", "ck", "sk", "cn", "sn")


def test_every_version_stands_with_its_number():
    rows = rows_of(section(page("reference/protocol.md"), "## Versions"))

    assert {row[2].strip("`"): int(row[1]) for row in rows[2:]} == {
        name: value for name, value in vars(limits).items() if name.endswith("_VERSION")
    }


def test_the_bounds_of_the_protocol_page_are_those_in_force():
    text = one_line(page("reference/protocol.md"))

    assert f"[{DEFAULT_LIMITS.frame_bytes:,} unless set](config.md)" in text
    assert f"`pending_requests` ({DEFAULT_LIMITS.pending_requests})" in text
    assert f"`acknowledgement_ms` ({DEFAULT_LIMITS.acknowledgement_ms:,})" in text
    assert f"`handshake_ms` ({DEFAULT_LIMITS.handshake_ms:,})" in text
    assert f"At most {limits.ENVELOPE_BYTES:,} bytes serialized" in text
    assert f"text, at most {DEFAULT_LIMITS.message_bytes:,} bytes as our senders use it" in text
    assert f"0 to {limits.CONVERSATION_DEPTH} |" in text
    assert f"deeper than {limits.FRAME_DEPTH} levels" in text


# --- architecture ----------------------------------------------------------------------------------


def test_the_layers_on_the_page_are_those_that_are_checked():
    text = section(page("explanation/architecture.md"), "## Layers")
    shown = text.partition("```text\n")[2].partition("\n```")[0].splitlines()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))

    assert shown == project["tool"]["importlinter"]["contracts"][0]["layers"]


def test_every_room_is_described():
    text = section(page("explanation/architecture.md"), "## Layers")
    rooms = {f"herd.{path.stem}" for path in (ROOT / "herd").iterdir() if not path.name.startswith("__")}

    assert rooms | {"roles", "assignments", "federation"} == fields_in(text) - {"room"}


def test_the_steps_of_a_message_are_numbered_without_a_gap():
    text = section(page("explanation/architecture.md"), "## Where a message goes")
    numbers = [int(number) for number in re.findall(r"^(\d+)\. ", text, re.MULTILINE)]

    assert numbers == list(range(1, len(numbers) + 1))
    assert all(
        "herd." in one or "roles." in one for one in re.split(r"^\d+\. ", text, flags=re.MULTILINE)[1:14]
    )


# --- decisions, and the rest -----------------------------------------------------------------------


@pytest.mark.parametrize("path", DECISIONS, ids=lambda path: path.name)
def test_a_decision_has_its_form_and_stays_short(path: Path):
    text = path.read_text(encoding="utf-8")
    headings = re.findall(r"^## (.+)$", text, re.MULTILINE)

    assert headings == ["Context", "Decision", "Consequences", "What would change our mind"]
    assert re.match(rf"# {int(path.name[:4])}: ", text)
    assert len(text.split()) < 700


def test_decisions_are_numbered_without_a_gap():
    assert [int(path.name[:4]) for path in DECISIONS] == list(range(1, len(DECISIONS) + 1))


def test_the_words_of_the_glossary_are_in_order_and_stand_once():
    words = re.findall(r"^- \*\*(.+?)\*\*: ", page("reference/glossary.md"), re.MULTILINE)

    assert len(words) > 30
    assert sorted(set(words)) == words


@pytest.mark.parametrize("name", ["ann", "ben"])
def test_the_targets_in_the_tutorial_are_what_every_reader_gets(name: str):
    target = target_of("lead", SessionName(TERMINAL, name).key)

    assert f"target  {target}\nname    {name}\n" in page("tutorial/first-messages.md")


def wide(text: str) -> Sequence[str]:
    """Find the lines of prose that are too long to read in a terminal; tables and blocks may be."""
    return [
        line for line in without_blocks(text).splitlines() if len(line) > 110 and not line.startswith("|")
    ]


@pytest.mark.parametrize(
    "path", sorted(DOCS.rglob("*.md")), ids=lambda path: path.relative_to(DOCS).as_posix()
)
def test_a_page_has_a_title_and_lines_that_can_be_read(path: Path):
    text = path.read_text(encoding="utf-8")

    assert re.match(r"# \S", text)
    assert len(re.findall(r"^# ", without_blocks(text), re.MULTILINE)) == 1
    assert set(text) - set(map(chr, range(128))) <= {"·"}
    if "Written by docs/generate.py" not in text:
        assert wide(text) == []
