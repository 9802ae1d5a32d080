"""Evidence in a transcript: what Claude Code itself wrote down about a session."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from herd.core.limits import TRANSCRIPT_TAIL_BYTES
from herd.hosts.claude import transcript

PROMPT = {"type": "user", "message": {"role": "user", "content": "do it"}}
BESIDE = {
    "type": "attachment",
    "attachment": {"type": "hook_additional_context", "content": ["message m-1 ..."]},
}
ANSWER = {
    "type": "assistant",
    "message": {"role": "assistant", "content": [{"type": "text", "text": "done"}]},
}
CUT = {
    "type": "user",
    "message": {"role": "user", "content": [{"type": "text", "text": "[Request interrupted by user]"}]},
}
QUOTED = {"type": "user", "message": {"role": "user", "content": "[Request interrupted by user]"}}
OUTPUT = {
    "type": "user",
    "message": {
        "role": "user",
        "content": "<local-command-stdout>Reconnected to herd.</local-command-stdout>",
    },
}
CALL = {
    "type": "assistant",
    "message": {"role": "assistant", "content": [{"type": "tool_use", "id": "toolu_9"}]},
}
AT = {"timestamp": "2026-01-01T00:00:01.000Z"}
SINCE = 1_767_225_601_000
"""The same moment, in milliseconds."""


def result(tool_use_id: str = "toolu_1", **more: Any) -> dict[str, Any]:
    block = {"type": "tool_result", "tool_use_id": tool_use_id, "content": "x"}
    return {"type": "user", "message": {"role": "user", "content": [block]}, **more}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "t.jsonl"


def write(path: Path, *entries: Any) -> str:
    path.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    return str(path)


@pytest.mark.requirement("D-evidence-05")
def test_a_result_counts_by_the_entry_with_its_id(path: Path):
    written = write(path, PROMPT, result("toolu_0"), result("toolu_1"), ANSWER)

    assert transcript.has_result(written, "toolu_1")
    assert not transcript.has_result(written, "toolu_2")


@pytest.mark.requirement("D-evidence-07")
def test_a_subagents_entry_does_not_count(path: Path):
    assert not transcript.has_result(write(path, result(isSidechain=True)), "toolu_1")


@pytest.mark.parametrize(
    "entry",
    [
        {"type": "assistant", "message": {"content": [{"type": "tool_use", "id": "toolu_1"}]}},
        {"type": "user", "message": {"content": "tool_result toolu_1"}},
        {"type": "user", "message": {"content": [{"type": "text", "tool_use_id": "toolu_1"}]}},
        {"type": "attachment", "toolUseID": "toolu_1"},
        {"type": "user", "message": "toolu_1"},
        ["toolu_1"],
        "toolu_1",
    ],
)
def test_a_mention_of_a_call_is_no_result_of_it(path: Path, entry: object):
    assert not transcript.has_result(write(path, entry), "toolu_1")


def test_broken_lines_are_passed_over(path: Path):
    path.write_bytes(b'{"toolu_1"\n\xff toolu_1\n' + json.dumps(result()).encode())

    assert transcript.has_result(str(path), "toolu_1")


def test_only_the_end_of_a_long_transcript_is_read(path: Path):
    far = {"type": "user", "message": {"role": "user", "content": "x" * TRANSCRIPT_TAIL_BYTES}}

    assert not transcript.has_result(write(path, result("toolu_1"), far), "toolu_1")
    assert transcript.has_result(write(path, far, result("toolu_1")), "toolu_1")


@pytest.mark.requirement("A-boundary-09")
def test_a_prompt_that_nobody_answered_proves_nothing_about_what_stood_beside_it(path: Path):
    assert not transcript.was_kept(write(path, ANSWER, PROMPT, BESIDE), "m-1")
    assert transcript.was_kept(write(path, PROMPT, BESIDE, ANSWER), "m-1")
    assert not transcript.was_kept(write(path, PROMPT, BESIDE, ANSWER), "m-2")


@pytest.mark.requirement("A-boundary-09")
def test_a_prompt_that_was_interrupted_and_kept_keeps_what_stood_beside_it(path: Path):
    assert transcript.was_kept(write(path, PROMPT, BESIDE, CUT), "m-1")
    assert not transcript.was_kept(write(path, PROMPT, CUT, BESIDE), "m-1")
    assert not transcript.was_kept(write(path, PROMPT, BESIDE, QUOTED), "m-1")


def test_a_text_in_the_conversation_is_found_by_its_message(path: Path):
    written = write(path, PROMPT, result(), BESIDE)

    assert transcript.has_message(written, "m-1")
    assert not transcript.has_message(written, "m-2")
    assert not transcript.has_message(write(path, {"type": "api-request-blob", "message": "m-1"}), "m-1")


@pytest.mark.requirement("A-boundary-11")
@pytest.mark.parametrize(
    ("entries", "ended"),
    [
        ([PROMPT, ANSWER], True),
        ([PROMPT, ANSWER, {"type": "system", "subtype": "stop_hook_summary"}], True),
        ([PROMPT, ANSWER, {**PROMPT, "isMeta": True}], True),
        ([PROMPT, {**PROMPT, "isCompactSummary": True}], True),
        ([PROMPT, OUTPUT], True),
        ([PROMPT, ANSWER, CUT], False),
        ([PROMPT, result(), CUT], False),
        ([PROMPT], None),
        ([PROMPT, BESIDE], None),
        ([PROMPT, CALL], None),
        ([PROMPT, ANSWER, result()], None),
        ([PROMPT, ANSWER, QUOTED], None),
        ([], None),
    ],
)
def test_how_a_turn_ended_stands_in_its_last_entry(path: Path, entries: list[Any], ended: bool | None):
    assert transcript.ended(write(path, *({**entry, **AT} for entry in entries)), SINCE) is ended


@pytest.mark.parametrize("at", [{}, {"timestamp": "2026-01-01T00:00:00.999Z"}, {"timestamp": "x"}])
@pytest.mark.parametrize("last", [ANSWER, CUT])
def test_the_end_of_an_earlier_turn_tells_nothing_of_this_one(path: Path, last: Any, at: dict[str, str]):
    assert transcript.ended(write(path, PROMPT, {**last, **at}), SINCE) is None


def test_what_is_no_file_of_ours_proves_nothing(path: Path, tmp_path: Path):
    (tmp_path / "link").symlink_to(write(path, result()))
    os.mkfifo(tmp_path / "pipe")

    for name in ("link", "pipe", "absent", "."):
        assert not transcript.has_result(str(tmp_path / name), "toolu_1")
