"""Whether this coordinator can write its own state, and what follows when it cannot.

Unhealthy means: the presence is withdrawn, nothing is sent or accepted, everything queued stays. The first
durable write that succeeds makes it healthy again, under a new claim.
"""

import asyncio
from collections.abc import Awaitable, Callable

from herd.core.backoff import pause_ms
from herd.core.clock import Clock
from herd.core.errors import HerdError
from herd.core.limits import HEALTH_RETRY_MS


class Health:
    """One coordinator's health.

    Args:
        withdraw: Takes the presence back; called once when health is lost.
        restore: Tries a durable write and publishes again; raises while that fails.
        clock: Paces the attempts. There are none while healthy.
        jitter: Gives a number in [0, 1) for each pause.
    """

    def __init__(
        self,
        withdraw: Callable[[], None],
        restore: Callable[[], Awaitable[None]],
        *,
        clock: Clock,
        jitter: Callable[[], float],
    ) -> None:
        self._withdraw = withdraw
        self._restore = restore
        self._clock = clock
        self._jitter = jitter
        self._lost = asyncio.Event()
        self.fault: HerdError | None = None

    def require(self) -> None:
        """Let a healthy coordinator pass.

        Raises:
            HerdError: the fault that made it unhealthy.
        """
        if self.fault is not None:
            raise self.fault

    def observed(self, fault: HerdError | None) -> None:
        """Take note of a durable write: None where it succeeded.

        A success while unhealthy only hastens `restore`, which has to publish before anything else goes on.
        """
        if fault is not None and self.fault is None:
            self.fault = fault
            self._withdraw()
            self._lost.set()

    async def keep(self) -> None:
        """Bring health back whenever it was lost, for as long as the coordinator lives."""
        while True:
            await self._lost.wait()
            attempt = 0
            while self.fault is not None:
                attempt += 1
                pause = pause_ms(attempt, self._jitter(), first_ms=HEALTH_RETRY_MS)
                await self._clock.sleep(pause / 1000)
                await self._try()
            self._lost.clear()

    async def _try(self) -> None:
        fault, self.fault = self.fault, None
        try:
            await self._restore()
        except (HerdError, OSError) as again:
            self.fault = again if isinstance(again, HerdError) else fault
