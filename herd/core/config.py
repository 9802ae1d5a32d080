"""Settings and surroundings: the only reader of the environment, and of `config.toml`.

Everything else takes what is found here as values. Variables that belong to one host's programs are read
by that host's adapter, from the mapping given here.
"""

import os
import stat
from collections.abc import Mapping
from typing import Any, NamedTuple

from herd.core.errors import InvalidParams
from herd.core.limits import (
    CONFIG_BYTES,
    DEFAULT_LIMITS,
    ENDPOINT_PATH_CHARACTERS,
    LABEL_CHARACTERS,
    Limits,
)

NO_SOCKET = "none"
"""The socket of a session that lives on no Herdr server."""

IDLE_AUTO = "auto"
IDLE_NOTIFY = "notify"

SCOPE_MACHINE = "machine"
SCOPE_REPOSITORY = "repository"
SCOPE_WORKSPACE = "workspace"

RESTART_DELIVER = "deliver"
RESTART_REVIEW = "review"

_FOR_CHILDREN = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "LC_CTYPE", "TMPDIR", "TZ")


class Settings(NamedTuple):
    """What a person decided for every session of theirs."""

    home: str
    """The data root, absolute."""
    limits: Limits
    """The bounds in force."""
    config_file: str
    """The file the settings come from, whether or not it exists."""
    idle: str = IDLE_AUTO
    """What mail does to an idle session: `auto` wakes it, `notify` starts no turn and shows a count."""
    enabled: bool = True
    """Whether sessions may communicate at all."""
    scope: str = SCOPE_MACHINE
    """How far a session's calls reach, and from how far it may be reached: its `machine`, `repository` or
    `workspace`."""
    alias: str | None = None
    """The name a session is listed under where its host gives none."""
    on_restart: str = RESTART_DELIVER
    """What becomes of mail that waits at a session's start: `deliver` hands it over, `review` shows it to the
    person first."""


class Place(NamedTuple):
    """Where in Herdr a session runs."""

    socket: str
    """The Herdr server's socket, or `none`."""
    pane_id: str | None = None
    tab_id: str | None = None
    workspace_id: str | None = None


def environment() -> Mapping[str, str]:
    """Give the variables of this process, as they are now."""
    return dict(os.environ)


def load(environ: Mapping[str, str]) -> Settings:
    """Find the data root and read the settings.

    Args:
        environ: The variables, as `environment` gives them. An empty one counts as unset.

    Raises:
        InvalidParams: `HERD_HOME` is relative, there is no home, or the settings hold something wrong; the
            message names the variable, or the file and the key.
    """
    config_file = os.path.join(_base(environ, "XDG_CONFIG_HOME", ".config"), "herd", "config.toml")
    tables = _tables(config_file)
    settings = Settings(home=_data_root(environ), limits=DEFAULT_LIMITS, config_file=config_file)
    if not tables:
        return settings
    from herd.core.choices import chosen  # most people have no such file

    return chosen(settings, tables)


def herdr_place(environ: Mapping[str, str]) -> Place:
    """Tell where in Herdr this process runs, by what Herdr sets in every pane it manages."""
    socket = environ.get("HERDR_SOCKET_PATH", "")
    if environ.get("HERDR_ENV") != "1" or not socket.startswith("/"):
        return Place(NO_SOCKET)
    if len(socket) > ENDPOINT_PATH_CHARACTERS:
        return Place(NO_SOCKET)
    ids = (_native_id(environ.get(f"HERDR_{part}_ID", "")) for part in ("PANE", "TAB", "WORKSPACE"))
    return Place(socket, *ids)


def _native_id(value: str) -> str | None:
    """Give an id as a record may carry it; what is none of Herdr's is left out rather than published."""
    return value if value.strip() and len(value) <= LABEL_CHARACTERS else None


def user_home(environ: Mapping[str, str]) -> str:
    """Give the home folder of this user, absolute.

    Raises:
        InvalidParams: `HOME` is not set and the user has none.
    """
    home = environ.get("HOME", "")
    if home.startswith("/"):
        return home
    import pwd  # rarely needed, and reads the user database

    try:
        return pwd.getpwuid(os.geteuid()).pw_dir
    except KeyError:
        raise InvalidParams("HOME is not set and this user has no home; set HOME or HERD_HOME") from None


def child_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Give the variables a child of ours may have: an allow-list, in which nothing of any host stands."""
    return {name: environ[name] for name in _FOR_CHILDREN if name in environ}


def _data_root(environ: Mapping[str, str]) -> str:
    chosen = environ.get("HERD_HOME")
    if not chosen:
        return os.path.join(_base(environ, "XDG_STATE_HOME", ".local/state"), "herd")
    if not chosen.startswith("/"):
        raise InvalidParams(f"HERD_HOME is {chosen!r}, which is not absolute")
    return chosen


def _base(environ: Mapping[str, str], name: str, below_home: str) -> str:
    chosen = environ.get(name, "")
    # The XDG specification says to ignore a relative value.
    return chosen if chosen.startswith("/") else os.path.join(user_home(environ), below_home)


def _tables(file: str) -> dict[str, Any]:
    content = _content(file)
    return {} if content is None else _parsed(file, content)


def _content(file: str) -> bytes | None:
    try:
        # It may be a link, since people keep their settings elsewhere.
        with open(file, "rb", opener=_without_waiting) as opened:
            if not stat.S_ISREG(os.fstat(opened.fileno()).st_mode):
                raise InvalidParams(f"{file}: is no regular file")
            content = opened.read(CONFIG_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise InvalidParams(f"{file}: cannot be read: {error.strerror}") from error
    if len(content) > CONFIG_BYTES:
        raise InvalidParams(f"{file}: is larger than {CONFIG_BYTES} bytes")
    return content


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY)  # a FIFO would wait for a writer


def _parsed(file: str, content: bytes) -> dict[str, Any]:
    import tomllib  # most people have no such file

    try:
        return tomllib.loads(content.decode("utf-8"))
    # ValueError covers wrong UTF-8 and numbers of any length, too.
    except (ValueError, RecursionError) as error:
        raise InvalidParams(f"{file}: is no TOML: {error}") from error
