"""How long to wait before another try: pure, since the number of tries lives in the mailbox."""

from herd.core.limits import RETRY_FIRST_MS, RETRY_GREATEST_MS


def pause_ms(
    attempt: int,
    jitter: float,
    *,
    first_ms: int = RETRY_FIRST_MS,
    greatest_ms: int = RETRY_GREATEST_MS,
    at_least_ms: int = 0,
) -> int:
    """Give the pause after a failed try; it doubles with each try up to a greatest one.

    Args:
        attempt: How many tries have failed, from 1.
        jitter: A random number from 0 up to, not including, 1; it scales the pause into 50 to 100 % of
            itself, so that many who failed together do not come back together.
        first_ms: Pause after the first failure, in milliseconds.
        greatest_ms: Greatest pause, in milliseconds.
        at_least_ms: What the other side asked for, in milliseconds; it also overrides `greatest_ms`.

    Returns:
        Milliseconds.

    Raises:
        ValueError: `attempt` is below 1 or `jitter` is outside its range.
    """
    if attempt < 1 or not 0 <= jitter < 1:
        raise ValueError(f"attempt {attempt} or jitter {jitter} is out of range")
    # More doublings than the greatest pause has bits change nothing, and a huge shift would take all memory.
    doublings = min(attempt - 1, greatest_ms.bit_length())
    whole = min(first_ms << doublings, greatest_ms)
    return max(whole - int(whole * (1 - jitter) / 2), at_least_ms)
