"""`peer.directory`: the shapes of what a coordinator tells others about its runs, and the answer to it."""

from collections.abc import Iterable
from typing import Annotated, Any, Literal

from pydantic import Field

from herd.coordinator.runs.tree import Run
from herd.core.errors import InvalidParams, InvalidRpc
from herd.core.identity import peer_id_of
from herd.core.limits import (
    DIRECTORY_ENTRIES,
    LABEL_CHARACTERS,
    PROTOCOL_VERSION,
    RECORD_CAPABILITIES,
    RUN_ID_CHARACTERS,
    SHOWN_CHARACTERS,
)
from herd.core.text import printable
from herd.mail.wire import PeerId, Wire, checked
from herd.rpc.frames import encode

_AROUND_BYTES = 512
"""Bytes of an answer's frame around its entries, at most."""


class _Question(Wire):
    version: Annotated[int, Field(ge=PROTOCOL_VERSION, le=PROTOCOL_VERSION)] = PROTOCOL_VERSION
    run: PeerId | None = None


class Entry(Wire):
    """One run as its coordinator tells it; it says nothing of any other session."""

    peer_id: PeerId
    run_id: Annotated[str, Field(min_length=1, max_length=RUN_ID_CHARACTERS)]
    instance_id: str
    name: Annotated[str, Field(min_length=1, max_length=LABEL_CHARACTERS)]
    capabilities: Annotated[list[str], Field(max_length=RECORD_CAPABILITIES)]
    parent: PeerId | None = None
    scope: Literal["machine", "repository", "workspace"] | None = None


class _Answer(Wire):
    peers: list[dict[str, Any]]


def asked_about(params: dict[str, Any]) -> str | None:
    """Read the params of `peer.directory`: the one run that is asked about, None for all.

    Raises:
        InvalidParams: they have another shape.
    """
    return checked(_Question, params).run


def answer_of(runs: Iterable[Run], instance_id: str, frame_bytes: int) -> dict[str, Any]:
    """Give the result of `peer.directory`: as many of these runs as one answer may hold.

    Args:
        runs: Live ones whose scope takes the caller in.
        instance_id: Whose they are.
        frame_bytes: Bytes of the frame that the answer has to fit into.
    """
    peers: list[dict[str, Any]] = []
    left = frame_bytes - _AROUND_BYTES
    for run in runs:
        entry: dict[str, Any] = {
            "peerId": run.peer_id,
            "runId": run.run_id,
            "instanceId": instance_id,
            "name": run.name,
            "capabilities": list(run.capabilities),
        }
        if run.parent is not None:
            entry["parent"] = run.parent
        if run.scope is not None:
            entry["scope"] = run.scope
        left -= len(encode(entry, frame_bytes))
        if left < 0 or len(peers) == DIRECTORY_ENTRIES:
            break
        peers.append(entry)
    return {"peers": peers}


def read_answer(result: Any, instance_id: str) -> list[Entry]:
    """Read what answered `peer.directory`: the entries that can be believed of that instance.

    A peer id that is not computed from the instance and the run's id is nobody's, so its entry is left out.

    Raises:
        InvalidRpc: it has another shape.
    """
    try:
        given = checked(_Answer, result).peers[:DIRECTORY_ENTRIES]
        entries = [checked(Entry, one) for one in given]
    except InvalidParams as fault:
        raise InvalidRpc(f"the other side answered with no directory: {fault.message}") from None
    return [one for one in entries if _is_right(one, instance_id)]


def shown_name(entry: Entry | Run) -> str:
    """Give a run's name, made safe to be shown."""
    return printable(entry.name, SHOWN_CHARACTERS) or entry.peer_id


def _is_right(entry: Entry, instance_id: str) -> bool:
    return entry.instance_id == instance_id and entry.peer_id == peer_id_of(instance_id, entry.run_id)
