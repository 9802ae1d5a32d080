"""Whether this coordinator can write its own state, and what follows when it cannot.

Unhealthy means: the presence is withdrawn, nothing is sent, accepted or handed over, everything queued stays.
The first durable write that succeeds makes it healthy again, under a new claim.
"""

import asyncio
from collections.abc import Awaitable, Callable

from herd.core.backoff import pause_ms
from herd.core.clock import Clock, first_of
from herd.core.errors import HerdError
from herd.core.limits import HEALTH_RETRY_MS, HEALTH_SOONEST_MS


class Health:
    """One coordinator's health.

    Args:
        withdraw: Takes the presence back; called when health is lost.
        restore: Tries a durable write and publishes again; raises, or has a fault observed, while that fails.
        restored: Called once health is back.
        clock: Paces the attempts. There are none while healthy.
        jitter: Gives a number in [0, 1) for each pause.

    Attributes:
        fault: What made it unhealthy; None while it is healthy.
    """

    def __init__(
        self,
        withdraw: Callable[[], None],
        restore: Callable[[], Awaitable[None]],
        restored: Callable[[], None],
        *,
        clock: Clock,
        jitter: Callable[[], float],
    ) -> None:
        self._withdraw = withdraw
        self._restore = restore
        self._restored = restored
        self._clock = clock
        self._jitter = jitter
        self._loop = asyncio.get_running_loop()
        self._lost = asyncio.Event()
        self._sooner = asyncio.Event()
        self._trying = False
        self._again: HerdError | None = None
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
        if fault is None:
            if not self._trying:
                self._sooner.set()
            return
        if self._trying:
            self._again = fault
        elif self.fault is None:
            self.fault = fault
        else:
            # The claim is retired already. To write the record once more would tell everybody who watches the
            # records of a change, ourselves among them, and what is tried then fails like this again.
            return
        self._withdraw()
        self._lost.set()

    def observed_in_thread(self, fault: HerdError) -> None:
        """Take note of a fault from any thread, in the next turn of the loop."""
        self._loop.call_soon_threadsafe(self.observed, fault)

    def hasten(self) -> None:
        """Try again at once."""
        self._sooner.set()

    async def keep(self) -> None:
        """Bring health back whenever it was lost, for as long as the coordinator lives."""
        while True:
            await self._lost.wait()
            attempt, paced_s = 1, 0.0
            while self.fault is not None:
                pause = pause_ms(attempt, self._jitter(), first_ms=HEALTH_RETRY_MS)
                self._sooner.clear()
                # On a disk that is nearly full small writes succeed now and then, and a try that fails may
                # cause some itself, here and at peers. Tries that these hasten must not follow one another at
                # once, nor lengthen the pause, which would soon outlast the want.
                if await first_of(self._sooner, self._clock, pause / 1000):
                    await self._clock.sleep(paced_s)
                else:
                    attempt += 1
                await self._try()
                paced_s = HEALTH_SOONEST_MS / 1000
            self._lost.clear()

    async def _try(self) -> None:
        self._trying, self._again = True, None
        try:
            await self._restore()
        except HerdError as again:
            self._again = again
        except OSError:
            self._again = self.fault
        finally:
            self._trying = False
        # Health and presence come back in one turn of the loop: nobody is refused by a listed session.
        self.fault = self._again
        if self.fault is None:
            self._restored()
