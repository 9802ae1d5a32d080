"""The scripted model: what it answers in both formats, and that a test decides when."""

import json
import threading
import urllib.error
import urllib.request
from typing import Any

import pytest

from tests.fakes.model_script import Answer, Call, Part, answer_to, read_script
from tests.fakes.model_server import ModelServer, Request

_TOOLS = ["list_peers", "mcp__herd__message_peer"]


def _ask(model: ModelServer, path: str, body: dict[str, Any]) -> str:
    asked = urllib.request.Request(model.url + path, json.dumps(body).encode(), {"content-type": "json"})
    with urllib.request.urlopen(asked, timeout=10) as answer:
        text: str = answer.read().decode()
    return text


def _openai(*texts: str, stream: bool = False) -> dict[str, Any]:
    tools = [{"type": "function", "function": {"name": name}} for name in _TOOLS]
    messages = [{"role": "user", "content": text} for text in texts]
    return {"model": "m", "messages": messages, "tools": tools, "stream": stream}


def _anthropic(*texts: str, stream: bool = False) -> dict[str, Any]:
    messages = [{"role": "user", "content": [{"type": "text", "text": text}]} for text in texts]
    return {
        "model": "m",
        "messages": messages,
        "tools": [{"name": name} for name in _TOOLS],
        "stream": stream,
    }


def test_the_newest_text_with_a_directive_is_the_script():
    parts = [Part("user", "[[say one]]", 0), Part("user", "[[say two]]", 1), Part("user", "no more", 2)]

    assert answer_to(parts, _TOOLS) == Answer(text="two")


def test_steps_are_told_by_the_results_that_follow_the_script():
    script = (
        'Do [[call list_peers {"query": "]]"}]] [[also list_peers {}]] [[call message_peer {}]] [[say end]]'
    )
    parts = [Part("user", script, 0)]
    answers = [answer_to(parts, _TOOLS)]
    for place, results in ((1, 2), (2, 1)):
        parts += [Part("tool", "r", place)] * results
        answers.append(answer_to(parts, _TOOLS))

    assert answers == [
        Answer(calls=(Call("list_peers", {"query": "]]"}), Call("list_peers", {}))),
        Answer(calls=(Call("mcp__herd__message_peer", {}),)),
        Answer(text="end"),
    ]


def test_a_script_quoted_as_a_json_string_is_read_as_it_was_meant():
    script = '[[call message_peer {"message": "a \\"b\\""}]]'

    assert read_script(json.dumps(script)) == read_script(script)


def test_a_prompt_repeated_beside_a_result_is_no_new_script():
    script = "[[call list_peers {}]]"
    parts = [Part("user", script, 0), Part("tool", "nobody", 1), Part("user", f"You were asked {script}", 1)]

    assert answer_to(parts, _TOOLS) == Answer(text="result: nobody")


def test_a_text_without_a_directive_is_echoed():
    assert answer_to([Part("user", "hello", 0)], _TOOLS) == Answer(text="echo: hello")


@pytest.mark.parametrize("stream", [False, True])
def test_calls_and_texts_are_answered_in_both_formats(stream: bool):
    with ModelServer() as model:
        texts = "[[call list_peers {}]]", "[[say hello]]"
        chat = [_ask(model, "/v1/chat/completions", _openai(text, stream=stream)) for text in texts]
        messages = [_ask(model, "/v1/messages", _anthropic(text, stream=stream)) for text in texts]

    assert '"name": "list_peers"' in chat[0]
    assert '"finish_reason": "tool_calls"' in chat[0]
    assert '"content": "hello"' in chat[1]
    assert '"name": "list_peers"' in messages[0]
    assert '"stop_reason": "tool_use"' in messages[0]
    assert '"text": "hello"' in messages[1]
    assert [("data: [DONE]" in answer) for answer in chat] == [stream, stream]
    assert [("event: message_stop" in answer) for answer in messages] == [stream, stream]


def test_an_answer_is_held_until_the_test_releases_it():
    with ModelServer() as model:
        answers: list[str] = []
        body = _openai("[[hold one]] [[say late]]")
        asking = threading.Thread(
            target=lambda: answers.append(_ask(model, "/v1/chat/completions", body)), daemon=True
        )
        asking.start()
        held = model.held("one")
        before = list(answers)
        model.release("one")
        asking.join(10)

    assert held.offered == tuple(_TOOLS)
    assert before == []
    assert "late" in answers[0]


def test_waiting_gives_the_first_request_with_the_text_after_the_one_named():
    with ModelServer() as model:
        for text in ("first apple", "second apple", "pear"):
            _ask(model, "/v1/messages", _anthropic(text))
        first = model.wait("apple")
        second = model.wait("apple", after=first.number)

        assert (first.text, second.text) == ("first apple", "second apple")
        with pytest.raises(AssertionError, match="no request has 'plum'"):
            model.wait("plum", timeout=0.01)


def test_a_side_question_without_tools_is_answered_and_not_waited_for():
    with ModelServer() as model:
        answer = _ask(model, "/v1/messages", {"messages": [{"role": "user", "content": "[[hold x]] title?"}]})

        assert "no tools were offered" in answer
        assert model.requests == []


def test_a_policy_may_answer_in_place_of_the_script():
    def policy(request: Request) -> Answer | None:
        return Answer(text="by policy") if "ping" in request.fresh else None

    with ModelServer(policy) as model:
        answers = [_ask(model, "/v1/chat/completions", _openai(text)) for text in ("ping", "[[say other]]")]

    assert "by policy" in answers[0]
    assert "other" in answers[1]


def test_a_script_may_ask_for_a_failure():
    with ModelServer() as model, pytest.raises(urllib.error.HTTPError) as refusal:
        _ask(model, "/v1/chat/completions", _openai("[[fail 400]]"))

    refusal.value.close()
    assert refusal.value.code == 400


def test_models_are_listed_and_tokens_counted():
    with ModelServer() as model:
        with urllib.request.urlopen(f"{model.url}/v1/models", timeout=10) as answer:
            models = json.load(answer)
        counted = _ask(model, "/v1/messages/count_tokens?beta=true", {"messages": []})

    assert models["data"][0]["id"] == "scripted"
    assert json.loads(counted) == {"input_tokens": 1}
