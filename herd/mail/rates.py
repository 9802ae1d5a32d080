"""How much one sender may hand in: each has a bucket of tokens, and a message that is taken costs one.

A bucket is full at first and after a quiet time. What was taken before this process began to count is read
from the rows of the inbox: so neither a restart, nor a visit to a session that sleeps, nor forgetting the
bucket of a sender gives anybody another burst.
"""

import sqlite3
from collections import OrderedDict
from collections.abc import Iterable
from typing import NamedTuple

from herd.core.errors import RateLimited
from herd.core.limits import RATE_ROWS, RATE_SENDERS, Limits
from herd.core.moments import Moment

_TOKEN = 1_000
"""Parts of a token: a bucket gains in one millisecond as many of them as messages are taken in a second."""


class Bucket(NamedTuple):
    """What a sender has left, in parts of a token, and when that was so; None for full."""

    level: int
    at: Moment | None = None


def filled(bucket: Bucket, now: Moment, limits: Limits) -> Bucket:
    """Give a bucket as it is by now."""
    whole = limits.rate_burst * _TOKEN
    if bucket.at is None:
        return Bucket(whole, now)
    return Bucket(min(whole, bucket.level + now.since(bucket.at) * limits.rate_per_second), now)


def missing_ms(bucket: Bucket, limits: Limits) -> int:
    """Give the milliseconds until a bucket holds a token; 0 where it does."""
    return max(0, -((bucket.level - _TOKEN) // limits.rate_per_second))


def replayed(taken: Iterable[Moment], limits: Limits) -> Bucket:
    """Give the bucket of a sender of whom messages were taken at these moments, earliest first."""
    bucket = Bucket(0)
    for moment in taken:
        level = filled(bucket, moment, limits).level
        bucket = Bucket(max(0, level - _TOKEN), moment)
    return bucket


class Rates:
    """The buckets of the senders that were heard last, at most `RATE_SENDERS` of them.

    Args:
        limits: The bounds in force.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._buckets: OrderedDict[str, Bucket] = OrderedDict()

    def __len__(self) -> int:
        return len(self._buckets)

    def take(self, connection: sqlite3.Connection, sender_key: str, now: Moment) -> None:
        """Take a token of a sender, whose message is about to be stored.

        A commit that fails afterwards leaves it taken, which only makes the sender's next try wait.

        Raises:
            RateLimited: it has none; `retry_after_ms` says when it has one again.
        """
        known = self._buckets.pop(sender_key, None)
        before = replayed(_taken(connection, sender_key), self._limits) if known is None else known
        bucket = filled(before, now, self._limits)
        wait_ms = missing_ms(bucket, self._limits)
        self._buckets[sender_key] = bucket if wait_ms else bucket._replace(level=bucket.level - _TOKEN)
        if len(self._buckets) > RATE_SENDERS:
            self._buckets.popitem(last=False)
        if wait_ms:
            raise RateLimited(
                f"more than {self._limits.rate_burst} messages at once came from this session, or more than "
                f"{self._limits.rate_per_second} a second",
                retry_after_ms=wait_ms,
            )


def _taken(connection: sqlite3.Connection, sender_key: str) -> list[Moment]:
    rows = connection.execute(
        "SELECT since FROM inbox WHERE sequence > (SELECT coalesce(max(sequence), 0) FROM inbox) - ?"
        " AND sender_key = ? AND since IS NOT NULL ORDER BY sequence",
        (RATE_ROWS, sender_key),
    )
    return [moment for (text,) in rows if (moment := _read(text)) is not None]


def _read(text: str) -> Moment | None:
    try:
        return Moment.read(text)
    except ValueError:
        return None  # a damaged row is no reason to keep its sender out
