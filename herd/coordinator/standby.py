"""Waiting for a session that another process holds, without waking up before it is free.

It owns the waiting threads, one for each lock however often it is waited for. Ignorant of sessions.
"""

import asyncio
import threading

from herd.core.errors import HerdError
from herd.core.locks import wait_until_free
from herd.core.refusals import refused


class Standby:
    """Waits for locks.

    A waiting thread cannot be called off, so it is a daemon and is used again by whoever waits for the same
    lock later. It takes the lock shared for an instant when it gets it, which every taker allows for.
    """

    def __init__(self) -> None:
        self._waits: dict[str, asyncio.Future[HerdError | None]] = {}

    async def freed(self, path: str) -> None:
        """Return when nobody holds the lock; another may take it before the caller gets to it.

        Raises:
            HerdError: it cannot be waited for.
        """
        wait = self._waits.get(path)
        if wait is None:
            wait = self._waits[path] = self._begun(path)
        fault = await asyncio.shield(wait)
        if fault is not None:
            raise fault

    def _begun(self, path: str) -> "asyncio.Future[HerdError | None]":
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[HerdError | None] = loop.create_future()

        def tell(fault: HerdError | None) -> None:
            del self._waits[path]
            ended.set_result(fault)

        def wait() -> None:
            fault = _waited(path)
            try:
                loop.call_soon_threadsafe(tell, fault)
            except RuntimeError:
                return  # the process is ending

        threading.Thread(target=wait, name="standby", daemon=True).start()
        return ended


def _waited(path: str) -> HerdError | None:
    try:
        wait_until_free(path)
    except HerdError as fault:
        return fault
    except OSError as fault:
        return refused(f"{path} cannot be waited for", fault, path)
    return None
