"""`session.compose`: what a person wrote for a session, with the peers that were selected in it.

A line that begins with a selected peer and goes on is a message to it, and is sent. Everything else is for
the session's own turn, of which the selected peers are mere metadata. A selection is bound to an exact target
or peer id, so it means the same peer however often the draft was edited, kept or called back; whether that
peer can still be written to is asked anew each time. Whoever called keeps the draft until it is answered.
"""

from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from herd.coordinator.capable import require_held
from herd.coordinator.drafting import Submission
from herd.coordinator.listing import Recipient
from herd.coordinator.sending import Sent
from herd.core.errors import (
    CapabilityDenied,
    HerdError,
    InvalidParams,
    PeerOffline,
    UnknownTarget,
)
from herd.core.identity import is_peer_id, is_target
from herd.core.references import Reference, parse
from herd.core.text import printable
from herd.mail import shown
from herd.mail.receipts import PENDING
from herd.presence.entries import entries_of
from herd.presence.record import RECEIVE, SEND
from herd.presence.registry import names_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from herd.coordinator.adapter_params import ComposeParams, SelectedParams
    from herd.coordinator.coordinator import Coordinator
    from herd.mail.shown import Shown


class Bound(NamedTuple):
    """A reference of the text, and the exact target or peer id that was selected for it."""

    field: str
    reference: Reference
    to: str


def found_in(text: str) -> dict[str, Any]:
    """Give the references of a text, selected or not, as `session.references` shows them."""
    return {"references": [one._asdict() for one in parse(text)]}


async def compose(coordinator: "Coordinator", params: "ComposeParams") -> Sent | list[dict[str, Any]]:
    """Send a text that is a message to one peer, or tell of the peers that are selected in another one.

    Returns:
        What the message reached; or, where nothing is sent, each selected reference with what is shown of its
        peer.

    Raises:
        InvalidParams: a selection holds no reference of the text, or one that names another peer exactly.
        PeerOffline, TargetEnded: the instance or run behind a peer id is over.
        HerdError: a selected peer cannot be written to, or the message was refused. Whatever is raised,
            nothing of the text is on its way, and `field` says which selection it is about.
    """
    bound = _selected(params.text, params.references)
    for one in bound:
        with _telling(one):
            await _require_usable(coordinator, one.to)
    addressed = _addressed(params.text, bound)
    if addressed is None:
        return await _shapes(coordinator, bound)
    with _telling(addressed):
        return await _sent(coordinator, addressed, params)


async def recipient_of(coordinator: "Coordinator", to: str) -> Recipient:
    """Resolve an exact target or peer id that a person selected.

    A target is its session's, whichever instance runs it, or none. A peer id is one instance's, or one run's,
    and never another's; it may be selected where that instance's session, or that run, was shown to this one.

    Raises:
        UnknownTarget: it was not shown to this session, or is this session itself.
        AmbiguousTarget: another session of this machine has the same target.
        PeerOffline: nobody runs as that peer id now.
        TargetEnded: another instance has replaced it, or the run is over.
    """
    if not is_peer_id(to):
        return await coordinator.listing.shown(to)
    record = next((one for one in coordinator.registry.listed() if to in names_of(one)), None)
    if record is not None:
        await coordinator.listing.shown(names_of(record)[0])
        return Recipient(to, record.key)
    with suppress(UnknownTarget):
        return await coordinator.sending.alive(await coordinator.listing.shown(to))
    raise PeerOffline(f"nobody who was shown to this session is {to} now")


def _selected(text: str, selections: "Sequence[SelectedParams]") -> list[Bound]:
    """Join each selection with the reference that it has to hold."""
    unselected = {(one.start, one.end): one for one in parse(text)}
    bound = []
    for number, selection in enumerate(selections):
        field, to = f"references[{number}]", selection.to
        reference = unselected.pop((selection.start, selection.end), None)
        if reference is None:
            held = printable(text[selection.start : selection.end])
            raise InvalidParams(
                f"{field} holds {held!r}: that is no reference of the text, or is selected twice", field=field
            )
        if (is_target(reference.name) or is_peer_id(reference.name)) and reference.name != to:
            raise InvalidParams(f"{field} is bound to {to}, and the text names {reference.name}", field=field)
        bound.append(Bound(field, reference, to))
    return bound


@contextmanager
def _telling(bound: Bound) -> "Iterator[None]":
    """Let a refusal say which selection it is about."""
    try:
        yield
    except HerdError as refusal:
        refusal.details.setdefault("field", bound.field)
        raise


async def _require_usable(coordinator: "Coordinator", to: str) -> None:
    recipient = await recipient_of(coordinator, to)
    await coordinator.sending.require_allowed(recipient.key)
    record = coordinator.carrier.running(recipient.key)
    if record is not None and RECEIVE not in record.capabilities:
        raise CapabilityDenied(f"{to} takes no messages")


def _addressed(text: str, bound: "Sequence[Bound]") -> Bound | None:
    """Give the selection that a text is a message to; None where the text is for the session's own turn."""
    line = text.strip()
    first = next((one for one in bound if one.reference.start == text.index(line)), None)
    if first is None or len(line.splitlines()) > 1:
        return None
    return first if _message(text, first.reference) else None


def _message(text: str, reference: Reference) -> str:
    """Give what is said to the peer that a text begins with; a comma behind the name is not part of it."""
    return text[reference.end :].removeprefix(",").strip()


async def _sent(coordinator: "Coordinator", bound: Bound, params: "ComposeParams") -> Sent:
    require_held(coordinator.capabilities, "session.compose", SEND)  # references alone send nothing
    message = _message(params.text, bound.reference)
    submission = Submission(bound.to, message, call_id=params.call_id, by_person=True)
    # An exact instance need not have been shown itself: that its session was is known by now.
    sent = await coordinator.sending.send(submission, command=is_peer_id(bound.to))
    if sent.row.receipt.state == PENDING and is_peer_id(bound.to):
        await _require_there(coordinator, sent.row.message_id, bound.to)
    return sent


async def _require_there(coordinator: "Coordinator", message_id: str, to: str) -> None:
    """Take a message back whose instance ended while it was sent: it could wait for nobody."""
    try:
        await recipient_of(coordinator, to)
    except HerdError:
        try:
            await coordinator.cancel(message_id)
        except HerdError:
            return  # it may have been accepted before the end, so it counts as sent
        raise


async def _shapes(coordinator: "Coordinator", bound: "Sequence[Bound]") -> list[dict[str, Any]]:
    if not bound:
        return []
    peers = await coordinator.listing.eligible()
    entries = {
        name: entry for peer, entry in zip(peers, entries_of(peers), strict=True) for name in names_of(peer)
    }
    known = await coordinator.mailbox.read(shown.every) or {}
    return [
        {
            **one.reference._asdict(),
            "to": one.to,
            "peer": entries.get(one.to) or _unlisted(one.to, known.get(one.to)),
        }
        for one in bound
    ]


def _unlisted(to: str, known: "Shown | None") -> dict[str, Any]:
    named = {"name": known.name} if known is not None and known.name is not None else {}
    # Of a peer id it is known by now that it is there: it names a run, which no record lists.
    return {"target": to, **named} if is_peer_id(to) else {"target": to, **named, "offline": True}
