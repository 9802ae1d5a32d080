"""From the inbox to the host: waiting, hand-overs that are counted before they are made, and evidence.

Handing over proves nothing. A message is delivered when evidence says that the host has it; what was handed
over on a connection that ended without evidence is given again, marked so, and after the second time waits
for a person. While a reader still holds a message nobody else is given it.
"""

import asyncio
import itertools
from collections.abc import Callable, Collection, Hashable
from functools import partial
from typing import NamedTuple

from herd.coordinator.authority import Authority
from herd.coordinator.evidence import Ruling
from herd.coordinator.health import Health
from herd.coordinator.holding import Holding, News
from herd.coordinator.rooms import AnswerRoom, Drained, Room, TextRoom
from herd.coordinator.shapes import shape_message, shape_receipt
from herd.coordinator.wholeness import Attachment
from herd.core.clock import Clock, first_of
from herd.core.errors import CapabilityDenied, NoSession, ResourceBusy, TargetEnded, UnknownTarget
from herd.core.limits import DRAIN_CHARACTERS, RECEIPTS_SEEN
from herd.core.moments import Moment
from herd.mail import inbox, whole
from herd.mail.events import Event
from herd.mail.inbox import Incoming
from herd.mail.lifetimes import is_over
from herd.mail.mailbox import Mailbox
from herd.mail.outbox import Outgoing
from herd.mail.receipts import ACCEPTED, EXPIRED, REJECTED
from herd.mail.steps import Step, no_step
from roles.model import Allowed, Denied, Unverified, Verdict, require

__all__ = ["Delivery", "Handed", "Query", "shape_message", "shape_receipt"]


LET_THROUGH = "A person does, at a terminal: `herd inbox --session TARGET --accept`."


class Query(NamedTuple):
    """What a reader asks for; None where it does not narrow."""

    after: int | None = None
    sender: str | None = None
    reply_to: str | None = None
    message_id: str | None = None
    offset: int = 0
    attachment: str | None = None
    wait_ms: int = 0


class Handed(NamedTuple):
    """What a read gives: messages with how often each was handed over before, and changed receipts.

    `expired` are messages that came here and ended undelivered.
    """

    messages: list[Incoming]
    receipts: list[Outgoing]
    cursor: int
    more: bool
    attachment: Attachment | None = None
    """The one file that was asked for, in place of any message."""
    expired: tuple[Event, ...] = ()


