"""Ending in order when the system or the host says so."""

import asyncio
import signal

_ENDING = (signal.SIGTERM, signal.SIGHUP)


def end_on_signals() -> None:
    """Cancel the calling task at the first SIGTERM or SIGHUP; a second one ends the process at once."""
    loop, serving = asyncio.get_running_loop(), asyncio.current_task()
    assert serving is not None, "it is called in a task"

    def end() -> None:
        for number in _ENDING:
            loop.remove_signal_handler(number)
        serving.cancel()

    for number in _ENDING:
        loop.add_signal_handler(number, end)
