"""Sessions whose processes are killed at random instants while their hosts do what comes to their minds.

It owns the hosts, what each of them did and was told, and the account at the end: whatever was sent was
delivered, or refused, and nothing came twice. Ignorant of how a process is started and dies.
"""

import asyncio
import random
import signal
from collections import Counter
from contextlib import suppress
from typing import Any, NamedTuple, Protocol

from herd.core.errors import HerdError, MessageIdConflict
from herd.core.identity import SessionName, target_of
from herd.core.paths import Layout
from herd.mail.receipts import ACCEPTED, DELIVERED, PENDING, REJECTED, REPLIED
from tests.faults.forked import DiedError, Process
from tests.faults.truth import RANKS, Mail, look

KILLED = {-signal.SIGKILL, -signal.SIGALRM, -signal.SIGPROF}
"""How a process may end: by a signal that asks nobody."""

MAY_BE_REFUSED = {"ELIGIBILITY_UNVERIFIED", "UNKNOWN_TARGET"}
"""What a send may be answered: the other one is just starting, or has not been seen yet."""

SENDS_IN_A_LIFE = 3
WAITS_MS = (0, 0, 20, 200)
SETTLE_S = 90.0


class Start(Protocol):
    """Starts the processes of sessions."""

    async def __call__(self, session: SessionName, *, mortal: bool) -> Process:
        """Start one; one that is mortal is killed at a random instant."""
        ...


class Read(NamedTuple):
    """A message that a host was handed."""

    message_id: str
    sender: str
    text: str
    again: bool
    life: int


