"""The reference page of the adapter API: params read off the shapes that check them.

What methods and fields mean stands in `docs.adapter_methods`; this module joins the two, and refuses a method
or a param that only one of them knows.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import BaseModel

from docs.adapter_methods import METHODS, Method
from docs.markdown import Undocumented, page, table
from herd.coordinator.adapter_api import _METHODS, BindParams
from herd.coordinator.adapter_params import Nothing
from herd.mcp.tool_api import ToolParams

_INTRODUCTION = """\
The adapter API is what a session's own programs ask its coordinator: the host's extension, the MCP server,
the command line. It is JSON-RPC 2.0, one object a line; the frames are those of
[the protocol](protocol.md#frames). The same methods are served in two places:

- on the standard input and output of `herd session`;
- on the socket of the session's instance, once `session.authenticate` has named the session's token.

Params are given by name. A field that is not listed is refused and nothing is done; a field that may be left
out may also be `null`. Requests are begun in the order in which they came and answered as they finish, at
most `pending_requests` of them ([32 unless set](config.md)) at once. A notification is dropped."""

_AUTHENTICATE = """\
## `session.authenticate`

Proves a program of the session on its socket. It must be the first request there, within 2 seconds of the
connection. After a wrong token the connection is closed.

| param | type | may be left out | meaning |
| --- | --- | --- | --- |
| `token` | text | no | the content of the session's file `token` ([files](files.md)) |
| `command` | true or false | yes, `false` | whether a person's command line asks |

With `command` the caller may name in `session.send` whatever resolves now, also a name that one listed peer
alone bears, and what it lists does not count as shown
([why](../adr/0006-adapter-connections-of-command-lines.md)).

Result: `instance_id`, this life of the coordinator.

Errors: `AUTHENTICATION_FAILED`, `INVALID_PARAMS`."""

_ERRORS = """\
## Errors of every method

A refusal is a JSON-RPC error whose `data` has the stable `code`, a `hint`, and what the code brings along:
`field`, `retry_after_ms`, `holder`, `candidates` or `path`. Beside those named at each method every method
may answer:

| code | when |
| --- | --- |
| `INVALID_PARAMS` | a param is missing, unknown, mistyped or out of range; the message names it |
| `METHOD_NOT_FOUND` | there is no such method here |
| `TARGET_ENDED` | `run` names no live run that this connection bound |
| `CAPABILITY_DENIED` | `run` names a run that may not do this |
| `PEER_OFFLINE` | this connection, which bound the run in `run`, has ended |
| `NO_SESSION` | no session has been bound to this process yet |
| `SESSION_HELD` | another process holds the session, and this one is on standby |
| `QUEUE_FULL` | `pending_requests` requests of this connection are being answered already |
| `FRAME_TOO_LARGE` | the answer would not fit into a frame |
| `INVALID_RPC` | an internal fault; the log has it under the id that the message names |

What each code means, and its number, stands in [errors](errors.md)."""


def adapter_api_page(methods: Mapping[str, Method] = METHODS) -> str:
    """Describe every method with its params, results and errors.

    Raises:
        Undocumented: the code and the descriptions do not have the same methods or the same fields.
    """
    shapes = served()
    _require_same("method", shapes, methods)
    parts = [part for name, method in methods.items() for part in _method_parts(name, method, shapes[name])]
    return page("Adapter API", _INTRODUCTION, _ERRORS, _AUTHENTICATE, *parts)


def served() -> dict[str, type[BaseModel]]:
    """Give the shape of the params of each method, as the code checks it."""
    return {
        "session.bind": BindParams,
        **{name: shape for name, (shape, _) in _METHODS.items()},
        "session.tools": Nothing,
        "session.tool": ToolParams,
    }


def _method_parts(name: str, method: Method, shape: type[BaseModel]) -> list[str]:
    schema = shape.model_json_schema(by_alias=True)
    fields: dict[str, Any] = schema["properties"]
    _require_same(f"param of {name}", fields, method.params)
    required = set(schema.get("required", ()))
    params = [
        (f"`{field}`", type_of(fields[field]), _optional(field, fields, required), meaning)
        for field, meaning in method.params.items()
    ]
    results = [(f"`{one.path}`", "yes" if one.always else "", one.meaning) for one in method.results]
    own = ", ".join(f"`{code}`" for code in method.errors)
    return [
        f"## `{name}`",
        method.meaning,
        table(("param", "type", "may be left out", "meaning"), params) if params else "It takes no params.",
        table(("result", "always", "meaning"), results) if results else "Result: an empty object.",
        *([f"Errors: {own}."] if own else []),
    ]


def _require_same(what: str, found: Iterable[str], described: Iterable[str]) -> None:
    wrong = set(found) ^ set(described)
    if wrong:
        raise Undocumented(f"{what}: {', '.join(sorted(wrong))}")


def _optional(field: str, fields: Mapping[str, Any], required: set[str]) -> str:
    if field in required:
        return "no"
    default = fields[field].get("default")
    if default in (None, ""):
        return "yes"
    return f"yes, `{json.dumps(default)}`"


def type_of(schema: Mapping[str, Any]) -> str:
    """Give the type of one field in words, its bounds among them."""
    known = [one for one in schema.get("anyOf", [schema]) if one.get("type") != "null"]
    match known:
        case [{"type": "boolean"}]:
            return "true or false"
        case [{"type": "integer"} as one]:
            most = f" to {one['maximum']}" if "maximum" in one else ""
            return f"whole number from {one['minimum']}{most}"
        case [{"type": "array"} as one]:
            return f"list of {one.get('minItems', 0)} to {one['maxItems']}, each {type_of(one['items'])}"
        case [{"type": "string"} as one]:
            return _text_type(one)
        case [{"type": "object"} | {"$ref": _}]:
            return "object"
    raise Undocumented(f"a field of the type {schema}")


def _text_type(schema: Mapping[str, Any]) -> str:
    least, most, pattern = schema.get("minLength", 0), schema.get("maxLength"), schema.get("pattern")
    if most is not None:
        length = f"text of {least} to {most} characters" if least else f"text of at most {most} characters"
    else:
        length = "text that is not empty" if least else "text"
    return f"{length}, `{pattern}`" if pattern else length
