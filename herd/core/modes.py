"""The refusal of a file or folder whose mode lets others in, with the command that mends it."""

import stat

from herd.core.errors import UnsafeEndpoint


def mode_refused(path: str, mode: int, wanted: int) -> UnsafeEndpoint:
    """Give the refusal.

    Args:
        path: What was found.
        mode: Its mode, as `os.stat` gives it.
        wanted: The permission bits it should have.
    """
    import shlex  # it brings `re` with it, which a listing must not pay for

    return UnsafeEndpoint(
        f"{path} has mode {stat.S_IMODE(mode):04o}, not {wanted:04o}",
        hint=f"If it was always yours alone: chmod {wanted:o} {shlex.quote(path)}",
    )
