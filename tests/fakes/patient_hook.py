"""Claude Code's hook with all the time of a busy machine, for tests that are not about its time.

The hook itself gives up after 200 ms, which is right on a person's machine and chance on a test's. Nothing
else of it is changed.
"""

import functools
import tempfile
from pathlib import Path

from herd.hosts.claude import hook

GIVES_UP_S = 0.2
"""Seconds after which the hook itself gives up."""

_PATIENT_S = 20.0


@functools.cache
def patient_hook() -> str:
    """Give the path of the patient program, made once for this process."""
    source = Path(hook.__file__).read_text(encoding="utf-8")
    assert source.count(f"_SECONDS = {GIVES_UP_S}\n") == 1
    program = Path(_made.name) / "hook.py"
    patient = source.replace(f"_SECONDS = {GIVES_UP_S}\n", f"_SECONDS = {_PATIENT_S}\n")
    program.write_text(patient, encoding="utf-8")
    return str(program)


_made = tempfile.TemporaryDirectory(prefix="herd-hook-")
