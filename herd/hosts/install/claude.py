"""Claude Code: its two files, what Herd puts into them, and what its program says about it.

`~/.claude.json` names the MCP servers; `~/.claude/settings.json` holds hooks and permissions. Where
`CLAUDE_CONFIG_DIR` is set, both lie in that folder. A file `.config.json` in Claude Code's folder, which old
versions wrote, is read instead of the first where it exists.
"""

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from operator import eq
from typing import Any

from herd.core import config
from herd.core.config import Settings
from herd.core.errors import InvalidParams, ResourceBusy
from herd.core.limits import CONFIG_LOCK_WAIT_S
from herd.core.text import printable
from herd.hosts.claude import guard
from herd.hosts.install.asking import ask, copies, program_path
from herd.hosts.install.host import Finding, Host, JsonTarget
from herd.hosts.install.spans import BOM, Malformed, read
from herd.hosts.install.wanted import Wanted

TOOLS = ("list_peers", "message_peer", "peer_messages")
"""Herd's tools that the person may let Claude Code use without asking."""

_ARGUMENTS = ["mcp", "--host", "claude"]
_ASKED = "claude mcp get herd"
_HOOK_S = 5
_OF_TOOLS = "PostToolUse"
_SCRIPT = os.path.join(os.path.dirname(os.path.abspath(guard.__file__)), "hook.py")
_SCRIPT_OF_ANY_VERSION = "/herd/hosts/claude/hook.py"
_LOCK_STALE_S = 10
_LOCK_LOOK_S = 0.02
_QUIET = {
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "DISABLE_AUTOUPDATER": "1",
    "DISABLE_TELEMETRY": "1",
}


def host(
    command: str, environ: Mapping[str, str], settings: Settings, work: str, python: str, *, tools: bool
) -> Host:
    """Describe Claude Code as it is installed for this user.

    Args:
        command: The absolute path of the command `herd`.
        environ: The variables.
        settings: Herd's own settings, for its data root.
        work: A folder of ours for copies while the program is asked.
        python: The interpreter that the hooks run with.
        tools: Whether our tools are to be allowed.

    Raises:
        InvalidParams: `CLAUDE_CONFIG_DIR` is not absolute; the message names it.
    """
    folder, servers = _places(environ)
    permissions = list(_permissions())
    return Host(
        name="claude",
        title="Claude Code",
        program="claude",
        command=command,
        targets=(
            JsonTarget(
                "servers", servers, [_server(command, settings.home)], "Claude Code", guard=claude_lock
            ),
            JsonTarget(
                "settings",
                os.path.join(folder, "settings.json"),
                [*_hooks(settings.home, python), *(permissions if tools else ())],
                "Claude Code",
                () if tools else permissions,
            ),
        ),
        ask=lambda files: _asked(environ, settings, work, files),
    )


@contextmanager
def claude_lock(path: str, wait_s: float = CONFIG_LOCK_WAIT_S) -> Iterator[None]:
    """Hold the lock that Claude Code takes while it rewrites its file: a folder beside the file.

    Whoever holds it longer than 10 s was killed: that is Claude Code's own rule.

    Raises:
        ResourceBusy: another program holds it.
    """
    lock = f"{path}.lock"
    deadline = time.monotonic() + wait_s
    while True:
        try:
            os.mkdir(lock)
            break
        except FileExistsError:
            with suppress(FileNotFoundError):
                if time.time() - os.stat(lock).st_mtime > _LOCK_STALE_S:
                    os.rmdir(lock)
                    continue
        if time.monotonic() > deadline:
            raise ResourceBusy(
                f"{path} is being written by Claude Code; every file is as it was",
                hint=f"Run it again; if no Claude Code runs, remove the folder {lock}.",
            )
        time.sleep(_LOCK_LOOK_S)
    try:
        yield
    finally:
        with suppress(OSError):
            os.rmdir(lock)


def _places(environ: Mapping[str, str]) -> tuple[str, str]:
    home = config.user_home(environ)
    chosen = environ.get("CLAUDE_CONFIG_DIR")
    if chosen is not None and not chosen.startswith("/"):
        raise InvalidParams(
            f"CLAUDE_CONFIG_DIR is {chosen!r}, which is not absolute: Claude Code then reads other files in "
            "every folder that it is started in",
            hint="Set it to an absolute path, or unset it.",
        )
    folder = chosen or os.path.join(home, ".claude")
    old = os.path.join(folder, ".config.json")
    if os.path.lexists(old):
        return folder, old
    return folder, os.path.join(chosen or home, ".claude.json")


def _server(command: str, home: str) -> Wanted:
    # The hooks look below this data root, so the server has to be there too, whatever Claude Code is started
    # with later.
    own = {"HERD_HOME": home}

    def renewed(present: dict[str, Any]) -> dict[str, Any]:
        others = present.get("env")
        others = others if isinstance(others, dict) else {}
        kept = {name: one for name, one in others.items() if name != "HERD_HOME"}
        arguments = [*_ARGUMENTS, *present["args"][len(_ARGUMENTS) :]]
        ours = {"type": "stdio", "command": command, "args": arguments, "env": {**kept, **own}}
        return {**present, **ours, "alwaysLoad": present.get("alwaysLoad", True)}

    value = {"type": "stdio", "command": command, "args": _ARGUMENTS, "env": own, "alwaysLoad": True}
    return Wanted(("mcpServers",), "herd", value, _is_our_server, renewed)


