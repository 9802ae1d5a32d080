"""Three real Pi sessions that answer whatever comes: they stop by themselves, and say why."""

import json
import re

import pytest

from herd.core.errors import AutomaticReplyLimit
from tests.fakes.model_script import Answer, Call
from tests.fakes.model_server import Request
from tests.hosts.pi.conftest import PiWorld

pytestmark = [pytest.mark.machine, pytest.mark.timeout(120)]

RING = {"a": "b", "b": "c", "c": "a"}
_FOLDER = re.compile(r"/work/([abc])\b")


def passes_on(request: Request) -> Answer | None:
    """Look who is there, write to the next of the ring, and be content."""
    results = [part.text for part in request.parts if part.role == "tool" and part.text in request.fresh]
    if not results:
        return Answer(calls=(Call("list_peers", {}),))
    if '"peers"' not in results[-1]:
        return Answer(text=f"sent: {results[-1]}")
    own = next(match.group(1) for part in request.parts if (match := _FOLDER.search(part.text)))
    peers = {peer.get("name"): peer["target"] for peer in json.loads(results[-1])["peers"]}
    return Answer(calls=(Call("message_peer", {"target": peers[RING[own]], "message": "your turn"}),))


@pytest.mark.requirement("C11")
def test_a_ring_of_sessions_that_always_answer_stops_until_a_person_writes(world: PiWorld):
    world.policy = passes_on
    sessions = {name: world.pi(name) for name in RING}
    for name in RING:
        world.target(name)

    sessions["a"].prompt("begin")
    stopped = world.model.wait(AutomaticReplyLimit.code, fresh=True)
    sessions["b"].ask("prompt", message="once more", streamingBehavior="followUp")
    again = world.model.wait(AutomaticReplyLimit.code, after=stopped.number, fresh=True)

    turns = [request.number for request in world.model.requests if request.fresh.endswith('"your turn"')]
    rounds = (
        [number for number in turns if number < stopped.number],
        [number for number in turns if stopped.number < number < again.number],
    )
    assert "without a person's word" in stopped.fresh
    assert all(len(numbers) > len(RING) for numbers in rounds)
