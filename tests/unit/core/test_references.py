"""`:name` references: where one stands, and everything that only looks like one."""

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from herd.core.identity import is_target, peer_id_of, target_of
from herd.core.limits import DEFAULT_LIMITS
from herd.core.references import Reference, named_by, parse

TARGET = target_of("lead", "0" * 64)
PEER_ID = peer_id_of("one", "run")
NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
LONGEST = "a" + "b" * 63


def names(text):
    return [one.name for one in parse(text)]


# --- tables ----------------------------------------------------------------------------------------


@pytest.mark.requirement("A-boundary-15")
@pytest.mark.parametrize(
    ("text", "found"),
    [
        (":builder", ["builder"]),
        (":builder is it green?", ["builder"]),
        ("ask :builder, then :review-2.", ["builder", "review-2"]),
        ("is it :builder?", ["builder"]),
        ("(:a) [:b] {:c}", ["a", "b", "c"]),
        ("((:a", ["a"]),
        ("tab\t:a\n:b\r\n:c\r:d", ["a", "b", "c", "d"]),
        ("wide\u3000:a", ["a"]),
        (":a's turn", ["a"]),
        (":a\u2026 and :b\u2014now", ["a", "b"]),
        (":a.", ["a"]),
        (":a...", ["a"]),
        (":a_B-9", ["a_B-9"]),
        (f":{LONGEST}", [LONGEST]),
        (f":{TARGET} please", [TARGET]),
        (f"see :{TARGET}.", [TARGET]),
        (f":{PEER_ID} please", [PEER_ID]),
        ("/tmp/x\n:a", ["a"]),
        ("see /tmp/x and !important :a", ["a"]),
        ("one `code` :a", ["a"]),
        ("one ` alone :a", ["a"]),
        ("`` two ` :a", ["a"]),
        ("\\` escaped :a `", ["a"]),
        ("`open\n\n:a ` paragraph", ["a"]),
        ("```\ncode\n```\n:a", ["a"]),
        ("~~~\ncode\n~~~~\n:a", ["a"]),
        ("```one line``` :a", ["a"]),
        ("https://x.org/y :a", ["a"]),
        ("at 12:30 ask :a", ["a"]),
    ],
)
def test_what_is_a_reference(text, found):
    assert names(text) == found


@pytest.mark.requirement("A-boundary-15")
@pytest.mark.parametrize(
    "text",
    [
        # addresses, ports, times, pairs, paths
        "http://host:port/path",
        "https://user:word@host",
        "https://x.org/(:a",
        "[text](https://x.org/[:a])",
        "www.x.org/(:a)",
        "ssh://[::a]:b",
        "localhost:8080",
        "listen on :8080",
        "12:30 and 7:05",
        "a:b",
        "key:value, key: value",
        "C:\\users",
        ":C:\\users",
        "npm run package:script",
        "std::vector ::name",
        "host:/path",
        ":name/path",
        ":name@host",
        ":name=1",
        ":name.field",
        # what is no name
        ":",
        ": a",
        "::",
        ":1a",
        ":-a",
        ":_a",
        ":\u00e9t\u00e9",
        ":caf\u00e9",
        f":{LONGEST}c",
        f":{LONGEST}-",
        # what stands before or behind
        ":smile:",
        "[[:alpha:]]",
        "x:a",
        "`x`:a",
        '":a"',
        "<:a>",
        "\\:a",
        "ask \\:a",
        "(\\:a)",
        f":{TARGET}0",
        f":{TARGET}:x",
        ":lead:short",
        # code
        "`:a`",
        "` :a `",
        "`` :a ` :b ``",
        "`one\n:a`",
        "\\\\` :a `",
        "``` :a ```",
        "```\n:a\n```",
        "```sh\n:a\n",
        "  ~~~\n:a\n  ~~~",
        "~~~\n:a\n```\n:b\n~~~",
        "````\n:a\n```\n:b\n````",
        "```\n:a\n``` no\n:b\n```",
        "> ```\n> :a\n> ```",
        # commands of the host
        "/tell :a",
        "/ :a",
        "!echo :a",
        "text\n/tell :a\ntext",
        "text\r\n!echo (:a)",
        "",
    ],
)
def test_what_is_none(text):
    assert parse(text) == []