def _is_our_server(value: Any) -> bool:
    arguments = value.get("args") if isinstance(value, dict) else None
    return isinstance(arguments, list) and arguments[: len(_ARGUMENTS)] == _ARGUMENTS


def _hooks(home: str, python: str) -> Iterator[Wanted]:
    for event in guard.EVENTS:
        command = guard.hook_command(event, f"{home}/*/hooks", python, _SCRIPT)
        entry: dict[str, Any] = {"matcher": "*"} if event.startswith(_OF_TOOLS) else {}
        entry["hooks"] = [{"type": "command", "command": command, "timeout": _HOOK_S}]
        yield Wanted(("hooks", event), None, entry, _has_our_hook, _renewing(command), _without_our_hooks)


def _renewing(command: str) -> Any:
    def renewed(present: dict[str, Any]) -> dict[str, Any]:
        hooks: list[Any] = []
        seen = False
        for one in present["hooks"]:
            if _is_our_hook(one) and not seen:
                hooks.append({**one, "command": command})
                seen = True
            elif not _is_our_hook(one):
                hooks.append(one)
        return {**present, "hooks": hooks}

    return renewed


def _without_our_hooks(present: dict[str, Any]) -> dict[str, Any] | None:
    left = [one for one in present["hooks"] if not _is_our_hook(one)]
    return {**present, "hooks": left} if left else None


def _has_our_hook(value: Any) -> bool:
    hooks = value.get("hooks") if isinstance(value, dict) else None
    return isinstance(hooks, list) and any(_is_our_hook(one) for one in hooks)


def _is_our_hook(value: Any) -> bool:
    command = value.get("command") if isinstance(value, dict) else None
    return isinstance(command, str) and _SCRIPT_OF_ANY_VERSION in command


def _permissions() -> Iterator[Wanted]:
    for tool in TOOLS:
        name = f"mcp__herd__{tool}"
        yield Wanted(("permissions", "allow"), None, name, partial(eq, name), is_common=True)


def allows_tools(settings: bytes | None) -> bool:
    """Tell whether a file of settings lets Claude Code use all of our tools without asking."""
    return all(one.value in _rules(settings, "allow") for one in _permissions())


def denied_tools(settings: bytes | None) -> list[str]:
    """Give the rules of a file of settings that forbid our tools, which outrank those that allow them."""
    ours = {str(one.value) for one in _permissions()} | {"mcp__herd", "mcp__herd__*"}
    return [rule for rule in _rules(settings, "deny") if rule in ours]


def _rules(settings: bytes | None, which: str) -> list[Any]:
    try:
        document = read((settings or b"").decode("utf-8"))
    except (UnicodeDecodeError, Malformed):
        return []
    part = document.at(("permissions", which))
    present = [] if part is None else document.value(part)
    return present if isinstance(present, list) else []


def _asked(
    environ: Mapping[str, str], settings: Settings, work: str, files: Mapping[str, bytes | None]
) -> list[Finding]:
    program = program_path("claude", environ)
    if program is None:
        detail = "there is no program `claude` on PATH to ask; what is written serves it once it is there"
        return [Finding(_ASKED, ok=True, detail=detail, unverified=True)]
    found = {".claude.json": files.get("servers"), "settings.json": files.get("settings")}
    child_environment = {**config.child_environment(environ), **_QUIET, "HERD_HOME": settings.home}
    with copies(work, {name: one for name, one in found.items() if one is not None}) as folder:
        child_environment.update(CLAUDE_CONFIG_DIR=folder, XDG_CACHE_HOME=os.path.join(folder, "cache"))
        answer = ask([program, "mcp", "get", "herd"], child_environment, folder)
    return [_judged(answer.status, answer.text), *_switched_off(files.get("settings"))]


def _judged(status: int | None, text: str) -> Finding:
    if status is None:
        detail = "Claude Code did not answer in time"
        return Finding(_ASKED, ok=False, detail=detail, next_step="Run it yourself.")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    told = next((line for line in lines if line.startswith("Status:")), lines[-1] if lines else "nothing")
    ok = status == 0 and told.endswith("Connected")
    next_step = None if ok else "Run `claude mcp get herd` yourself; it tells more."
    return Finding(_ASKED, ok, f"Claude Code says: {printable(told)}", next_step)


def _switched_off(settings: bytes | None) -> Sequence[Finding]:
    text = (settings or b"").decode("utf-8", "replace")
    if not text.removeprefix(BOM).strip():
        return []
    document = read(text)
    value = document.value(document.root)
    if isinstance(value, dict) and value.get("disableAllHooks") is True:
        return [
            Finding(
                "hooks",
                ok=False,
                detail="disableAllHooks is true in settings.json: mail reaches no turn by itself",
                next_step="Set it to false, or let the agent call peer_messages.",
            )
        ]
    return []
