"""Asking a host's own program something, bounded in time and output, and without touching the person's files.

The program gets a private folder with copies of its files: such programs rewrite what they read. It knows no
host.
"""

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import NamedTuple

from herd.core.files import private_folder
from herd.core.limits import HOST_ANSWER_BYTES, HOST_ANSWER_S
from herd.core.processes import start_token

_PREFIX = ".ask-"


class Answer(NamedTuple):
    """What a program said."""

    status: int | None
    """Its exit status; None where it did not end in time."""
    text: str
    """Standard output and standard error as they came."""


def program_path(program: str, environ: Mapping[str, str]) -> str | None:
    """Find a host's program on the search path; None where it is not there."""
    return shutil.which(program, path=environ.get("PATH", os.defpath))


@contextmanager
def copies(folder: str, files: Mapping[str, bytes]) -> Iterator[str]:
    """Give a private folder that holds copies of files, and remove it with all that was made in it.

    Args:
        folder: Where it is made.
        files: Contents by their paths below it.
    """
    _sweep(private_folder(folder))
    place = tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-", dir=folder)
    try:
        for name, content in files.items():
            path = os.path.join(place, name)
            os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
            with open(path, "xb") as file:
                file.write(content)
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _sweep(folder: str) -> None:
    """Remove what a killed run left: it holds what the person's files hold."""
    for name in os.listdir(folder):
        pid = name.removeprefix(_PREFIX).partition("-")[0]
        if name.startswith(_PREFIX) and pid.isdecimal() and start_token(int(pid)) is None:
            shutil.rmtree(os.path.join(folder, name), ignore_errors=True)


def ask(
    words: Sequence[str], child_environment: Mapping[str, str], cwd: str, wait_s: float = HOST_ANSWER_S
) -> Answer:
    """Run a program to its end, in a process group of its own, without standard input.

    One that cannot be started has said why.

    Args:
        words: The program and its arguments.
        child_environment: All of its variables.
        cwd: Where it runs.
        wait_s: Seconds that it is given.
    """
    with tempfile.TemporaryFile(dir=cwd) as said:
        try:
            child = subprocess.Popen(
                list(words),
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                cwd=cwd,
                env=dict(child_environment),
                start_new_session=True,
            )
        except OSError as fault:
            return Answer(-1, f"{words[0]} cannot be started: {fault.strerror}")
        status = None
        try:
            with suppress(subprocess.TimeoutExpired):
                status = child.wait(wait_s)
        finally:
            with suppress(ProcessLookupError):  # what it started may outlive it
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
        return Answer(status, os.pread(said.fileno(), HOST_ANSWER_BYTES, 0).decode("utf-8", "replace"))
