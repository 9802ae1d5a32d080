"""Two sessions that write to each other while a process of theirs is killed, and what is true at the end."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from herd.core.paths import Layout
from herd.mail.receipts import DELIVERED, REPLIED
from tests.faults.forks import Forks
from tests.faults.session import Session, Way
from tests.faults.truth import long_text, look

CROWD = 12
"""Messages sent at once, of which certainly some go together."""


class Story:
    """Alice and Bob, who live and write.

    Args:
        layout: The folders of their machine.
        alice: Writes first.
        bob: Answers.
        way: How they go on around a death.
    """

    def __init__(self, layout: Layout, alice: Session, bob: Session, way: Way) -> None:
        self.layout = layout
        self.alice = alice
        self.bob = bob
        self._way = way

    async def one_by_one(self, written: Callable[[str], str] = str) -> None:
        """Three questions, each read, confirmed and answered before the next."""
        for number in range(3):
            question, answer = written(f"question {number}"), written(f"answer {number}")
            # One of them is a call that its host does not make again.
            call = {} if number == 1 else {"call_id": f"call-{number}"}
            message_id = await self.alice.send(question, **call)
            await self._exchange(self.bob, [question])
            await self.bob.send(answer, reply_to=message_id, **call)
            await self._exchange(self.alice, [answer])

    async def long(self) -> None:
        """Three questions and answers whose texts go by bodies."""
        await self.one_by_one(long_text)

    async def together(self) -> None:
        """Three questions at once, read and confirmed at once, and answered at once."""
        questions = [(f"question {n}", {} if n == 1 else {"call_id": f"call-{n}"}) for n in range(3)]
        ids = await self.alice.send_together(questions)
        await self._exchange(self.bob, [text for text, _ in questions])
        answers = [(f"answer {n}", {"reply_to": one}) for n, one in enumerate(ids)]
        await self.bob.send_together(answers)
        await self._exchange(self.alice, [text for text, _ in answers])

    async def crowded(self) -> None:
        """So many questions at once that some wait for others and go with them, and as many answers."""
        questions = [(f"question {n}", {} if n % 3 else {"call_id": f"call-{n}"}) for n in range(CROWD)]
        ids = await self.alice.send_together(questions)
        await self._exchange(self.bob, [text for text, _ in questions])
        answers = [(f"answer {n}", {"reply_to": one}) for n, one in enumerate(ids)]
        await self.bob.send_together(answers)
        await self._exchange(self.alice, [text for text, _ in answers])

    async def settle(self) -> None:
        """Carry on until each side has everything, and both know it."""
        while True:
            sent = len(self.alice.sent), len(self.bob.sent)
            for one in (self.alice, self.bob):
                await one.receive(*one.other.sent)
                await one.confirm(*one.other.sent)
            if sent == (len(self.alice.sent), len(self.bob.sent)):
                await self._until_both_know()
            if sent == (len(self.alice.sent), len(self.bob.sent)):
                return  # nobody has died meanwhile, and so nobody wrote anything more

    async def _until_both_know(self) -> None:
        # Of what is sent now: what is sent because of a death on the way has not been read yet.
        wanted = {one: self._states_to_come(one) for one in (self.alice, self.bob)}
        for one, states in wanted.items():
            await one.until_told(states)
            await one.ask_for_all()

    def _states_to_come(self, one: Session) -> dict[str, str]:
        answered = {row.reply_to for row in look(self.layout, one.name).inbox}
        return {message_id: REPLIED if message_id in answered else DELIVERED for message_id in one.told}

    async def end(self) -> None:
        """End both in order, and find that everything came once, in order, and is known."""
        for one in (self.alice, self.bob):
            while not await one.end():
                await one.start()
                await self.settle()
        for one in (self.alice, self.bob):
            self._is_whole(one)

    def _is_whole(self, sender: Session) -> None:
        sent, came = look(self.layout, sender.name).outbox, look(self.layout, sender.other.name).inbox
        assert [row.content for row in sent] == sender.sent
        assert [row.content for row in came] == sender.sent
        assert [row.message_id for row in came] == [row.message_id for row in sent]
        first: dict[str, str] = {}
        for handed in sender.other.record:
            first.setdefault(handed.message_id, handed.text)
        assert list(first.values()) == sender.sent, "handed over out of order"
        for there, here in zip(came, sent, strict=True):
            assert here.state == there.state == sender.told[here.message_id]
            assert not there.owed, "the receipt was not told to its end"
            assert 1 <= there.handovers <= 2

    async def _exchange(self, reader: Session, texts: list[str]) -> None:
        await reader.receive(*texts)
        await self._look_around()
        await reader.confirm(*texts)
        await self._look_around()

    async def _look_around(self) -> None:
        if self._way.curious:
            await self.alice.ask_for_all()
            await self.bob.ask_for_all()


@asynccontextmanager
async def begun(
    layout: Layout, forks: Forks, way: Way, *, fate_of_alice: Any = None, fate_of_bob: Any = None
) -> AsyncIterator[Story]:
    """Start a story; at the end of the block it must be told to its end."""
    alice, bob = (Session(layout, forks, word, way) for word in ("alice", "bob"))
    alice.other, bob.other = bob, alice
    await alice.start(fate=fate_of_alice)
    await bob.start(fate=fate_of_bob)
    for one in (alice, bob):
        await one.see()
    story = Story(layout, alice, bob, way)
    yield story
    await story.settle()
    await story.end()
