"""The parts of one session's coordinator, made and joined.

What they tell each other goes through the coordinator. This owns who knows whom and nothing else: no part is
asked anything here.
"""

import asyncio
import os
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable

from herd.coordinator.asking import Asking
from herd.coordinator.attaching import Attaching
from herd.coordinator.attention import Attention
from herd.coordinator.authority import Authority
from herd.coordinator.carrier import Local, LocalCarrier
from herd.coordinator.connections import Connections, Peer
from herd.coordinator.delivery import Delivery
from herd.coordinator.evidence import Ruling
from herd.coordinator.expiring import Expiring
from herd.coordinator.health import Health
from herd.coordinator.holding import News
from herd.coordinator.journal import Journal
from herd.coordinator.keeping import Keeping
from herd.coordinator.lanes import Lanes
from herd.coordinator.listening import Listening
from herd.coordinator.listing import Listing
from herd.coordinator.opening import Opening
from herd.coordinator.owing import Owing
from herd.coordinator.own import Own, party_of
from herd.coordinator.peers import Inner, PeerHandler
from herd.coordinator.records import Records
from herd.coordinator.registering import Registering
from herd.coordinator.rejudging import Rejudging
from herd.coordinator.runs.directories import Directories
from herd.coordinator.runs.inside import InsideReach
from herd.coordinator.runs.others import ListedRuns
from herd.coordinator.runs.runs import Runs
from herd.coordinator.sending import Sending
from herd.coordinator.tasks import Tasks
from herd.coordinator.thread import Thread
from herd.coordinator.undrained import Undrained
from herd.coordinator.waiting import Waiting
from herd.core.config import IDLE_AUTO
from herd.core.identity import DEFAULT_TERMINAL, TERMINAL, generated_name
from herd.core.moments import Moment
from herd.mail import outbox
from herd.mail.inbox import Incoming
from herd.mail.mailbox import Mailbox
from herd.mail.outbox import Outgoing
from herd.mail.parts import Bodies
from herd.mail.rates import Rates
from herd.mail.routes import Progress, Routes
from herd.mail.uploads import Uploads
from herd.presence.record import clipped
from herd.presence.registry import Registry
from herd.presence.session_file import SessionFile
from herd.rpc.handshake import Identity, KeyPair, NonceMemory
from roles.model import Allowed, Folder, Verdict


