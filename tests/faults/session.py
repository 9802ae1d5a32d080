"""One session through all its lives, and its host, which holds everything it sees against the mailboxes.

Every act is carried on until it is done, whoever dies meanwhile. At every status told and at every death what
is stored must bear out what was said. Ignorant of where a process dies: that is its fate.
"""

import asyncio
import signal
from collections.abc import Iterable
from typing import Any, NamedTuple

from herd.core.identity import SessionName, target_of
from herd.core.paths import Layout
from herd.mail.receipts import ACCEPTED, DELIVERED, PENDING, REJECTED, REPLIED
from tests.faults.forked import DiedError, Process
from tests.faults.forks import Forks
from tests.faults.truth import RANKS, Mail, look

WAIT_MS = 30_000


class Way(NamedTuple):
    """How a story goes on around a death."""

    curious: bool
    """Whether the hosts ask for the status of everything after each act."""
    late: bool
    """Whether the other side goes on for a while before the dead session is started again."""
    forgetful: bool
    """Whether a host that was killed with its session reads again instead of confirming what it had read."""


class Handed(NamedTuple):
    """A message as its host was given it."""

    message_id: str
    text: str
    again: bool
    life: int


class Session:
    """One session through all its lives, and its host.

    Args:
        layout: The folders of the machine.
        forks: Where its processes come from.
        word: Its host's own id of it.
        way: How its host behaves.
    """

    other: "Session"

    def __init__(self, layout: Layout, forks: Forks, word: str, way: Way) -> None:
        self.name = SessionName("claude", word)
        self.target = target_of("lead", self.name.key)
        self.life = 0
        self.sees = False
        """Whether it has been shown the other one."""
        self.sent: list[str] = []
        """The texts in the order in which they were first given to `session.send`."""
        self.record: list[Handed] = []
        """What the host was handed, in that order: its own session file, as it were."""
        self.evidence: set[str] = set()
        """The messages for which the host has said, or begun to say, that it has them."""
        self.told: dict[str, str] = {}
        """What the host was last told of each message it sent."""
        self._layout = layout
        self._forks = forks
        self._way = way
        self.at_death = Mail([], [])
        """What its mailbox held when it last died."""
        self._process: Process | None = None
        self._reading: asyncio.Task[bool] | None = None

    @property
    def process(self) -> Process:
        """Its process, the last one where it has died."""
        assert self._process is not None, "it was started"
        return self._process

    # --- its lives ---------------------------------------------------------------------------------

    async def start(self, **given: Any) -> None:
        """Start a process of it, and carry on until one serves."""
        while True:
            self.life += 1
            self._process = await Process.started(self._forks, self._layout, self.name, **given)
            try:
                await self.process.ask("session.whoami")
            except DiedError:
                await self._mourn()
                given = {}
                continue
            return

    async def end(self) -> bool:
        """End its process in order; False where it was killed on the way."""
        status = await self.process.end()
        if status:
            await self._mourn()
        return not status

    async def killed(self) -> None:
        """Kill its process now, find everything true, and start it again."""
        self.process.fork.kill()
        await self.died()

    async def died(self) -> None:
        """Find everything true at its death, let the other side go on, and start it again."""
        await self._mourn()
        if self._way.late and self.other.sees:
            await self.other.send(f"from {self.other.name.session_id} while the other was dead")
            await self.other.ask_for_all()
        await self.start()

    async def _mourn(self) -> None:
        status = await self.process.gone()
        if self._reading is not None:
            reading, self._reading = self._reading, None
            await reading
        assert status == -signal.SIGKILL, f"it ended by itself with status {status}"
        self.at_death = mine = look(self._layout, self.name)
        theirs = look(self._layout, self.other.name)
        for handed in self.record:
            row = mine.came(handed.message_id)
            assert row is not None, "the host has what the mailbox has not"
            assert row.handovers >= len(self._given(handed.message_id)), "handed over before it was counted"
        for row in mine.inbox:
            if row.state in {DELIVERED, REPLIED}:
                assert row.evidence, "delivered without evidence"
                assert row.message_id in self.evidence, "delivered before the host said that it has it"
            assert theirs.went(row.message_id), "it came and was never committed by its sender"
        for row in theirs.inbox:
            assert mine.went(row.message_id), "it came and was never committed by its sender"
        for message_id, state in self.other.told.items():
            assert RANKS[state] < RANKS[ACCEPTED] or mine.came(message_id), "accepted, and lost by the death"

    # --- sending -----------------------------------------------------------------------------------

    async def send(self, text: str, **more: Any) -> str:
        """Send a text, whoever dies meanwhile, and give its message id."""
        return (await self.send_together([(text, more)]))[0]

    async def send_together(self, messages: Iterable[tuple[str, dict[str, Any]]]) -> list[str]:
        """Send texts without waiting for the answer to one before the next is sent; gives their ids."""
        left = begun_with = list(messages)
        self.sent += [text for text, _ in left]
        self.evidence |= {more["reply_to"] for _, more in left if "reply_to" in more}
        ids: dict[str, str] = {}
        while left:
            begun = [self._begin_to_send(text, more) for text, more in left]
            dead = False
            for (text, _), answer in zip(left, begun, strict=True):
                try:
                    ids[text] = self._answered(await answer)
                except DiedError:
                    dead = True
            if dead:
                await self.died()
                ids |= self._committed(left)
            left = [(text, more) for text, more in left if text not in ids]
        return [ids[text] for text, _ in begun_with]

    def _begin_to_send(self, text: str, more: dict[str, Any]) -> Any:
        return self.process.begin("session.send", target=self.other.target, message=text, **more)

    def _answered(self, answer: dict[str, Any]) -> str:
        message_id = str(answer["message_id"])
        self.learn(message_id, answer["status"])
        return message_id

    def _committed(self, messages: list[tuple[str, dict[str, Any]]]) -> dict[str, str]:
        """Give what was committed of the calls that a death cut off.

        A call that bears a call id is made again all the same, and must turn out to be the same message.
        """
        rows = {row.content: row.message_id for row in self.at_death.outbox}
        stored = [text in rows for text, _ in messages]
        assert stored == sorted(stored, reverse=True), "a later message was committed and an earlier one not"
        settled = {text: rows[text] for text, more in messages if text in rows and "call_id" not in more}
        for message_id in settled.values():
            self.told.setdefault(message_id, PENDING)
        return settled

    # --- reading -----------------------------------------------------------------------------------

    async def receive(self, *texts: str) -> None:
        """Read until the host has these texts."""
        while not set(texts) <= self._had():
            await self._read()

    async def read_once(self, wait_ms: int = 0) -> list[str]:
        """Read once and give the texts; nobody is started again for it."""
        answer = await self._ask("session.read", wait_ms=wait_ms)
        self._take({**answer, "timed_out": False})
        return [message["text"] for message in answer["messages"]]

    async def confirm(self, *texts: str) -> None:
        """Say that the host has these texts, whoever dies meanwhile."""
        while True:
            ids = [one.message_id for one in self.record if one.text in texts]
            self.evidence |= set(ids)
            try:
                await self._ask("session.confirm", message_ids=ids, evidence="its session file")
            except DiedError:
                await self.died()
                await self.receive(*texts)
                continue
            return

    async def until_told(self, states: dict[str, str]) -> None:
        """Read until the host has been told that each of these messages has come so far."""
        while any(RANKS[self.told[one]] < RANKS[state] for one, state in states.items()):
            await self._read()

    async def _read(self) -> None:
        if self._reading is None:
            self._reading = asyncio.create_task(self._read_and_take())
        waited_for: set[asyncio.Future[Any]] = {self._reading, self.other.process.fork.ended}
        await asyncio.wait(waited_for, return_when=asyncio.FIRST_COMPLETED)
        if not self._reading.done():
            await self.other.died()  # nothing may come before it lives again; the read goes on
            return
        reading, self._reading = self._reading, None
        if not await reading:
            await self.died()

    async def _read_and_take(self) -> bool:
        """Read, and take what comes at once, before anything that is answered later; False where it died."""
        try:
            self._take(await self._ask("session.read", wait_ms=WAIT_MS))
        except DiedError:
            return False
        return True

    def _take(self, answer: dict[str, Any]) -> None:
        assert not answer["timed_out"], f"nothing comes any more to {self.name.session_id}"
        came = [self._handed(message) for message in answer["messages"]]
        order = [self.other.sent.index(one.text) for one in came]
        assert order == sorted(order), "out of order"
        for receipt in answer["receipts"]:
            self.learn(receipt["message_id"], receipt["status"])

    def _handed(self, message: dict[str, Any]) -> Handed:
        message_id, again = message["message_id"], message.get("again", False)
        row = self.at_death.came(message_id)
        given = self._given(message_id)
        assert not any(one.life == self.life for one in given), "handed over twice in one life"
        assert row is None or not row.evidence, "handed over again although its evidence was recorded"
        assert again == (row is not None and row.handovers > 0), f"again={again} is not true"
        assert message["text"] in self.other.sent
        assert all(one.text == message["text"] for one in given), "one id with two texts"
        self.record.append(Handed(message_id, message["text"], again, self.life))
        return self.record[-1]

    def _given(self, message_id: str) -> list[Handed]:
        return [one for one in self.record if one.message_id == message_id]

    def _had(self) -> set[str]:
        """Give the texts that the host has, as far as it remembers."""
        if not self._way.forgetful:
            return {one.text for one in self.record}
        proven = {row.message_id for row in self.at_death.inbox if row.evidence}
        return {one.text for one in self.record if one.life == self.life or one.message_id in proven}

    # --- what it is told ---------------------------------------------------------------------------

    def learn(self, message_id: str, state: str) -> None:
        """Take a status that the host was told, and find it true."""
        before = self.told.get(message_id, PENDING)
        assert state != REJECTED, "nobody has refused anything"
        assert RANKS[state] >= RANKS[before], f"{before} was told, and then {state}"
        self.told[message_id] = state
        if RANKS[state] >= RANKS[ACCEPTED]:
            row = look(self._layout, self.other.name).came(message_id)
            assert row is not None, f"{state} was told of a message that is not there"
            if RANKS[state] >= RANKS[DELIVERED]:
                assert row.evidence, f"{state} was told before there was evidence"
                assert message_id in self.other.evidence, f"{state} was told before the host had it"
        if state == REPLIED:
            mine = look(self._layout, self.name)
            assert any(one.reply_to == message_id for one in mine.inbox), "replied was told before the reply"

    async def ask_for_all(self) -> None:
        """Ask for the status of everything sent, and find it true."""
        for message_id in list(self.told):
            try:
                answer = await self._ask("session.status", message_id=message_id)
            except DiedError:
                await self.died()
                continue
            self.learn(message_id, answer["state"])

    async def see(self) -> None:
        """List the peers, so that the other session counts as shown."""
        while True:
            try:
                answer = await self._ask("session.list")
            except DiedError:
                await self.died()
                continue
            assert [peer["target"] for peer in answer["peers"]] == [self.other.target]
            self.sees = True
            return

    async def _ask(self, method: str, **params: Any) -> dict[str, Any]:
        return await self.process.ask(method, **params)