class Delivery(Holding):
    """The one place that takes messages out of the inbox.

    Args:
        mailbox: The session's own.
        health: Nothing is handed over while this session is unhealthy.
        judge: Asked about each message again at its delivery, by its sender as acceptance verified it.
        news: Who is told what happens to received messages.
        authority: Holds the lock shared, around each verdict and the count that rests on it.
        clock: Says when.
        step: The fault-test seam.
        run: Whose inbox: a run's; None for the session's own.
    """

    def __init__(
        self,
        mailbox: Mailbox,
        health: Health,
        judge: Callable[[Incoming, Ruling], Verdict],
        news: News,
        *,
        authority: Authority,
        clock: Clock,
        step: Step = no_step,
        run: str | None = None,
    ) -> None:
        super().__init__(mailbox, news, clock=clock, step=step, run=run)
        self._health = health
        self._judge = judge
        self._authority = authority
        self._announced: dict[int, Hashable] = {}
        self._happened = asyncio.Event()
        self._over = False
        self._said: dict[str, str] = {}
        self._uncertain: set[int] = set()

    def end(self) -> None:
        """Answer whoever still waits: this session is no longer served here."""
        self._over = True
        self.arrived()

    def arrived(self) -> None:
        """Wake whoever waits: a message was accepted, or a receipt changed."""
        self._happened.set()
        self._happened = asyncio.Event()

    def waits(self) -> None:
        """Take note that a message waits that did not before: accepted just now, or given back."""
        self.arrived()
        if not self._over:  # a reader may end after the session did, and nobody here hands it on any more
            super().waits()

    async def read(self, reader: Hashable, query: Query, *, person: bool = False) -> Handed:
        """Hand over what waits, or wait for something to come.

        Args:
            reader: Who takes it: the messages stay with it until it confirms, releases, or ends.
            query: What it asks for.
            person: Whether a person reads, who is also given what waits after its last hand-over.

        Raises:
            UnknownTarget: `message_id` names no message of this session.
            ResourceBusy: another reader holds that message.
            CapabilityDenied: that message waits until a person lets it through.
            HerdError: the mailbox cannot be read, or the session is unhealthy.
        """
        deadline = self._clock.elapsed() + query.wait_ms / 1000
        receipts: dict[str, Outgoing] = {}
        expired: dict[int, Event] = {}
        while True:
            happened = self._happened  # before looking, so that nothing committed in between is missed
            handed = await self._take(reader, query, person=person)
            receipts.update((row.message_id, row) for row in handed.receipts)
            expired.update((event.cursor, event) for event in handed.expired)
            left = deadline - self._clock.elapsed()
            if left <= 0 or handed.messages or any(self._is_news(row, query) for row in handed.receipts):
                return handed._replace(receipts=list(receipts.values()), expired=tuple(expired.values()))
            await first_of(happened, self._clock, left)

    def said(self, row: Outgoing) -> None:
        """Note that the answer to a send has told this receipt: nobody who waits need hear it again."""
        self._said.pop(row.message_id, None)
        self._said[row.message_id] = row.receipt.state
        while len(self._said) > RECEIPTS_SEEN:
            del self._said[next(iter(self._said))]

    def _is_news(self, row: Outgoing, query: Query) -> bool:
        """Tell whether a receipt ends a wait: not what was told, nor a step to the answer that is awaited."""
        receipt = row.receipt
        if self._said.get(row.message_id) == receipt.state and receipt.outcome is None:
            return False
        return query.reply_to is None or receipt.state == REJECTED or receipt.outcome is not None

    async def waiting(self, *, review: bool = False) -> tuple[list[Incoming], list[str], bool]:
        """Give what waits, the ids of what cannot be read, and whether there is more; hand nothing over.

        Args:
            review: Whether a person asks, who is also shown what is held back.
        """
        room = AnswerRoom()
        rows = await self._mailbox.read(lambda found: whole.undelivered(found, self._run)) or []
        rows = [row for row in rows if review or not self.is_held_back(row.sequence)]
        rows = [row for row in rows if not self._is_over(row)]
        shown = list(itertools.takewhile(room.takes, rows))
        unreadable = await self._mailbox.read(lambda found: whole.unreadable(found, self._run))
        return shown, unreadable or [], len(shown) < len(rows)

    async def require_let_through(self, message_id: str | None) -> None:
        """Refuse an answer to a message that waits for a person: it would count as read by that.

        Raises:
            CapabilityDenied: it waits.
        """
        if message_id is None or not self._review_to:
            return
        rows = await self._mailbox.read(lambda connection: inbox.by_id(connection, message_id)) or []
        if any(row.receipt.state == ACCEPTED and self.is_held_back(row.sequence) for row in rows):
            raise _waits_for_a_yes(message_id)

    async def held_back(self) -> int:
        """Count what waits for a person to let it through."""
        rows = await self._mailbox.read(inbox.lying) or []
        return sum(self.is_held_back(row.sequence) for row in rows)

    async def set_aside(self) -> list[str]:
        """Give the ids of what was handed over too often in vain, and waits for a person or a call by id."""
        rows = await self._mailbox.read(lambda connection: inbox.lying(connection, self._run)) or []
        return [
            row.message_id
            for row in rows
            if self.waits_for_a_person(row.sequence, row.handovers)
            and not self._wholeness.is_damaged(row.sequence)
        ]

    async def drain(self, reader: Hashable, most: int = DRAIN_CHARACTERS) -> Drained:
        """Hand over what waits as one text for a model, and wait for nothing.

        Args:
            reader: Who takes it, as in `read`.
            most: Characters of the text. A message that alone is longer stays, and the text says so once.

        Raises:
            HerdError: the mailbox cannot be read, or the session is unhealthy.
        """
        self._require_open()

        async def attempt() -> tuple[TextRoom, list[Incoming], bool]:
            room = TextRoom(most, self._announced)
            return room, *await self._handed(reader, Query(), room, person=False)

        async with self._reading:
            room, chosen, more = await self._authority.fresh(attempt)
            if room.announces is not None:
                self._announced[room.announces] = reader
        return Drained(room.text(), [row.message_id for row in chosen], more)

    async def put_back(self, reader: Hashable, message_ids: Collection[str] | None = None) -> None:
        """See `Holding.put_back`; where it names none, what was said of too long ones was not read either."""
        if message_ids is None:
            for number in [one for one, told in self._announced.items() if told == reader]:
                del self._announced[number]
        await super().put_back(reader, message_ids)

    async def unsent(self, reader: Hashable, message_ids: Collection[str]) -> None:
        """Take back an answer that could not be written: its messages, and the receipts told in it."""
        self._told.forget(reader)
        for number in [one for one, told in self._announced.items() if told == reader]:
            del self._announced[number]
        await self.put_back(reader, message_ids)

    async def _undelivered(self) -> list[Incoming]:
        return await self._mailbox.read(lambda connection: inbox.undelivered(connection, self._run)) or []

    def _require_open(self) -> None:
        if self._over and self._run is not None:
            raise TargetEnded(f"the run {self._run} is over")
        if self._over:
            raise NoSession(
                "this session has ended here, or the process was bound to another one", hint="Read again."
            )
        self._health.require()

    async def _take(self, reader: Hashable, query: Query, *, person: bool) -> Handed:
        self._require_open()
        async with self._reading:
            if query.message_id is not None:
                take_one = partial(self._take_one, reader, query.message_id, query)
                return await self._authority.fresh(take_one)
            hand = partial(self._handed, reader, query, person=person)
            chosen, more = await self._authority.fresh(lambda: hand(AnswerRoom()))
            changed = await self._told.changed(
                reader, query.after, message_id=query.reply_to, target=query.sender
            )
            return Handed(
                chosen, changed.receipts, changed.cursor, more or changed.more, expired=changed.expired
            )

    async def _take_one(self, reader: Hashable, message_id: str, query: Query) -> Handed:
        with await self._authority.hold() as ruling:
            rows = await self._mailbox.read(lambda found: inbox.by_id(found, message_id, self._run)) or []
            # What was rejected at its delivery, or is over, is shown to no host.
            chosen = [row for row in rows if _asked_for(row, query) and row.receipt.state != REJECTED]
            over = [row for row in chosen if row.receipt.state == EXPIRED or self._is_over(row)]
            chosen = [row for row in chosen if row not in over]
            if over and not chosen:
                raise UnknownTarget(
                    f"message {message_id} expired before it was delivered",
                    hint="Its sender knows; ask for it anew if it still matters.",
                )
            if chosen and all(row.stripped for row in chosen):
                raise UnknownTarget(
                    f"message {message_id} is {chosen[0].receipt.state}, and its text is removed by now",
                    hint="Raise limits.retention_ms in config.toml to keep texts for longer.",
                )
            chosen = [row for row in chosen if not row.stripped]
            if not chosen:
                raise UnknownTarget(
                    f"no message {message_id} came to this session",
                    hint="Use the message_id that stands over a message.",
                )
            open_ones = [row for row in chosen if row.receipt.state == ACCEPTED]
            for row in open_ones:
                if self.is_held_back(row.sequence):
                    raise _waits_for_a_yes(message_id)
                if self._holders.get(row.sequence, reader) != reader:
                    raise ResourceBusy(f"another reader of this session holds message {message_id} just now")
                require(await self._verdict(row, ruling))
            if query.attachment is not None:
                file = await self._wholeness.attachment(chosen, query.attachment)
                return Handed([], [], await self._told.cursor(), more=False, attachment=file)
            chosen = [await self._wholeness.of(row) for row in chosen]
            await self._hand_over(reader, [row for row in open_ones if row.sequence not in self._holders])
        return Handed(chosen, [], await self._told.cursor(), more=False)

    async def _handed(
        self, reader: Hashable, query: Query, room: Room, *, person: bool
    ) -> tuple[list[Incoming], bool]:
        """Hand over what waits and has room, under the verdicts' lock; tells whether more waits."""
        with await self._authority.hold() as ruling:
            chosen, more = await self._chosen(query, room, ruling, person=person)
            await self._hand_over(reader, chosen)
        return chosen, more

    async def _chosen(
        self, query: Query, room: Room, ruling: Ruling, *, person: bool
    ) -> tuple[list[Incoming], bool]:
        chosen: list[Incoming] = []
        for row in await self._undelivered():
            if not (self._is_free(row, person=person) and _asked_for(row, query)):
                continue
            if self._is_over(row):
                self._news.lapses()
                continue
            if not isinstance(await self._verdict(row, ruling), Allowed):
                continue
            shown = row if row.parts is None else await self._wholeness.or_none(row)
            if shown is None:
                continue
            if not room.takes(shown):
                return chosen, True
            chosen.append(shown)
        return chosen, False

    async def _verdict(self, row: Incoming, ruling: Ruling) -> Verdict:
        """Judge an accepted message as evidence is now; what is denied is rejected for good."""
        verdict = self._judge(row, ruling)
        if isinstance(verdict, Denied):
            now = self._clock.wall_ms()
            refused = await self._mailbox.run(
                lambda connection: inbox.refuse(connection, row.sequence, "ELIGIBILITY_DENIED", now)
            )
            if refused is not None:
                self._news.changed(refused)
        if isinstance(verdict, Unverified):
            self._uncertain.add(row.sequence)
            self._news.uncertain()
        else:
            self._uncertain.discard(row.sequence)
        return verdict

    async def judge_again(self) -> bool:
        """Judge what waits and was uncertain; whoever waits for mail is told of what is certain now.

        Returns:
            Whether something still is uncertain.
        """
        if self._over or not self._uncertain:
            return False
        async with self._reading:
            return await self._authority.fresh(self._judged_again)

    async def _judged_again(self) -> bool:
        before = set(self._uncertain)
        with await self._authority.hold() as ruling:
            rows = [row for row in await self._undelivered() if row.sequence in before]
            self._uncertain &= {row.sequence for row in rows}
            allowed = [row for row in rows if isinstance(await self._verdict(row, ruling), Allowed)]
        if allowed:
            self.waits()
        return bool(self._uncertain)

    def _is_over(self, row: Incoming) -> bool:
        """Tell whether a message has waited for longer than it was good for, and no reader holds it."""
        if row.lifetime_ms is None or row.receipt.state != ACCEPTED or row.sequence in self._holders:
            return False
        return is_over(row, Moment.now(self._clock))

    def _is_free(self, row: Incoming, *, person: bool) -> bool:
        return self.is_free(row.sequence, row.handovers) or (person and row.sequence not in self._holders)


def _waits_for_a_yes(message_id: str) -> CapabilityDenied:
    return CapabilityDenied(f"message {message_id} waits until a person lets it through", hint=LET_THROUGH)


def _asked_for(row: Incoming, query: Query) -> bool:
    return query.sender in {None, row.sender.target} and query.reply_to in {None, row.reply_to}
