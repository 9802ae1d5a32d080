"""Write the reference pages from the code they describe, or check that they still say the same.

`python docs/generate.py` writes the pages of errors, limits, settings, command line, message states, adapter
API and tools into `docs/reference`; with `--check` nothing is written, and the exit status is 1 where a page
differs. What a page says is changed where its subject is written: in a docstring, a hint or a parser, or in
a module beside this one. The page of the command line exists once its parser does.
"""

import argparse
import ast
import importlib
import importlib.util
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from docs.adapter_api import adapter_api_page
from docs.command_line import command_line_page
from docs.markdown import Undocumented, page, table
from docs.message_states import message_states_page
from docs.tools import tools_page
from herd.core.choices import RANGES
from herd.core.config import (
    IDLE_AUTO,
    IDLE_NOTIFY,
    RESTART_DELIVER,
    RESTART_REVIEW,
    SCOPE_MACHINE,
    SCOPE_REPOSITORY,
    SCOPE_WORKSPACE,
)
from herd.core.errors import BY_CODE, EXIT_STATUSES, HerdError
from herd.core.limits import DEFAULT_LIMITS, SETTING_GREATEST

ROOT = Path(__file__).parent.parent
REFERENCE = ROOT / "docs" / "reference"
LIMITS_SOURCE = ROOT / "herd" / "core" / "limits.py"
COMMAND_LINE = "herd.cli.main"

_UNITS = {"bytes": "bytes", "ms": "milliseconds", "s": "seconds", "characters": "characters"}


class Bound(NamedTuple):
    """One name of `herd/core/limits.py`, as its source says it."""

    name: str
    value: str
    meaning: str


# --- errors ----------------------------------------------------------------------------------------


def errors_page() -> str:
    """Describe every code a caller can meet, and the exit statuses of commands."""
    rows = [_error_row(kind) for _, kind in sorted(BY_CODE.items())]
    statuses = [(str(status), text) for status, text in sorted(EXIT_STATUSES.items())]
    heads = ("code", "JSON-RPC number", "exit status", "may pass", "meaning", "what to do next")
    return page(
        "Errors",
        "Every refusal has a stable code. It stands in `error.data.code` of a JSON-RPC answer, and in `code` "
        "of a tool's result and of what a command writes to standard error. *May pass* means that a sender "
        "keeps the message and tries again by itself.",
        table(heads, rows),
        "## Exit statuses",
        table(("status", "meaning"), statuses),
    )


def _error_row(kind: type[HerdError]) -> tuple[str, ...]:
    if not kind.__doc__:
        raise Undocumented(f"{kind.__name__} has no docstring")
    may_pass = "yes" if kind.may_pass else "no"
    return (f"`{kind.code}`", str(kind.rpc_number), str(kind.exit_status), may_pass, kind.__doc__, kind.hint)


# --- limits and settings ---------------------------------------------------------------------------


def bounds_in(source: str) -> tuple[list[Bound], list[Bound]]:
    """Read the bounds out of the source: those a person may override, then the fixed ones.

    Raises:
        Undocumented: a bound has no docstring under it.
    """
    tree = ast.parse(source)
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "Limits"]
    overridable = [bound for node in classes for bound in _bounds(source, node.body)]
    return overridable, list(_bounds(source, tree.body))


def _bounds(source: str, body: Sequence[ast.stmt]) -> Iterator[Bound]:
    for node, after in zip(body, [*body[1:], None], strict=True):
        name, value = _assignment(node)
        if value is None or isinstance(value, ast.Call):
            continue
        meaning = _text(after)
        if meaning is None:
            raise Undocumented(f"{name} has no docstring under it")
        yield Bound(name, ast.get_source_segment(source, value) or "", meaning)


def _assignment(node: ast.stmt) -> tuple[str, ast.expr | None]:
    match node:
        case ast.AnnAssign(target=ast.Name(id=name), value=value):
            return name, value
        case ast.Assign(targets=[ast.Name(id=name)], value=value):
            return name, value
    return "", None


def _text(node: ast.stmt | None) -> str | None:
    value = node.value if isinstance(node, ast.Expr) else None
    return value.value if isinstance(value, ast.Constant) and isinstance(value.value, str) else None


def limits_page() -> str:
    """Describe every bound in force."""
    overridable, fixed = bounds_in(LIMITS_SOURCE.read_text(encoding="utf-8"))
    return page(
        "Limits",
        "Everything is bounded, and every bound has a name.",
        "## Bounds that a setting overrides",
        "They are set in `config.toml`: see [settings](config.md).",
        table(("name", "default", "meaning"), ((f"`{b.name}`", b.value, b.meaning) for b in overridable)),
        "## Fixed bounds",
        "To change one of these would change a protocol or a file format.",
        table(("name", "value", "meaning"), ((f"`{b.name}`", b.value, b.meaning) for b in fixed)),
    )