class Host:
    """One session's host, through all lives of its coordinator.

    Args:
        layout: The folders of the machine.
        session: Its session.
        start: Starts its coordinators.
        dice: Decides what it does.
    """

    def __init__(self, layout: Layout, session: SessionName, start: Start, dice: random.Random) -> None:
        self.session = session
        self.target = target_of("lead", session.key)
        self.others: list[Host] = []
        self.lives = 0
        self.called: dict[str, Host] = {}
        """Every text given to a send, and to whom."""
        self.refused: set[str] = set()
        """The texts of sends that were refused: they must never appear anywhere."""
        self.ids: dict[str, str] = {}
        """The text of every message id that was answered."""
        self.told: dict[str, str] = {}
        self.told_in: dict[str, int] = {}
        self.record: list[Read] = []
        self.evidence: set[str] = set()
        self.recorded: set[str] = set()
        """The messages whose evidence was acknowledged."""
        self._layout = layout
        self._start = start
        self._dice = dice
        self._process: Process | None = None
        self._again: dict[str, tuple[Host, str]] = {}
        self._flying: list[asyncio.Task[None]] = []

    # --- its lives ---------------------------------------------------------------------------------

    async def live(self) -> None:
        """Live one life to its sudden end."""
        self.lives += 1
        self._process = await self._start(self.session, mortal=True)
        try:
            await self._see()
            while True:
                await self._act()
        except DiedError:
            pass
        status = await self._process.gone()
        await asyncio.gather(*self._flying)
        self._flying.clear()
        assert status in KILLED, f"{self.session.session_id} ended by itself with {status}"

    async def live_on(self) -> None:
        """Begin a life that nobody ends."""
        self.lives += 1
        self._process = await self._start(self.session, mortal=False)
        await self._see()

    async def end(self) -> None:
        """End in order."""
        assert self._process is not None, "it lives"
        assert await self._process.end() == 0

    def mail(self) -> Mail:
        """Look into its mailbox."""
        return look(self._layout, self.session)

    # --- what comes to its mind --------------------------------------------------------------------

    async def _act(self) -> None:
        acts = (
            self._send,
            self._send,
            self._repeat,
            self._read,
            self._read,
            self._confirm,
            self._ask_for,
            self._reply,
        )
        await self._dice.choice(acts)()
        if self._dice.random() < 0.02:
            await self._cancel()

    async def _send(self, **more: Any) -> None:
        other = self._dice.choice(self.others)
        text = f"{self.session.session_id} {len(self.called)}"
        if self._dice.random() < 0.5:
            more["call_id"] = text
            self._again[text] = (other, text)
        await self._submit(other, text, **more)

    async def _repeat(self) -> None:
        """Make a call again whose answer never came."""
        for text, (other, call_id) in list(self._again.items()):
            await self._submit(other, text, call_id=call_id)

    async def _submit(self, other: "Host", text: str, **more: Any) -> None:
        self.called[text] = other
        flight = asyncio.create_task(self._submitted(other, text, **more))
        self._flying.append(flight)
        if self._dice.random() < 0.7:
            await flight

    async def _submitted(self, other: "Host", text: str, **more: Any) -> None:
        try:
            answer = await self._ask("session.send", target=other.target, message=text, **more)
        except DiedError:
            return
        except HerdError as refusal:
            if refusal.code not in MAY_BE_REFUSED:
                raise
            if "call_id" not in more:
                self.refused.add(text)
            await self._see()
            return
        self._again.pop(text, None)
        self.ids[answer["message_id"]] = text
        self._learn(answer["message_id"], answer["status"])

    async def _reply(self) -> None:
        if self.record:
            one = self._dice.choice(self.record[-10:])
            other = next(host for host in self.others if host.target == one.sender)
            self.evidence.add(one.message_id)
            text = f"{self.session.session_id} {len(self.called)}"
            await self._submit(other, text, reply_to=one.message_id)

    async def _read(self) -> None:
        await self.read(wait_ms=self._dice.choice(WAITS_MS))
        if self._dice.random() < 0.6:
            await self.confirm()

    async def _confirm(self) -> None:
        await self.confirm()

    async def _ask_for(self) -> None:
        open_ones = [one for one, state in self.told.items() if state not in {REPLIED, REJECTED}]
        if open_ones:
            await self.ask_for(self._dice.choice(open_ones))

    async def _cancel(self) -> None:
        pending = [one for one, state in self.told.items() if RANKS[state] == 0]
        if pending:
            message_id = self._dice.choice(pending)
            try:
                answer = await self._ask("session.cancel", message_id=message_id)
            except MessageIdConflict:
                return  # it is settled, or
            except HerdError:
                return  # cannot be taken back now
            self._learn(message_id, answer["state"])

    # --- what it does on purpose -------------------------------------------------------------------

    async def read(self, **query: Any) -> None:
        """Read, and find what comes true."""
        answer = await self._ask("session.read", **query)
        for message in answer["messages"]:
            self._handed(message)
        for receipt in answer["receipts"]:
            self._learn(receipt["message_id"], receipt["status"])

    async def confirm(self) -> None:
        """Say that the host has everything that it has."""
        ids = list({one.message_id for one in self.record} - self.recorded)[:64]
        self.evidence |= set(ids)
        if ids:
            await self._ask("session.confirm", message_ids=ids, evidence="its session file")
            self.recorded |= set(ids)

    async def ask_for(self, message_id: str) -> None:
        """Ask for a status, and find it true."""
        answer = await self._ask("session.status", message_id=message_id)
        self._learn(message_id, answer["state"])

    async def _see(self) -> None:
        """Have the others shown, as far as they live."""
        with suppress(DiedError):
            await self._ask("session.list")

    async def _ask(self, method: str, **params: Any) -> dict[str, Any]:
        assert self._process is not None, "it lives"
        return await self._process.ask(method, **params)

    # --- what must be true -------------------------------------------------------------------------

    def _handed(self, message: dict[str, Any]) -> None:
        one = Read(
            message["message_id"],
            message["from"]["target"],
            message["text"],
            message.get("again", False),
            self.lives,
        )
        before = [other for other in self.record if other.message_id == one.message_id]
        assert one.message_id not in self.recorded, "given again although its evidence was recorded"
        assert all(other.life < one.life for other in before), "given twice in one life"
        assert one.again or not before, "given again and not marked"
        assert len(before) < 2 or one.again, "given a third time"
        sender = next(host for host in self.others if host.target == one.sender)
        assert sender.called[one.text] is self, "a stranger's text"
        assert one.text not in sender.refused, "refused, and it came"
        self.record.append(one)

    def _learn(self, message_id: str, state: str) -> None:
        before = self.told.get(message_id, PENDING)
        if RANKS[state] < RANKS[before]:
            # Before it is written down only this can be forgotten by a death: the receipt comes again.
            assert (before, state) == (ACCEPTED, PENDING), f"{before} was told of {message_id}, then {state}"
            assert self.told_in[message_id] < self.lives, "less was told than in the same life"
        self.told[message_id], self.told_in[message_id] = state, self.lives
        if state in {DELIVERED, REPLIED}:
            assert any(message_id in other.evidence for other in self.others), (
                f"{state} before the host had it"
            )


