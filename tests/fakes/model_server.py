"""A scripted model on 127.0.0.1 for the real hosts: it keeps what they ask, and a test says when it answers.

`tests.fakes.model_script` says what it answers, `tests.fakes.model_wire` in which words.

    with ModelServer() as model:
        ...                                   # a host that asks model.url is started
        model.held("one")                     # its prompt had [[hold one]]: the turn is busy now
        model.release("one")
        assert model.wait("a text").offered   # the first request that has this text in its messages
"""

import gzip
import json
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, NamedTuple, Self

from tests.fakes import model_wire as wire
from tests.fakes.model_script import Answer, Part, answer_to

WAIT_S = 20.0
"""Seconds that a test waits at most for a host to ask."""

_HELD_S = 60.0
"""Seconds after which a held answer fails by itself, so that a broken test does not hang."""


class _Format(NamedTuple):
    parts: Callable[[dict[str, Any]], Iterator[Part]]
    tools: Callable[[dict[str, Any]], list[str]]
    message: Callable[[Answer, str], dict[str, Any]]
    events: Callable[[dict[str, Any]], Iterator[str]]


_FORMATS = {
    "/messages": _Format(
        wire.anthropic_parts, wire.anthropic_tools, wire.anthropic_message, wire.anthropic_events
    ),
    "/chat/completions": _Format(
        wire.openai_parts, wire.openai_tools, wire.openai_message, wire.openai_events
    ),
}


@dataclass(frozen=True)
class Request:
    """One question of a host to the model."""

    number: int
    """Its place among all that came, from 0."""
    body: dict[str, Any]
    parts: tuple[Part, ...]
    offered: tuple[str, ...]
    """The names of the tools the model may call; none in a host's side questions, such as for a title."""

    @property
    def text(self) -> str:
        """Give the texts and tool results of its messages, without the system prompt."""
        return "\n".join(part.text for part in self.parts if part.role != "system")

    @property
    def fresh(self) -> str:
        """Give what came after the last words of the model."""
        spoken = [part.message for part in self.parts if part.role == "assistant"]
        last = max(spoken, default=-1)
        return "\n".join(part.text for part in self.parts if part.role != "system" and part.message > last)


class ModelServer:
    """The model; `policy` may answer a request before its script does, and gives None to leave it to that."""

    def __init__(self, policy: Callable[[Request], Answer | None] | None = None) -> None:
        self._policy = policy or (lambda _request: None)
        self._changed = threading.Condition()
        self._requests: list[Request] = []
        self._holding: dict[str, Request] = {}
        self._released: set[str] = set()
        self._closed = False
        self._server = _Server(self)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._server.shutdown()
        self._server.end_connections()
        self._server.server_close()
        self._thread.join()

    @property
    def url(self) -> str:
        """The base address; hosts put `/v1/messages` or `/v1/chat/completions` behind it."""
        return f"http://127.0.0.1:{self._server.server_port}"

    @property
    def requests(self) -> list[Request]:
        """The requests that offered tools, in the order in which they came."""
        with self._changed:
            return [request for request in self._requests if request.offered]

    def wait(self, text: str, *, after: int = -1, fresh: bool = False, timeout: float = WAIT_S) -> Request:
        """Give the first request with tools, later than number `after`, whose messages hold the text.

        Args:
            text: What to look for.
            after: The number of a request that came before.
            fresh: Look only at what came after the last words of the model.
            timeout: Seconds to wait at most.
        """

        def fits(request: Request) -> bool:
            messages = request.fresh if fresh else request.text
            return bool(request.offered) and request.number > after and text in messages

        return self._until(
            lambda: next(filter(fits, self._requests), None), timeout, f"no request has {text!r}"
        )

    def held(self, name: str, timeout: float = WAIT_S) -> Request:
        """Give the request whose answer waits for `release(name)`, as soon as there is one."""
        return self._until(lambda: self._holding.get(name), timeout, f"no answer waits for {name!r}")

    def release(self, name: str) -> None:
        """Let the answer held under a name go, and any that asks for that name later."""
        with self._changed:
            self._released.add(name)
            self._changed.notify_all()

    def _until(self, found: Callable[[], Request | None], timeout: float, complaint: str) -> Request:
        with self._changed:
            if not self._changed.wait_for(lambda: found() is not None, timeout):
                asked = [request.fresh[-200:] for request in self._requests if request.offered]
                raise AssertionError(f"{complaint}; the last of {len(asked)} were {asked[-3:]}")
            request = found()
        assert request is not None
        return request

    def answer(self, form: _Format, body: dict[str, Any]) -> Answer:
        """Keep a request, wait as its script says, and give what to answer."""
        parts, offered = tuple(form.parts(body)), tuple(form.tools(body))
        with self._changed:
            request = Request(len(self._requests), body, parts, offered)
            self._requests.append(request)
            self._changed.notify_all()
        answer = (self._policy(request) if offered else None) or answer_to(parts, offered)
        for name in answer.holds:
            with self._changed:
                self._holding[name] = request
                self._changed.notify_all()
                if not self._changed.wait_for(lambda: self._closed or name in self._released, _HELD_S):  # noqa: B023 - waited for here
                    return Answer(status=500)
        return answer


class _Server(ThreadingHTTPServer):
    daemon_threads = False

    def __init__(self, model: ModelServer) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.model = model
        self._open: set[socket.socket] = set()

    def process_request(self, request: Any, client_address: Any) -> None:
        self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._open.discard(request)
        super().shutdown_request(request)

    def end_connections(self) -> None:
        """Wake the threads of clients that keep a connection and ask nothing."""
        for connection in list(self._open):
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue  # its client has ended it

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that ended its connection in the middle of an answer has cancelled it."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the standard library's name
        """Say nothing."""

    def do_HEAD(self) -> None:
        self._send(200, "application/json", b"")

    def do_GET(self) -> None:
        model = {"id": "scripted", "object": "model", "type": "model", "display_name": "Scripted"}
        found = self.path.partition("?")[0].endswith("/models")
        self._json(200 if found else 404, {"object": "list", "data": [model]} if found else {})

    def do_POST(self) -> None:
        data = self.rfile.read(int(self.headers.get("content-length", 0)))
        if self.headers.get("content-encoding") == "gzip":
            data = gzip.decompress(data)
        path = self.path.partition("?")[0]
        if path.endswith("/count_tokens"):
            self._json(200, {"input_tokens": 1})
            return
        form = next((form for end, form in _FORMATS.items() if path.endswith(end)), None)
        if form is None:
            self._json(404, {"error": {"type": "not_found_error", "message": path}})
            return
        body = json.loads(data)
        answer = self.server.model.answer(form, body)
        if answer.status != 200:
            error = {"type": "invalid_request_error", "message": "as the script says"}
            self._json(answer.status, {"type": "error", "error": error})
            return
        message = form.message(answer, body.get("model", "scripted"))
        if body.get("stream"):
            self._send(200, "text/event-stream", "".join(form.events(message)).encode())
        else:
            self._json(200, message)

    def _json(self, status: int, value: Any) -> None:
        self._send(status, "application/json", json.dumps(value).encode())

    def _send(self, status: int, kind: str, data: bytes) -> None:
        self.close_connection = True
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(data)))
        self.send_header("connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)
