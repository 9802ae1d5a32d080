"""How `herd inbox` reads on: its waits, what it asks for, and what it confirms."""

import math
from collections.abc import Sequence
from typing import Any

import pytest

from herd.cli.inbox import _confirm, answers
from herd.cli.whole_texts import whole_texts
from herd.core.errors import UnknownTarget
from herd.core.limits import CONFIRM_MESSAGES, READ_WAIT_MS

EMPTY: dict[str, Any] = {"messages": [], "receipts": [], "cursor": "0", "timed_out": True}


def message(number: int) -> dict[str, Any]:
    return {"message_id": f"m{number}"}


class Mail:
    """Answers one read after the other, and then with nothing."""

    def __init__(self, *waiting: dict[str, Any]) -> None:
        self.waiting = list(waiting)
        self.asked: list[tuple[str, dict[str, Any]]] = []

    def __call__(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        self.asked.append((method, params))
        return self.waiting.pop(0) if self.waiting else EMPTY

    @property
    def waits(self) -> list[int]:
        return [params["wait_ms"] for _, params in self.asked]


def given(mail: Mail, wait_s: float = 0.0, message_id: str | None = None) -> Sequence[dict[str, Any]]:
    return list(answers(mail, message_id, wait_s))


def test_without_a_wait_one_look_is_taken():
    mail = Mail()

    assert given(mail) == [EMPTY]
    assert mail.waits == [0]


def test_what_does_not_fit_into_one_answer_comes_in_the_next_without_waiting():
    first = {**EMPTY, "messages": [message(1)], "more": True}
    second = {**EMPTY, "messages": [message(2)], "more": True}
    last = {**EMPTY, "messages": [message(3)]}
    mail = Mail(first, second, last)

    assert given(mail, wait_s=math.inf) == [first, second, last]
    assert mail.waits == [READ_WAIT_MS, 0, 0]


def test_a_rest_that_turns_out_empty_ends_it_all_the_same():
    first = {**EMPTY, "messages": [message(1)], "more": True}
    mail = Mail(first)

    assert given(mail, wait_s=math.inf)[0] == first
    assert len(mail.asked) == 2


@pytest.mark.parametrize("wait_s", [math.inf, 3_600.0])
def test_a_long_wait_is_made_of_reads_within_their_bound(wait_s: float):
    news = {**EMPTY, "messages": [message(1)]}
    mail = Mail(EMPTY, EMPTY, news)

    assert given(mail, wait_s) == [news]
    assert mail.waits == [READ_WAIT_MS] * 3


def test_a_short_wait_asks_for_no_longer_than_it_lasts():
    mail = Mail({**EMPTY, "receipts": [{"message_id": "r"}]})

    given(mail, wait_s=1.5)

    assert 1_000 < mail.waits[0] <= 1_500


def test_one_message_is_asked_for_by_its_id_alone():
    mail = Mail({**EMPTY, "messages": [message(1)]})

    given(mail, wait_s=math.inf, message_id="m1")

    assert mail.asked == [("session.read", {"message_id": "m1"})]


@pytest.mark.parametrize("count", [0, 1, CONFIRM_MESSAGES, CONFIRM_MESSAGES + 1, 3 * CONFIRM_MESSAGES])
def test_everything_shown_is_confirmed_in_parts_that_one_request_may_name(count: int):
    mail = Mail()
    shown = [message(number) for number in range(count)]

    _confirm(mail, {**EMPTY, "messages": shown}, [one["message_id"] for one in shown])

    parts = [params["message_ids"] for _, params in mail.asked]
    assert [one for part in parts for one in part] == [one["message_id"] for one in shown]
    assert all(1 <= len(part) <= CONFIRM_MESSAGES for part in parts)


def test_receipts_alone_are_confirmed_too():
    mail = Mail()

    _confirm(mail, {**EMPTY, "receipts": [{"message_id": "r"}]}, [])

    assert [params["message_ids"] for _, params in mail.asked] == [[]]


class Paged:
    """Serves one long text in pages; a page may be missing."""

    def __init__(self, text: str, page: int, *, missing_from: int | None = None) -> None:
        self.text, self.page, self.missing_from = text, page, missing_from

    def shown(self, offset: int) -> dict[str, Any]:
        end = offset + self.page
        more = {"next_offset": end} if end < len(self.text) else {}
        return {"message_id": "long", "from": {"target": "t"}, "text": self.text[offset:end], **more}

    def __call__(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        assert (method, params["message_id"]) == ("session.read", "long")
        if self.missing_from is not None and params["offset"] >= self.missing_from:
            raise UnknownTarget("no such message")
        other = {"message_id": "long", "from": {"target": "other"}, "text": "not of this text"}
        return {**EMPTY, "messages": [other, self.shown(params["offset"])]}


def test_a_long_text_is_put_together_page_by_page():
    mail = Paged("abcdefghij", 3)

    answer, whole = whole_texts(mail, {**EMPTY, "messages": [message(1) | {"text": "x"}, mail.shown(0)]})

    assert [one["text"] for one in answer["messages"]] == ["x", "abcdefghij"]
    assert not any("next_offset" in one for one in answer["messages"])
    assert whole == ["m1", "long"]


def test_a_text_that_cannot_be_read_to_its_end_is_marked_and_not_among_the_whole(capsys):
    mail = Paged("abcdefghij", 3, missing_from=6)

    answer, whole = whole_texts(mail, {**EMPTY, "messages": [mail.shown(0), message(1) | {"text": "x"}]})

    assert (answer["messages"][0]["text"], answer["messages"][0]["next_offset"]) == ("abcdef", 6)
    assert whole == ["m1"]
    assert "cannot be read on" in capsys.readouterr().err