def test_a_reference_says_where_it_stands_in_characters():
    text = "\U0001f600 (:a) :bc."

    assert parse(text) == [Reference("a", 3, 5), Reference("bc", 7, 10)]
    assert [text[one.start : one.end] for one in parse(text)] == [":a", ":bc"]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (":a", "a"),
        (f":{TARGET}", TARGET),
        (f":{PEER_ID}", PEER_ID),
        ("a", None),
        (":a ", None),
        (" :a", None),
        (":a :b", None),
        (":a.", None),
        (":8080", None),
        ("", None),
    ],
)
def test_a_text_that_is_one_reference_and_nothing_else(text, name):
    assert named_by(text) == name


@pytest.mark.timeout(30)
@pytest.mark.parametrize(
    "piece",
    ["(:a", ":a ", "`", "``` ", "`\\", "\\", "a", "://", "www.", "~~~\n", "`` ` ", "\n", ":lead:", "/\n"],
)
def test_a_text_of_the_greatest_size_is_read_at_once_whatever_it_holds(piece):
    parse(piece * (DEFAULT_LIMITS.frame_bytes // len(piece)) + " :z")


# --- properties ------------------------------------------------------------------------------------

# Dense in what matters, so that code, commands and addresses are built and broken by chance.
hostile = st.lists(
    st.sampled_from(
        [
            *(":a", ":b-1", ":", "a", "1", " ", "\n", "\r\n", "\t", "(", "[", "{", "`", "``", "```", "~~~"),
            *("/", "!", "\\", "://", "www.", ".", ",", "@", "\u3000", "\u00e9", f":{TARGET}", f":{PEER_ID}"),
        ]
    ),
    max_size=30,
).map("".join)
texts = hostile | st.text(max_size=60)


def lines(text):
    return [(match.start(), match.end()) for match in re.finditer(r"[^\r\n]+", text)]


@pytest.mark.requirement("A-boundary-15")
@given(texts)
@example("`:a``:b`")
def test_every_reference_has_a_name_and_stands_where_one_may(text):
    behind = 0
    for one in parse(text):
        line = next(text[start:end] for start, end in lines(text) if start <= one.start < end)

        assert behind <= one.start < one.end
        assert text[one.start : one.end] == f":{one.name}"
        assert NAME.fullmatch(one.name) or is_target(one.name)
        assert one.start == 0 or text[one.start - 1].isspace() or text[one.start - 1] in "([{"
        assert not re.match(r"[\w:/\\@=-]", text[one.end :])
        assert not line.startswith(("/", "!"))
        behind = one.end


@pytest.mark.requirement("A-boundary-15")
@given(texts, st.data())
def test_a_backslash_makes_plain_text_of_that_reference_and_of_no_other(text, data):
    found = parse(text)
    if not found:
        return
    chosen = data.draw(st.sampled_from(found))
    escaped = f"{text[: chosen.start]}\\{text[chosen.start :]}"
    others = [one for one in found if one != chosen]

    assert [one.name for one in parse(escaped)] == [one.name for one in others]


@pytest.mark.requirement("A-boundary-15")
@given(texts, st.sampled_from("`~"))
def test_nothing_is_a_reference_within_a_fence(text, mark):
    fence = mark * (3 + max((len(run) for run in re.findall(f"{mark}+", text)), default=0))

    assert parse(f"{fence}\n{text}\n{fence}") == []


@pytest.mark.requirement("A-boundary-15")
@given(texts, st.sampled_from(["/", "!"]))
def test_nothing_is_a_reference_in_a_line_that_is_a_command(text, mark):
    line = re.sub(r"[\r\n]", " ", text)

    assert parse(f"{mark}{line}") == []


plain_words = st.sampled_from(
    [
        "word",
        "12:30",
        "a:b",
        "https://x.org:80/(:no",
        "`:no`",
        "\\:no",
        ":no:",
        "C:\\",
        "run:it",
        "::no",
        ":80",
    ]
)
reference_words = st.from_regex(NAME, fullmatch=True) | st.sampled_from([TARGET, PEER_ID])
written = st.lists(st.tuples(st.booleans(), plain_words, reference_words), max_size=8)


@pytest.mark.requirement("A-boundary-15")
@given(written)
def test_of_words_that_stand_alone_exactly_the_references_are_found(words):
    text = " ".join(["so", *(f":{name}" if is_one else plain for is_one, plain, name in words)])

    assert names(text) == [name for is_one, _, name in words if is_one]
