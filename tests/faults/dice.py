"""Dice for tests that do things at random, so that what they decided can be decided again."""

import random
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def dice() -> Iterator[random.Random]:
    """Give dice of a new seed, which a failure names.

    The order of processes is not decided by dice, so the seed repeats what was tried and not what came of it.
    """
    seed = random.getrandbits(32)
    try:
        yield random.Random(seed)
    except BaseException as fault:
        fault.add_note(f"seed {seed}")
        raise
