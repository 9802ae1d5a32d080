"""How a command goes on where the coordinator that it asks ends: against coordinators that a test plays."""

import json
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from herd.cli.caller import Caller
from herd.cli.calling import ask, calling
from herd.cli.context import Context
from herd.core.config import Settings
from herd.core.errors import DeliveryUnknown, HerdError, NoSession, PeerOffline
from herd.core.files import private_folder
from herd.core.identity import SessionName
from herd.core.limits import DEFAULT_LIMITS
from herd.core.locks import HeldLock
from herd.core.paths import Layout
from herd.presence.publisher import Publisher
from herd.presence.registry import Registry
from tests.fakes.records import LEAD, instance_of, layout_at, put

TERMINAL = SessionName("terminal", "default")
HOSTED = SessionName("claude", "alice")
WAIT_S = 20.0

Said = dict[str, Any]
Answer = dict[str, Any] | HerdError | None
"""A result, a refusal, or None: the connection ends unanswered."""


class Coordinator:
    """Plays one instance of a session's coordinator: one connection, one answer after the other."""

    def __init__(self, layout: Layout, lock: HeldLock, session: SessionName, number: int) -> None:
        self.asked: list[tuple[str, Said]] = []
        self.answers: list[tuple[Answer, Callable[[], None]]] = []
        instance = instance_of(session, f"instance-{number}", pid=os.getpid())
        self._path = path = os.path.join(layout.run, f"{instance.instance_id}.sock")
        self._publisher = Publisher(layout, lock, instance._replace(endpoint=path))
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(WAIT_S)
        self._socket.bind(path)
        os.chmod(path, 0o600)
        self._socket.listen()
        self._serving = threading.Thread(target=self._serve)

    def answer(self, answer: Answer, first: Callable[[], None] = lambda: None) -> None:
        """Give this answer to the next request, after `first` was called."""
        self.answers.append((answer, first))

    def begin(self) -> None:
        """Become the one on record."""
        self._publisher.publish(LEAD)
        self._serving.start()

    def close(self) -> None:
        if self._serving.ident is not None:
            with socket.socket(socket.AF_UNIX) as waking, suppress(OSError):
                waking.connect(self._path)
            self._serving.join(WAIT_S)
        self._socket.close()

    def _serve(self) -> None:
        connection, _ = self._socket.accept()
        with connection, connection.makefile("rb") as lines:
            for line in lines:
                frame = json.loads(line)
                if frame["method"] == "session.authenticate":
                    answer: Answer = {}
                else:
                    self.asked.append((frame["method"], frame["params"]))
                    answer, first = self.answers.pop(0)
                    first()
                if answer is None:
                    return
                kind = "error" if isinstance(answer, HerdError) else "result"
                said = answer.to_wire() if isinstance(answer, HerdError) else answer
                connection.sendall(
                    json.dumps({"jsonrpc": "2.0", "id": frame["id"], kind: said}).encode() + b"\n"
                )


class Instances:
    """Two instances of one session, the second after the first; both belong to this process."""

    def __init__(self, home: Path, session: SessionName, lock: HeldLock, layout: Layout) -> None:
        settings = Settings(str(home), DEFAULT_LIMITS, str(home / "config.toml"))
        self.context = Context({}, settings, layout, Registry(layout))
        self.session = session
        self.first, self.second = (Coordinator(layout, lock, session, number) for number in (1, 2))
        self.first.begin()

    @property
    def caller(self) -> Caller:
        return Caller(self.session, self.context.living(self.session))


@contextmanager
def instances(home: Path, session: SessionName) -> Iterator[Instances]:
    layout = layout_at(home)
    private_folder(layout.session_folder(session.key))
    put(layout.token(session.key), b"a token")
    with HeldLock.acquire(layout.session_lock(session.key)) as lock:
        both = Instances(home, session, lock, layout)
        try:
            yield both
        finally:
            both.first.close()
            both.second.close()


@pytest.fixture
def terminal(home: Path) -> Iterator[Instances]:
    with instances(home, TERMINAL) as both:
        yield both


@pytest.mark.requirement("D-cli-07")
@pytest.mark.parametrize("ending", [None, NoSession("this session has ended here")])
@pytest.mark.parametrize("method", ["session.send", "session.read", "session.status", "session.confirm"])
def test_a_call_that_the_end_of_a_coordinator_left_open_is_asked_of_the_next(
    terminal: Instances, method: str, ending: Answer
):
    terminal.first.answer(ending, terminal.second.begin)
    terminal.second.answer({"by": "the second"})

    assert ask(terminal.context, terminal.caller, method, {"x": 1}) == {"by": "the second"}

    assert terminal.first.asked == terminal.second.asked
    [(asked, params)] = terminal.second.asked
    assert (asked, params["x"]) == (method, 1)


@pytest.mark.requirement("D-cli-07")
def test_a_send_names_its_call_so_that_the_next_coordinator_makes_no_second_message(terminal: Instances):
    terminal.first.answer(None, terminal.second.begin)
    terminal.second.answer({})
    terminal.second.answer({})

    with calling(terminal.context, terminal.caller) as call:
        call("session.send", {"message": "once"})
        call("session.send", {"message": "once"})

    ids = [params["call_id"] for _, params in terminal.first.asked + terminal.second.asked]
    assert ids[0] == ids[1] != ids[2]


def test_what_is_left_of_a_wait_is_waited_with_the_next_coordinator(terminal: Instances):
    terminal.first.answer(None, terminal.second.begin)
    terminal.second.answer({})

    ask(terminal.context, terminal.caller, "session.read", {"wait_ms": 30_000})

    [(_, first)], [(_, second)] = terminal.first.asked, terminal.second.asked
    assert first["wait_ms"] == 30_000
    assert 0 < second["wait_ms"] < 30_000


def test_a_refusal_of_the_coordinator_is_one_and_is_not_asked_again(terminal: Instances):
    refusal = DeliveryUnknown("its recipient cannot be asked")
    terminal.first.answer(refusal)

    with pytest.raises(DeliveryUnknown, match="its recipient cannot be asked"):
        ask(terminal.context, terminal.caller, "session.cancel", {"message_id": "m"})
    assert len(terminal.first.asked) == 1


@pytest.mark.parametrize(("ending", "told"), [(None, DeliveryUnknown), (NoSession("over"), NoSession)])
def test_a_session_in_a_host_has_one_coordinator_and_no_next(
    home: Path, ending: Answer, told: type[HerdError]
):
    with instances(home, HOSTED) as hosted:
        hosted.first.answer(ending, hosted.second.begin)

        with pytest.raises(told):
            ask(hosted.context, hosted.caller, "session.send", {"message": "x"})
        assert hosted.first.asked == [("session.send", {"message": "x"})]
        assert hosted.second.asked == []


def test_a_coordinator_that_is_gone_from_its_socket_is_offline(home: Path):
    with instances(home, HOSTED) as hosted:
        caller = hosted.caller
        assert caller.record is not None
        with calling(hosted.context, caller):
            os.unlink(caller.record.endpoint)

        with pytest.raises(PeerOffline):
            ask(hosted.context, caller, "session.whoami", {})
