"""The carrier of this machine: from an outbox to the custody of the recipient, and receipts back."""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import NamedTuple

from herd.coordinator.authority import Authority
from herd.coordinator.connections import Connections, Peer
from herd.coordinator.own import Own
from herd.core.clock import Clock
from herd.core.errors import (
    InvalidParams,
    MessageExpired,
    MessageIdConflict,
    PeerOffline,
    ScopeDenied,
    TargetEnded,
    UnknownTarget,
)
from herd.core.identity import is_peer_id
from herd.core.limits import UPLOADS, Limits
from herd.core.moments import Moment
from herd.core.paths import Layout
from herd.mail.inbox import Admitted, Sender
from herd.mail.lifetimes import left_ms
from herd.mail.outbox import Outgoing
from herd.mail.parts import Bodies
from herd.mail.reach import ConnectionReach, Reach, VisitReach
from herd.mail.receipts import Receipt
from herd.mail.routes import Carried, CarriedTogether
from herd.mail.steps import Step, no_step
from herd.mail.together import fitting
from herd.mail.wire import Envelope
from herd.presence.record import Record
from herd.presence.registry import Registry
from herd.presence.session_file import read_session_file
from roles.evidence import party_on_file

_OVER = "the run that sent this message ended before any mailbox had it"


class Local(NamedTuple):
    """What reaching a session of this machine needs."""

    layout: Layout
    registry: Registry
    connections: Connections
    authority: Authority
    own: Own
    limits: Limits
    clock: Clock
    lives: Callable[[str], bool]
    """Whether a run of this very instance lives."""
    inside: Callable[[Sender], Reach]
    """Gives this session's own custody, for one of those in it."""


