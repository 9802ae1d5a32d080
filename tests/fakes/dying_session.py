"""`herd session` that dies by SIGKILL at a named step of a message's life, the first time it gets there.

Run it as `python -m tests.fakes.dying_session STEP` with the arguments of `herd` behind it. All of it but the
step is the real thing.
"""

import asyncio
import os
import signal
import sys
from typing import Any

from herd.cli import session
from herd.cli.context import Context, open_context
from herd.cli.main import build_parser
from herd.coordinator.opening import Opening
from herd.mail.steps import STEPS


class DyingContext(Context):
    """Opens coordinators that die at the step in `step`."""

    step = ""

    def opening(self, *arguments: Any, **named: Any) -> Opening:
        """See `Context.opening`."""
        return super().opening(*arguments, **named)._replace(step=self._died)

    def _died(self, reached: str) -> None:
        if reached == self.step:
            os.kill(os.getpid(), signal.SIGKILL)


def main(step: str, words: list[str]) -> None:
    """Serve until that step, or until the input ends."""
    assert step in STEPS
    DyingContext.step = step
    options = build_parser("session").parse_args(words)
    asyncio.run(session.serve(DyingContext(*open_context(make=True)), options))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
