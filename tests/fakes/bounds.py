"""The bounds that most tests run with: those in force by default, but for how much may come at once.

A test tells in milliseconds what sessions tell each other in minutes; what holds a sender back has tests of
its own.
"""

from herd.core.limits import DEFAULT_LIMITS

UNHURRIED = DEFAULT_LIMITS._replace(
    rate_per_second=1_000_000, rate_burst=1_000_000, storage_bytes=1_000_000_000
)