class LocalCarrier:
    """Reaches sessions of this data root: by their socket while they run, by a visit while they do not.

    Args:
        local: What reaching one needs.
        bodies: Gives what of a message lies outside its row.
        step: The fault-test seam.
    """

    def __init__(
        self,
        local: Local,
        bodies: Callable[[Outgoing], Awaitable[Bodies | None]],
        *,
        step: Step = no_step,
    ) -> None:
        self._local = local
        self._bodies = bodies
        self._step = step
        self._untouched: set[str] = set()
        self._fresh: dict[str, Bodies] = {}

    def begin(self, message_id: str, bodies: Bodies | None = None) -> None:
        """Note that a message is new: until `carry` hands it to somebody, no mailbox can have it.

        Args:
            message_id: The message.
            bodies: What of it lies outside its row; at its first attempt they need not be read again.
        """
        self._untouched.add(message_id)
        if bodies is not None and len(self._fresh) < UPLOADS:
            self._fresh[message_id] = bodies

    def untouched(self, message_id: str) -> bool:
        """Tell whether surely no mailbox has a message; a former process may have carried what it queued."""
        return message_id in self._untouched

    def end(self, message_id: str) -> None:
        """Forget a message that is settled."""
        self._untouched.discard(message_id)
        self._fresh.pop(message_id, None)

    async def carry(self, message: Outgoing) -> Carried:
        """See `Carrier.carry`."""
        if self._is_orphan(message):
            return Carried(await self._left_over(message))
        reach = await self.reach(message.recipient_key, message.recipient, message)
        bodies = None
        if message.parts is not None:
            bodies = self._fresh.pop(message.message_id, None) or await self._bodies(message)
        envelope = next(self._going([message]))
        self._untouched.discard(message.message_id)
        with self._ending(message):
            receipt = await self._local.authority.fresh(lambda: reach.accept(envelope, bodies))
            return Carried(receipt, reach.running)

    async def carry_together(self, messages: Sequence[Outgoing]) -> CarriedTogether:
        """See `Carrier.carry_together`: one request, or one visit."""
        if self._is_orphan(messages[0]):
            return CarriedTogether((await self._left_over(messages[0]),))
        reach = await self.reach(messages[0].recipient_key, messages[0].recipient, messages[0])
        going = fitting(self._going(messages), self._local.limits.sent_frame_bytes)
        self._untouched.difference_update(envelope.message_id for envelope in going)
        with self._ending(messages[0]):
            together = await self._local.authority.fresh(lambda: reach.accept_together(going))
        return CarriedTogether(together.receipts, reach.running, together.refusal)

    def _going(self, messages: Sequence[Outgoing]) -> Iterator[Envelope]:
        """Give the envelopes of the first messages, up to one whose lifetime is over: it is ended elsewhere.

        Raises:
            MessageExpired: that is the very first one.
        """
        for message in messages:
            left = None
            if message.lifetime_ms is not None:
                left = left_ms(message, Moment.now(self._local.clock))
            if left is not None and left <= 0:
                if message is messages[0]:
                    raise MessageExpired(f"the lifetime of message {message.message_id} is over")
                return
            yield message.envelope(left)

    async def status(self, message: Outgoing) -> Receipt:
        """Ask the recipient's custody about a message.

        Custody is the session's: what one instance accepted, the next one answers for.

        Raises:
            UnknownTarget: it has no such message.
            HerdError: it could not be asked.
        """
        reach = await self.reach(message.recipient_key, message=message)
        return await reach.status(message.message_id, message.recipient, message.digest)

    def running(self, key: str) -> Record | None:
        """Give the record of a session's living instance; None where none lives.

        One stat where a connection to it is open and proved that very record: the process at its other end
        lives. Otherwise the record is read and its lock looked at.
        """
        connection = self._local.connections.open_to(key)
        if connection is not None:
            proved: Peer = connection.principal
            return proved.record
        return self._local.registry.running(key)

    async def reach(self, key: str, name: str | None = None, message: Outgoing | None = None) -> Reach:
        """Give the custody of a session as it can be reached now.

        Args:
            key: The session key.
            name: The exact target or peer id meant; a peer id reaches that one instance, or a run in it, or
                nobody. Whoever runs the session now says so where it is over.
            message: The one that it is about, where a run of this session may have sent it.

        Raises:
            PeerOffline: that instance is over, or the session was never here.
            HerdError: its socket could not be reached or proved.
        """
        local = self._local
        run = message.run if message is not None else None
        sender = local.own.as_sender() if message is None or run is None else Sender(**message.sender)
        if key == local.own.key:
            return local.inside(sender)
        record = self.running(key)
        if record is not None:
            connection = await local.connections.to(record)
            return ConnectionReach(connection, local.limits, run=run, step=self._step)
        if name is not None and is_peer_id(name):
            raise PeerOffline(f"the instance {name} is over")
        return VisitReach(
            local.layout,
            key,
            sender,
            lambda: self._admitted(key),
            limits=local.limits,
            clock=local.clock,
        )

    def _is_orphan(self, message: Outgoing) -> bool:
        """Tell whether a message is from a run that is over: nobody can prove any more that it sends it."""
        return message.run is not None and not self._local.lives(message.run)

    @contextmanager
    def _ending(self, message: Outgoing) -> Iterator[None]:
        """Tell what happened to a message whose run began to close while it was on its way.

        Its recipient asked for the run, and was told that there is none.
        """
        try:
            yield
        except InvalidParams:
            if self._is_orphan(message):
                raise TargetEnded(_OVER) from None
            raise

    async def _left_over(self, message: Outgoing) -> Receipt:
        """Settle what a run left pending: what a mailbox has accepted is accepted, and the rest never goes.

        Raises:
            TargetEnded: no mailbox has it, so it is rejected.
            HerdError: the recipient cannot be asked now.
        """
        over = TargetEnded(_OVER)
        if self.untouched(message.message_id):
            raise over
        try:
            return await self.status(message)
        except (UnknownTarget, MessageIdConflict, ScopeDenied):
            raise over from None

    def _admitted(self, key: str) -> AbstractContextManager[Admitted]:
        """Judge against what is durable about a sleeping session."""
        local = self._local
        party = party_on_file(key, lambda one: read_session_file(local.layout, one))
        return local.authority.allowed(local.own.as_party(), party)
