"""What is read of the JSON that Claude Code gives its hooks."""

import json
from typing import Any

import pytest

from herd.hosts.claude.events import read_event
from herd.hosts.claude.wire import Told
from herd.mail.header import NOTICE

PLAIN: dict[str, Any] = {
    "session_id": "c265b582-deeb-43de-85c9-f8d59d7cd1f9",
    "transcript_path": "/home/a/.claude/projects/x/c265b582.jsonl",
    "cwd": "/home/a/w",
    "permission_mode": "default",
}


def told(name: str, **fields: Any) -> Told:
    whole = {**PLAIN, "hook_event_name": name, **fields}
    return Told(name, json.dumps({k: v for k, v in whole.items() if v is not None}).encode(), whole=True)


def read(name: str, **fields: Any):
    event = read_event(told(name, **fields))
    assert event is not None
    return event


def test_an_event_names_its_session_and_surroundings():
    event = read("SessionStart", source="clear")

    assert event.session_id == PLAIN["session_id"]
    assert (event.cwd, event.transcript) == (PLAIN["cwd"], PLAIN["transcript_path"])
    assert (event.permission_mode, event.source) == ("default", "clear")
    assert not event.of_subagent


@pytest.mark.parametrize("field", ["session_id", "hook_event_name"])
def test_without_its_session_or_name_nothing_follows_from_an_event(field: str):
    assert read_event(told("Stop", **{field: None})) is None


@pytest.mark.parametrize("session_id", ["", 7, ["x"], "a" * 513, "\ud800", None, {}])
def test_a_session_id_that_is_none_names_nothing(session_id: object):
    assert read_event(told("Stop", session_id=session_id)) is None


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"{", b"7", b"\xff", b'{"a":' * 200_000, b"null", b'"x"'], ids=lambda one: one[:8]
)
def test_what_is_no_object_is_no_event(data: bytes):
    assert read_event(Told("Stop", data, whole=True)) is None


def test_an_event_that_was_cut_off_is_none_however_it_reads():
    assert read_event(told("Stop")._replace(whole=False)) is None


def test_an_event_of_another_name_than_its_hook_is_none():
    assert read_event(told("Stop")._replace(event="SessionStart")) is None


@pytest.mark.parametrize("value", [7, None, ["/x"], "relative", "/a\0b"])
def test_a_path_that_is_none_counts_as_absent(value: object):
    event = read("Stop", cwd=value, transcript_path=value)

    assert (event.cwd, event.transcript) == (None, None)


@pytest.mark.requirement("D-host-08")
@pytest.mark.parametrize(
    ("prompt", "by_person"),
    [
        ("hello", True),
        ("", True),
        (NOTICE, False),
        (f"{NOTICE} ", True),
        (f"I read: {NOTICE}", True),
        ("<task-notification>\n<task-id>a</task-id>", False),
        ("see <task-notification>", True),
        (7, False),
        (None, False),
    ],
)
def test_a_prompt_is_a_persons_unless_it_is_the_notice_or_claude_codes_own(prompt: object, by_person: bool):
    assert read("UserPromptSubmit", prompt=prompt).by_person is by_person


@pytest.mark.parametrize("name", ["Stop", "SessionStart", "PostToolBatch"])
def test_no_other_event_is_a_persons(name: str):
    assert not read(name, prompt="hello").by_person


def test_a_subagents_prompt_is_nobodys():
    event = read("UserPromptSubmit", prompt="hello", agent_id="a1")

    assert event.of_subagent
    assert not event.by_person


def test_a_batch_names_every_call_in_it():
    calls = [
        {"tool_use_id": "toolu_1"},
        {"tool_use_id": "toolu_2", "tool_response": "x"},
        {},
        7,
        {"tool_use_id": 7},
    ]

    assert read("PostToolBatch", tool_calls=calls).tool_use_ids == ("toolu_1", "toolu_2")


@pytest.mark.parametrize("calls", [None, 7, {}, "toolu_1"])
def test_a_batch_of_another_form_names_none(calls: object):
    assert read("PostToolBatch", tool_calls=calls).tool_use_ids == ()


def test_a_single_tools_event_names_its_call_and_other_events_name_none():
    assert read("PostToolUse", tool_use_id="toolu_1").tool_use_ids == ("toolu_1",)
    assert read("Stop", tool_use_id="toolu_1").tool_use_ids == ()


def test_a_stop_says_whether_a_hook_made_the_turn_go_on():
    assert read("Stop", stop_hook_active=True).again
    assert not read("Stop", stop_hook_active=False).again
    assert not read("Stop").again