_IDLE = (
    f"What mail does to an idle session: `{IDLE_AUTO}` wakes it by a fixed notice, `{IDLE_NOTIFY}` starts "
    "no turn and shows the person how many messages wait."
)

_ENABLED = "Whether sessions may communicate at all; where not, every call is refused and nothing is made."
_ON_RESTART = (
    f"What becomes of mail that waits when a session in a host starts: `{RESTART_DELIVER}` hands it over, "
    f"`{RESTART_REVIEW}` holds it back until a person has said yes by `herd inbox --session TARGET --accept`."
)

_SCOPE = (
    f"How far sessions reach, and from how far they are reached: `{SCOPE_MACHINE}`, `{SCOPE_REPOSITORY}` or "
    f"`{SCOPE_WORKSPACE}`; see [scopes](../explanation/scopes.md). `--scope` sets another for one session."
)
_ALIAS = (
    "The name that sessions are listed under where their host gives none: a letter, then up to 63 letters, "
    "digits, `_` and `-`. Without one, a name is made from the folder. `--alias` sets another for one "
    "session. Terminal sessions have names of their own."
)

_SETTINGS = (
    ("`enabled`", "`true`", _ENABLED),
    ("`idle`", f"`{IDLE_AUTO}`", _IDLE),
    ("`on_restart`", f"`{RESTART_DELIVER}`", _ON_RESTART),
    ("`scope`", f"`{SCOPE_MACHINE}`", _SCOPE),
    ("`alias`", "none", _ALIAS),
)


def config_page() -> str:
    """Describe the settings file, with an example that sets every key to its default."""
    overridable, _ = bounds_in(LIMITS_SOURCE.read_text(encoding="utf-8"))
    rows = [(f"`{b.name}`", b.value, unit_of(b.name), b.meaning) for b in overridable]
    example = [f"{name} = {value}" for name, value in DEFAULT_LIMITS._asdict().items()]
    words = {"idle": IDLE_AUTO, "on_restart": RESTART_DELIVER, "scope": SCOPE_MACHINE}
    chosen = ["enabled = true", *(f'{key} = "{word}"' for key, word in words.items())]
    return page(
        "Settings",
        "Settings are read from `$XDG_CONFIG_HOME/herd/config.toml` (`~/.config/herd/config.toml` where that "
        "variable is not set) and from nowhere else. The file may be missing. An unknown key is an error "
        "that names it. They are read when a session starts.",
        "The data root is `$HERD_HOME`, else `$XDG_STATE_HOME/herd`, else `~/.local/state/herd`.",
        table(("key", "default", "meaning"), _SETTINGS),
        "## `[limits]`",
        f"Each value is a whole number from 1 to {SETTING_GREATEST}; {_narrower()}. `message_bytes` may "
        "not exceed `frame_bytes`, nor `expiry_ms` exceed `max_expiry_ms`.",
        table(("key", "default", "unit", "meaning"), rows),
        "## Example",
        "Every key that has a default, with it:",
        "\n".join(["```toml", *chosen, "", "[limits]", *example, "```"]),
    )


def _narrower() -> str:
    return " and ".join(f"that of `{name}` is from {low} to {high}" for name, (low, high) in RANGES.items())


def unit_of(name: str) -> str:
    """Give the unit that the end of a setting's name stands for."""
    return _UNITS.get(name.rpartition("_")[2], "count")


# --- writing and checking --------------------------------------------------------------------------


def pages() -> dict[str, str]:
    """Give the text of every page by its file's name."""
    written = {
        "adapter-api.md": adapter_api_page(),
        "config.md": config_page(),
        "errors.md": errors_page(),
        "limits.md": limits_page(),
        "message-states.md": message_states_page(),
        "tools.md": tools_page(),
    }
    # Only a parser that does not exist may be left out: one that cannot be imported is a fault.
    if importlib.util.find_spec(COMMAND_LINE) is not None:
        written["cli.md"] = command_line_page(importlib.import_module(COMMAND_LINE).build_parser())
    return written


def differing(folder: Path) -> dict[str, str]:
    """Give the pages that are missing in a folder or say something else there than the code."""
    return {name: text for name, text in pages().items() if _content(folder / name) != text}


def _content(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.exists() else None


def main(arguments: Sequence[str] | None = None, folder: Path = REFERENCE) -> int:
    """Write the pages into a folder, or check them; give the exit status."""
    parser = argparse.ArgumentParser(description="Write the reference pages from the code.")
    parser.add_argument("--check", action="store_true", help="write nothing, fail where a page differs")
    check = parser.parse_args(arguments).check
    stale = differing(folder)
    if check:
        for name in stale:
            print(f"{folder / name} differs from the code; run docs/generate.py", file=sys.stderr)
        return 1 if stale else 0
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in stale.items():
        (folder / name).write_text(text, encoding="utf-8")
        print(f"wrote {folder / name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
