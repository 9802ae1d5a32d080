"""Sessions that always answer, each a process of its own: the ring ends by itself, and says why."""

import time

import pytest

from herd.core.errors import AutomaticReplyLimit
from herd.core.limits import DEFAULT_LIMITS
from tests.fakes.herd_session import WAIT_S, HerdSession
from tests.processes.conftest import Machine

MOST = DEFAULT_LIMITS.automatic_replies
NAMES = ("a", "b", "c")


class Answering:
    """A host whose agent passes on whatever it is woken for."""

    def __init__(self, machine: Machine, name: str) -> None:
        self.session = machine.session("claude", name, name=name, parent=machine.new_host())
        self.next = ""
        self.refusal: AutomaticReplyLimit | None = None
        self.session.request("session.subscribe")
        self.session.request("session.update", activity="idle")

    def prompted(self, text: str) -> str:
        """Have a person's prompt begin a turn, in which the agent writes to the next one."""
        self.session.request("session.update", person_prompted=True, activity="working")
        sent = self._written(text)
        self.session.request("session.update", turn_ended=True, activity="idle")
        return sent

    def woken(self) -> list[str]:
        """Wait for a wake and have its turn; gives the ids of what the agent wrote in it."""
        self._wait()
        self.session.request("session.update", activity="working")
        messages = self.session.request("session.read", wait_ms=20_000)["messages"]
        ids = [message["message_id"] for message in messages]
        self.session.request("session.confirm", message_ids=ids, evidence="a test")
        written = []
        for message in messages:
            try:
                written.append(self._written(f"after {message['text']}"))
            except AutomaticReplyLimit as refusal:
                self.refusal = refusal
        self.session.request("session.update", turn_ended=True, activity="idle")
        return written

    def _written(self, text: str) -> str:
        return self.session.send(self.next, text)

    def _wait(self) -> None:
        deadline = time.monotonic() + WAIT_S
        while time.monotonic() < deadline:
            frames, self.session.others[:] = list(self.session.others), []
            if any(frame["method"] == "peer_update" and frame["params"].get("wake") for frame in frames):
                return
            self.session.request("session.whoami")
        raise TimeoutError("no wake came")


def turns_until_refused(ring: list[Answering], first: int) -> tuple[int, Answering]:
    """Let each have its turn in the ring until one is refused; gives how many wrote, and that one."""
    for number in range(first, first + MOST + len(ring)):
        one = ring[number % len(ring)]
        if not one.woken():
            return number - first, one
    raise AssertionError("the ring goes on for ever")


@pytest.mark.requirement("C11")
@pytest.mark.timeout(180)
@pytest.mark.parametrize("size", [2, 3])
def test_c11_a_ring_of_processes_ends_at_the_budget_and_a_persons_word_begins_it_afresh(
    machine: Machine, size: int
):
    ring = [Answering(machine, name) for name in NAMES[:size]]
    for number, one in enumerate(ring):
        one.next = one.session.until_listed(NAMES[(number + 1) % size])
    for begins in (0, size - 1, 0):
        ring[begins].prompted("go")
        written, over = turns_until_refused(ring, begins + 1)

        assert written == MOST
        assert over.refusal is not None
        assert f"{MOST} messages have followed one another between sessions" in over.refusal.message
        assert ring.index(over) == (begins + 1 + MOST) % size
        over.refusal = None
        nobody_is_woken(ring)


@pytest.mark.requirement("C11")
def test_c11_a_line_that_a_person_sends_begins_afresh_and_lets_the_agent_go_on_no_further(machine: Machine):
    ring = [Answering(machine, name) for name in NAMES]
    for number, one in enumerate(ring):
        one.next = one.session.until_listed(NAMES[(number + 1) % 3])
    ring[0].prompted("go")
    _, over = turns_until_refused(ring, 1)
    at = ring.index(over)
    line = {"text": ":next go on", "references": [{"start": 0, "end": 5, "to": over.next}]}
    sent = over.session.request("session.compose", **line)["sent"]
    with pytest.raises(AutomaticReplyLimit):
        over.session.request("session.send", target=over.next, message="the agent's own")
    assert sent["status"] in {"queued", "accepted"}

    written, _ = turns_until_refused(ring, at + 1)
    assert written == MOST


def nobody_is_woken(ring: list[Answering]) -> None:
    for one in ring:
        session: HerdSession = one.session
        assert session.request("session.read")["messages"] == []
        assert not any(frame["params"].get("wake") for frame in session.others)