class Joined(ABC):
    """The parts, and what they call when something has happened."""

    def __init__(self, opening: Opening, file: SessionFile, tasks: Tasks) -> None:
        self.opening = opening
        self.tasks = tasks
        self.own = Own(
            opening.session,
            kind=file.kind,
            role=file.role,
            instance_id=str(uuid.uuid4()),
            socket=opening.place.socket,
            name=clipped(opening.name) or _name_for(opening),
            extent=file.extent,
            folder=Folder(opening.cwd, opening.place.workspace_id),
        )
        self.identity = Identity(self.own.instance_id, KeyPair.generate())
        self.nonces = NonceMemory(opening.clock)
        self.registry = Registry(opening.layout)
        self._join_surroundings()
        self._join_mail(file)
        self._join_carrying()
        self._join_sending()

    @abstractmethod
    def withdraw(self) -> None:
        """Take the presence back."""

    @abstractmethod
    def renew(self) -> None:
        """Put this session on record again where its record was removed."""

    @abstractmethod
    async def restore(self) -> None:
        """Write durably and publish again; raises, or has a fault observed, while either fails."""

    @abstractmethod
    def restored(self) -> None:
        """Go on after health has come back."""

    @abstractmethod
    def retry(self) -> None:
        """Try at once whatever waits for somebody to come back."""

    @abstractmethod
    async def accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve whoever knocks."""

    @abstractmethod
    def connected(self, peer: Peer) -> None:
        """Take note of a newly proved peer."""

    @abstractmethod
    def row_changed(self, row: Incoming) -> None:
        """Take note of a received message whose receipt changed."""

    @abstractmethod
    def progressed(self, progress: Progress) -> None:
        """Take note of what became of a sent message, before it is written down."""

    @abstractmethod
    def recorded(self, row: Outgoing) -> None:
        """Take note of what became of a sent message, now that it is written down."""

    @abstractmethod
    def folder(self) -> str:
        """Give the session's working directory as its host last named it."""

    @abstractmethod
    def show_undrained(self, since: int | None) -> None:
        """Show since when mail has waited for the host, in milliseconds since the epoch."""

    @abstractmethod
    def show_runs(self, *, some: bool) -> None:
        """Show whether this session has runs."""

    @abstractmethod
    def undrained_at(self, key: str, accepted_ms: int = 0) -> int | None:
        """Give the minutes for which a running session's host has left mail lying; None where it has not."""

    @abstractmethod
    def learnt(self, row: Outgoing) -> None:
        """Take note of what was asked about a sent message and is written down."""

    def peer_handler(self, *, dialled: bool) -> PeerHandler:
        """Make what answers the other end of one connection."""
        return PeerHandler(self._inner(), self.connections, dialled=dialled)

    @property
    def wakes_per_hour(self) -> int:
        """Wakes allowed in an hour; 0 where the person wants none."""
        return self.opening.limits.wakes_per_hour if self.opening.idle == IDLE_AUTO else 0

    def listing_of(self, own: Own) -> Listing:
        """Make what lists and resolves for this session, or for a run of it."""
        clock = self.opening.clock
        return Listing(
            self.opening.layout, self.registry, self.authority, own, self.mailbox, clock, self.others
        )

    def sending_of(
        self,
        own: Own,
        listing: Listing,
        thread: Thread,
        evidenced: Callable[[list[Incoming]], None],
    ) -> Sending:
        """Make what sends for this session, or for a run of it."""
        return Sending(
            self.opening.layout,
            self.authority,
            own,
            self.mailbox,
            listing,
            self.others,
            self.health,
            self.carrier,
            self.routes,
            thread,
            Attaching(self.mailbox, self.opening.limits, self.folder),
            evidenced=evidenced,
            mortal=self.lapses,
            limits=self.opening.limits,
            clock=self.opening.clock,
            step=self.opening.step,
        )

    def judged(self, row: Incoming, ruling: Ruling) -> Verdict:
        """Judge a received message as evidence is now; who is inside this session writes to all in it."""
        if row.sender.key == self.own.key:
            return Allowed()
        return ruling.verdict(party_of(row.sender), self.own.as_party(), reply=row.reply_to is not None)

    def _inner(self) -> Inner:
        return Inner(
            own=self.own,
            identity=self.identity,
            nonces=self.nonces,
            registry=self.registry,
            layout=self.opening.layout,
            capabilities=self.opening.capabilities,
            authority=self.authority,
            mailbox=self.mailbox,
            delivery=self.delivery,
            expiring=self.expiring,
            thread=self.thread,
            health=self.health,
            runs=self.runs,
            tasks=self.tasks,
            taking=self.taking,
            uploads=self.uploads,
            limits=self.opening.limits,
            rates=self.rates,
            clock=self.opening.clock,
            progressed=self.progressed,
            recorded=self.recorded,
            step=self.opening.step,
        )

    def _join_surroundings(self) -> None:
        opening = self.opening
        clock, jitter = opening.clock, opening.jitter
        self.taking = Lanes()
        self.uploads = Uploads(opening.limits, clock)
        self.health = Health(self.withdraw, self.restore, self.restored, clock=clock, jitter=jitter)
        self.authority = Authority(
            opening.layout, opening.judge, opening.groups, self.health.observed_in_thread, clock=clock
        )
        self.waiting = Waiting(opening.layout.peers, self.retry, clock=clock)
        self.listening = Listening(
            opening.layout, self.own.instance_id, opening.limits, self.accepted, clock=clock, jitter=jitter
        )
        self.connections = Connections(
            self.identity,
            self.nonces,
            self.registry,
            lambda: self.peer_handler(dialled=True),
            self.tasks,
            limits=opening.limits,
            connected=self.connected,
            unknown=self.renew,
        )

    def _join_mail(self, file: SessionFile) -> None:
        opening = self.opening
        clock, step = opening.clock, opening.step
        self.mailbox = Mailbox(opening.layout, file, health=self.health.observed, step=step)
        self.rates = Rates(opening.limits)
        self.thread = Thread(opening.limits.automatic_replies)
        self.journal = Journal(self.mailbox, self.tasks)
        self.delivery = Delivery(
            self.mailbox,
            self.health,
            self.judged,
            News(self.row_changed, self._waits, self._handed, self.lapses, self.uncertain),
            authority=self.authority,
            clock=clock,
            step=step,
        )
        self.records = Records(
            self.mailbox,
            self.own.instance_id,
            held=self.delivery.is_held,
            removed=self.row_changed,
            clock=clock,
        )
        self.keeping = Keeping(
            self.mailbox, self.tasks, clock=clock, retention_ms=opening.limits.retention_ms
        )
        self.undrained = Undrained(
            self.mailbox,
            self.delivery.waits_for_a_person,
            self.tasks,
            clock=clock,
            show=self.show_undrained,
        )
        self.attention = Attention(
            self.mailbox,
            self.health,
            self.delivery.is_free,
            self.delivery.is_held_back,
            self.thread,
            self.tasks,
            clock=clock,
            wakes_per_hour=self.wakes_per_hour,
            deepest=opening.limits.automatic_replies,
        )
        self.others = ListedRuns(
            self.own,
            lambda: self.runs,
            lambda: self.registry.record(self.own.key),
            Directories(self.connections),
        )
        self.listing = self.listing_of(self.own)

    def _join_carrying(self) -> None:
        opening = self.opening
        clock, jitter, step = opening.clock, opening.jitter, opening.step
        local = Local(
            opening.layout,
            self.registry,
            self.connections,
            self.authority,
            self.own,
            opening.limits,
            clock,
            lives=self._lives,
            inside=lambda sender: InsideReach(self._inner(), sender),
        )
        self.carrier = LocalCarrier(local, self._bodies_of, step=step)
        self.routes = Routes(
            self.mailbox,
            self.carrier,
            self.tasks,
            clock=clock,
            changed=self.progressed,
            recorded=self.recorded,
            waits=self.waiting.begin,
            jitter=jitter,
            step=step,
        )
        self.owing = Owing(
            self.mailbox,
            self.carrier.reach,
            self.tasks,
            clock=clock,
            waits=self.waiting.begin,
            jitter=jitter,
            step=step,
        )

    def _join_sending(self) -> None:
        opening = self.opening
        self.registering = Registering(opening.layout, self.mailbox, opening.limits, self.folder)
        self.sending = self.sending_of(self.own, self.listing, self.thread, self.delivery.settled)
        self.asking = Asking(
            self.mailbox, self.carrier, self.routes, recorded=self.learnt, clock=opening.clock
        )
        self.runs = Runs(
            self, opening.capabilities, published=lambda: self.show_runs(some=len(self.runs) > 0)
        )
        self.rejudging = Rejudging(self._judge_again, self.tasks, clock=opening.clock, jitter=opening.jitter)
        self.expiring = Expiring(
            self.mailbox,
            self._end_lapsed,
            self.asking.expire,
            self.tasks,
            clock=opening.clock,
            waits=self.waiting.begin,
            jitter=opening.jitter,
        )

    def uncertain(self) -> None:
        """Take note that a received message waits whose verdict is not certain now."""
        self.rejudging.begin()

    async def _judge_again(self) -> bool:
        deliveries = [self.delivery, *(live.delivery for live in self.runs.all_parts())]
        return any([await delivery.judge_again() for delivery in deliveries])

    def lapses(self) -> None:
        """Take note that a message with a lifetime is new, or that one may be over."""
        self.expiring.look()

    async def _end_lapsed(self, now: Moment) -> int | None:
        """End what has come for the session or its runs and is over; gives when the next is due."""
        deliveries = [self.delivery, *(live.delivery for live in self.runs.all_parts())]
        dues = [await delivery.end_lapsed(now) for delivery in deliveries]
        return min((due for due in dues if due is not None), default=None)

    def _lives(self, peer_id: str) -> bool:
        return self.runs.lives(peer_id)

    async def _bodies_of(self, row: Outgoing) -> Bodies | None:
        return await self.mailbox.run(lambda connection: outbox.bodies_of(connection, row))

    def _waits(self) -> None:
        self.records.changed()
        self.journal.happened()
        self.undrained.waits()
        self.attention.look()

    def _handed(self, rows: list[Incoming]) -> None:
        self.thread.handed(rows)
        self.undrained.handed()
        self.attention.fewer()
        self.records.changed()


def _name_for(opening: Opening) -> str:
    if opening.session.host != TERMINAL:
        return opening.alias or generated_name(os.path.basename(opening.cwd.rstrip("/")), opening.session.key)
    default = opening.session.session_id == DEFAULT_TERMINAL
    return TERMINAL if default else opening.session.session_id
