"""What the scripted model answers: read from the newest user text that holds a directive.

    [[call NAME {"json": 1}]]   call that tool; the next answer waits for its result
    [[also NAME {"json": 1}]]   one more call in the same answer as the call before
    [[say TEXT]]                answer the text and end the turn
    [[fail STATUS]]             answer with that HTTP status
    [[hold NAME]]               wait with the next answer until the test releases NAME

One step is one answer, and the step to play is told by the tool results that follow the script, so a repeated
request gets the same answer. After the last step the newest tool result is repeated, and a text without any
directive is echoed.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

_DIRECTIVE = re.compile(r"\[\[(call|also|say|fail|hold)\s+")
_NAME = re.compile(r"[^\s\]{]+")


@dataclass(frozen=True)
class Part:
    """One piece of a conversation, in its order: a text of a role, or the result of a tool."""

    role: str
    """`system`, `user`, `assistant`, or `tool` for a result."""
    text: str
    message: int
    """The place of its message among the messages of the request."""


@dataclass(frozen=True)
class Call:
    """One call of a tool."""

    name: str
    arguments: dict[str, Any]


@dataclass(frozen=True)
class Answer:
    """One answer of the model: a text, calls, or an HTTP status that says what went wrong."""

    text: str = ""
    calls: tuple[Call, ...] = ()
    status: int = 200
    holds: tuple[str, ...] = field(default=(), compare=False)
    """What the test releases before this is answered."""


def answer_to(parts: Sequence[Part], tools: Sequence[str]) -> Answer:
    """Give the answer to a conversation; a tool may be named by the end of its name."""
    script: list[Answer] = []
    results: list[str] = []
    newest = ""
    for part in parts:
        if part.role == "tool":
            results.append(part.text)
        if part.role != "user":
            continue
        newest = part.text
        found = read_script(part.text)
        beside_a_result = any(other.role == "tool" and other.message == part.message for other in parts)
        # A host repeats the prompt in a reminder beside a result: the same script is no new one there.
        if found and not (beside_a_result and found == script):
            script, results = found, []
    if not tools:
        return Answer(text="no tools were offered")
    if not script:
        return Answer(text=f"echo: {newest}")
    return _step(script, results, tools)


def _step(script: Sequence[Answer], results: Sequence[str], tools: Sequence[str]) -> Answer:
    done = len(results)
    for step in script:
        if step.calls and done >= len(step.calls):
            done -= len(step.calls)
            continue
        named = [_full_name(call.name, tools) for call in step.calls]
        if None in named:
            return Answer(text=f"no such tool: {[call.name for call in step.calls]} of {sorted(tools)}")
        calls = tuple(Call(name or "", call.arguments) for name, call in zip(named, step.calls, strict=True))
        if step.calls or step.text or step.status != 200:
            return Answer(step.text, calls, step.status, step.holds)
        return Answer(text=f"result: {results[-1] if results else ''}", holds=step.holds)
    return Answer(text=f"result: {results[-1] if results else ''}")


def _full_name(wanted: str, tools: Sequence[str]) -> str | None:
    if wanted in tools:
        return wanted
    return next((name for name in tools if name.endswith(f"_{wanted}")), None)


def read_script(text: str) -> list[Answer]:
    """Read the steps of a text; none where it holds no directive."""
    steps: list[Answer] = []
    holds: list[str] = []
    at = 0
    while match := _DIRECTIVE.search(text, at):
        word, at = match.group(1), match.end()
        if word in {"call", "also"}:
            call, at = _read_call(text, at)
            if word == "also" and steps and steps[-1].calls:
                steps[-1] = Answer(calls=(*steps[-1].calls, call), holds=steps[-1].holds)
                continue
            steps.append(Answer(calls=(call,), holds=tuple(holds)))
        else:
            end = text.find("]]", at)
            end = len(text) if end < 0 else end
            inside, at = text[at:end].strip(), end
            if word == "hold":
                holds.append(inside)
                continue
            said = Answer(text=inside) if word == "say" else Answer(status=int(inside))
            steps.append(Answer(said.text, (), said.status, tuple(holds)))
        holds = []
    return [*steps, Answer(holds=tuple(holds))] if holds else steps


def _read_call(text: str, at: int) -> tuple[Call, int]:
    """Read a name and its arguments, also where the text was quoted as a JSON string on its way."""
    name = _NAME.match(text, at)
    if name is None:
        raise ValueError(f"a call without a name: {text[at : at + 40]!r}")
    rest = text[name.end() :].lstrip()
    if not rest.startswith("{"):
        return Call(name.group(), {}), name.end()
    try:
        arguments, _ = json.JSONDecoder().raw_decode(rest)
    except ValueError:
        quoted = rest.partition("]]")[0]
        arguments, _ = json.JSONDecoder().raw_decode(json.loads(f'"{quoted}"'))
    return Call(name.group(), arguments), name.end()
