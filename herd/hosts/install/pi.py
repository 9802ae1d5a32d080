"""Pi: its one file of ours, the extension `herd.ts`, and what its program says about it.

The file lies in the folder `extensions` of Pi's agent folder: `~/.pi/agent`, or `PI_CODING_AGENT_DIR`. Its
last line holds a digest of all above, which tells our own text from one that a person has changed.
"""

import hashlib
import os
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from herd.core import config
from herd.core.config import Settings
from herd.core.errors import InvalidParams, ResourceBusy
from herd.core.text import printable
from herd.hosts.install.asking import ask, copies, program_path
from herd.hosts.install.host import Finding, Guard, Host
from herd.hosts.install.wanted import Put
from herd.hosts.pi.files import MARKER, extension_text

_DIGEST = b"// Digest of all above, by which Herd knows its own text: "
_ANNOUNCEMENT = "herd: this extension was loaded"
_NO_SUCH_MODEL = "herd-asks-whether-its-extension-loads"


class ExtensionTarget(NamedTuple):
    """The extension; see `host.Target`."""

    part: str
    path: str
    text: bytes
    """What this version writes."""
    force: bool
    """Whether a person's changes of it give way."""
    guard: Guard | None = None

    def at(self, path: str) -> "ExtensionTarget":
        """See `Target.at`."""
        return self._replace(path=path)

    def written(self, content: bytes | None) -> tuple[bytes, list[Put]]:
        """See `Target.written`.

        Raises:
            ResourceBusy: the file is not Herd's.
        """
        if content is None or content == self.text:
            return self.text, []
        if not _is_ours(content):
            raise ResourceBusy(
                f"{self.path} is there and not Herd's; no file was changed",
                hint="Rename it, if it is to stay, or remove it; then run it again.",
            )
        return (content if self.is_kept(content) else self.text), []

    def taken_out(self, content: bytes, puts: Sequence[Put], *, ours_alone: bool) -> bytes | None:  # noqa: ARG002
        """See `Target.taken_out`."""
        return content if not _is_ours(content) or self.is_kept(content) else None

    def remarks(self, content: bytes) -> list[str]:
        """See `Target.remarks`."""
        if self.is_kept(content):
            return [f"{self.path} was changed by somebody, and is kept as it is without --force"]
        return []

    def is_kept(self, content: bytes) -> bool:
        """See `Target.is_kept`."""
        return _is_ours(content) and _is_edited(content) and not self.force


def host(command: str, environ: Mapping[str, str], settings: Settings, work: str, *, force: bool) -> Host:
    """Describe Pi as it is installed for this user.

    Args:
        command: The absolute path of the command `herd`.
        environ: The variables.
        settings: Herd's own settings, for its data root.
        work: A folder of ours for copies while the program is asked.
        force: Whether a person's changes of our extension give way.

    Raises:
        InvalidParams: `PI_CODING_AGENT_DIR` is not absolute; the message names it.
    """
    path = os.path.join(_agent_folder(environ), "extensions", "herd.ts")
    text = signed(extension_text(command, environ))
    return Host(
        name="pi",
        title="Pi",
        program="pi",
        command=command,
        targets=(ExtensionTarget("extension", path, text, force),),
        ask=lambda files: _asked(environ, settings, work, files),
    )


def signed(text: str) -> bytes:
    """Give the extension with its digest as the last line."""
    content = text.encode() if text.endswith("\n") else f"{text}\n".encode()
    return content + _DIGEST + hashlib.sha256(content).hexdigest().encode() + b"\n"


def _is_ours(content: bytes) -> bool:
    return content.startswith(MARKER.encode())


def _is_edited(content: bytes) -> bool:
    above, sign, digest = content.rpartition(_DIGEST)
    return not sign or digest != hashlib.sha256(above).hexdigest().encode() + b"\n"


def _agent_folder(environ: Mapping[str, str]) -> str:
    chosen = environ.get("PI_CODING_AGENT_DIR")
    home = config.user_home(environ)
    if not chosen:
        return os.path.join(home, ".pi", "agent")
    if chosen == "~" or chosen.startswith("~/"):
        return os.path.join(home, chosen[2:]) if chosen[2:] else home
    if not chosen.startswith("/"):
        raise InvalidParams(
            f"PI_CODING_AGENT_DIR is {chosen!r}, which is not absolute: Pi then reads other files in every "
            "folder that it is started in",
            hint="Set it to an absolute path, or unset it.",
        )
    return chosen


def _asked(
    environ: Mapping[str, str], settings: Settings, work: str, files: Mapping[str, bytes | None]
) -> list[Finding]:
    what = "pi --list-models"
    program = program_path("pi", environ)
    if program is None:
        detail = "there is no program `pi` on PATH to ask; what is written serves it once it is there"
        return [Finding(what, ok=True, detail=detail, unverified=True)]
    content = files.get("extension")
    if content is None:
        return []
    # A session would be a session of Herd's, too. To list models Pi loads every extension and starts none.
    loud = content + f"console.error({_ANNOUNCEMENT!r});\n".encode()
    child_environment = {
        **config.child_environment(environ),
        "HERD_HOME": settings.home,
        "PI_OFFLINE": "1",
        "PI_TELEMETRY": "0",
    }
    with copies(work, {"extensions/herd.ts": loud}) as folder:
        child_environment["PI_CODING_AGENT_DIR"] = folder
        answer = ask([program, "--list-models", _NO_SUCH_MODEL], child_environment, folder)
    return [_judged(what, answer.status, answer.text)]


def _judged(what: str, status: int | None, text: str) -> Finding:
    if status is None:
        return Finding(what, ok=False, detail="Pi did not answer in time", next_step="Start `pi` yourself.")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    failed = next((line for line in lines if "Failed to load extension" in line), None)
    if failed is None and _ANNOUNCEMENT in lines:
        return Finding(what, ok=True, detail="Pi loads the extension")
    told = failed or (lines[-1] if lines else "nothing")
    next_step = "Start `pi` yourself; Node older than Pi needs is a common cause."
    return Finding(what, ok=False, detail=f"Pi says: {printable(told, 400)}", next_step=next_step)
