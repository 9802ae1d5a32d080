"""What the installer knows of one host: its files, what belongs into them, and how its program is asked.

A host is a value of this module's types, made from the variables by the module of its name.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol

from herd.core.errors import RecoveryRequired
from herd.hosts.install.wanted import Put, Wanted, departure, is_blank, put_in, take_out

Guard = Callable[[str], AbstractContextManager[None]]


class Finding(NamedTuple):
    """One thing that was looked at."""

    what: str
    ok: bool
    detail: str
    next_step: str | None = None
    unverified: bool = False
    """Whether it is not wrong but could not be found out."""


class Target(Protocol):
    """One file of a host."""

    @property
    def part(self) -> str:
        """Which of the host's files it is."""
        ...

    @property
    def path(self) -> str:
        """Its name; a link is followed when it is read."""
        ...

    @property
    def guard(self) -> Guard | None:
        """See `disk.Change.guard`."""
        ...

    def at(self, path: str) -> "Target":
        """Give the same part of the host at another path."""
        ...

    def written(self, content: bytes | None) -> tuple[bytes, list[Put]]:
        """Give the file with everything of ours in it, and how what was missing came in."""
        ...

    def taken_out(self, content: bytes, puts: Sequence[Put], *, ours_alone: bool) -> bytes | None:
        """Give the file without anything of ours; None where nothing is left of a file of ours alone."""
        ...

    def remarks(self, content: bytes) -> list[str]:
        """Give what keeps the host from doing what the file says, each with its place."""
        ...

    def is_kept(self, content: bytes) -> bool:
        """Tell whether the file is ours and stays as it is, since a person has changed it."""
        ...


class JsonTarget(NamedTuple):
    """A JSON file that Herd shares with the host and the person; see `Target`."""

    part: str
    path: str
    wanted: Sequence[Wanted]
    reader: str
    """The host's name, for remarks."""
    known: Sequence[Wanted] = ()
    """More entries of ours, which are not put in now and may be there."""
    guard: Guard | None = None

    def at(self, path: str) -> "JsonTarget":
        """See `Target.at`."""
        return self._replace(path=path)

    def written(self, content: bytes | None) -> tuple[bytes, list[Put]]:
        """See `Target.written`."""
        text, puts = put_in(self.path, self._text(content or b""), self.wanted)
        return text.encode(), puts

    def taken_out(self, content: bytes, puts: Sequence[Put], *, ours_alone: bool) -> bytes | None:
        """See `Target.taken_out`."""
        text = take_out(self.path, self._text(content), [*self.wanted, *self.known], puts)
        return None if ours_alone and is_blank(text) else text.encode()

    def remarks(self, content: bytes) -> list[str]:
        """See `Target.remarks`."""
        found = departure(self._text(content))
        if found is None:
            return []
        place = f"{self.path}, line {found[0]}"
        return [f"{place}: {self.reader} reads strict JSON, and ignores the whole file because of {found[1]}"]

    def is_kept(self, content: bytes) -> bool:  # noqa: ARG002 - entries of ours are found one by one
        """See `Target.is_kept`."""
        return False

    def _text(self, content: bytes) -> str:
        try:
            return content.decode("utf-8")
        except UnicodeDecodeError as fault:
            line = content.count(b"\n", 0, fault.start) + 1
            raise RecoveryRequired(
                f"{self.path}, line {line}: byte {fault.start} is no UTF-8; no file was changed",
                hint="Save it as UTF-8, or move it away, and run it again.",
            ) from None


class Host(NamedTuple):
    """One host."""

    name: str
    """Its word, as in `herd install NAME`."""
    title: str
    """Its name for people."""
    program: str
    """The command that starts it."""
    command: str
    """The absolute path of the `herd` that it is to start."""
    targets: Sequence[Target]
    """Its files."""
    ask: Callable[[Mapping[str, bytes | None]], list[Finding]]
    """Asks the host's program whether it sees Herd, given its files by part."""

    def target(self, part: str, path: str) -> Target | None:
        """Give a part of the host at a path that an earlier installation used."""
        return next((one.at(path) for one in self.targets if one.part == part), None)