class World:
    """The hosts of one machine.

    Args:
        layout: Its folders.
        start: Starts coordinators.
        dice: Decides everything.
        words: The session ids.
    """

    def __init__(self, layout: Layout, start: Start, dice: random.Random, *words: str) -> None:
        self.hosts = [Host(layout, SessionName("claude", word), start, dice) for word in words]
        for one in self.hosts:
            one.others = [other for other in self.hosts if other is not one]
        self._layout = layout

    async def suffer(self, kills: int) -> None:
        """Let the hosts live until their coordinators have been killed so often, all together."""
        left = kills

        async def lives(host: Host) -> None:
            nonlocal left
            while left > 0:
                left -= 1
                await host.live()

        async with asyncio.TaskGroup() as tasks:
            for host in self.hosts:
                tasks.create_task(lives(host))

    async def settle(self) -> None:
        """Let everybody live, and carry on until every message is settled."""
        for host in self.hosts:
            await host.live_on()
        async with asyncio.timeout(SETTLE_S):
            while any(row.state in {PENDING, ACCEPTED} for host in self.hosts for row in host.mail().outbox):
                for host in self.hosts:
                    await self._go_on(host)
        for host in self.hosts:
            await host.end()

    async def _go_on(self, host: Host) -> None:
        await host.read(wait_ms=50)
        had = {one.message_id for one in host.record}
        for row in host.mail().inbox:
            # Handed over twice, and neither answer reached the host: such a message waits for a person.
            if row.state == ACCEPTED and row.handovers >= 2 and row.message_id not in had:
                await host.read(message_id=row.message_id)
        await host.confirm()

    def account(self) -> Counter[str]:
        """Find everything once, in order and as it was told; gives how much became what."""
        mails = {host.target: host.mail() for host in self.hosts}
        counts: Counter[str] = Counter()
        for host in self.hosts:
            sent = mails[host.target].outbox
            self._is_true(host, mails)
            counts["sent"] += len(sent)
            for other in host.others:
                came = [row for row in mails[other.target].inbox if row.sender_key == host.session.key]
                went = [row for row in sent if row.recipient_key == other.session.key]
                assert [row.message_id for row in came] == [
                    row.message_id for row in went if row.state != REJECTED
                ], "lost, twice or out of order"
                assert len({row.message_id for row in came}) == len(came)
                assert [(row.state, row.content) for row in came] == [
                    (row.state, row.content) for row in went if row.state != REJECTED
                ]
                counts["delivered"] += sum(row.state in {DELIVERED, REPLIED} for row in came)
                counts["refused"] += sum(row.state == REJECTED for row in went)
                counts["queued"] += sum(row.state == PENDING for row in went)
        return counts

    def _is_true(self, host: Host, mails: dict[str, Mail]) -> None:
        sent = {row.message_id: row for row in mails[host.target].outbox}
        assert len({row.content for row in sent.values()}) == len(sent), "one call became two messages"
        for message_id, text in host.ids.items():
            assert sent[message_id].content == text, "answered, and not there"
        for message_id, state in host.told.items():
            assert RANKS[sent[message_id].state] >= RANKS[state], "more was told than is true"
        assert not host.refused & {row.content for row in sent.values()}, "refused, and queued"
        order = {row.message_id: number for number, row in enumerate(mails[host.target].inbox)}
        first = [order[one.message_id] for one in host.record if not one.again]
        assert first == sorted(first), "handed over out of order"
        assert set(order) == {one.message_id for one in host.record}, "the host never had it"
