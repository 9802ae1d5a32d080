"""What is found out once for all that begins in one turn of the event loop.

Requests that came in one piece begin in one turn. Nothing of ours runs in between that could change what the
first of them found on the disk, and what others change there meanwhile they may as well have changed a moment
later.
"""

import asyncio
from collections.abc import Hashable
from typing import Any


class Turn:
    """Remembers for one turn; who finds something names it by a pair whose first half is its own word."""

    def __init__(self) -> None:
        self._found: dict[Hashable, Any] | None = None

    def found(self) -> dict[Hashable, Any]:
        """Give what was found out in this turn, to look into and to add to; the next one begins anew."""
        if self._found is None:
            self._found = {}
            asyncio.get_running_loop().call_soon(self._end)
        return self._found

    def _end(self) -> None:
        self._found = None
