"""The extension that Pi loads: one file, made from the template beside this one.

It knows what goes into the file and nothing of where it is put.
"""

import json
from collections.abc import Mapping
from importlib.resources import files

from herd.mcp.schemas import TOOLS

MARKER = "// Herd's extension for Pi (`herd install pi`)."
"""What the file begins with, so that an installer knows its own work."""

_SHOWN = ("name", "description", "inputSchema")
_PASSED = ("HERD_HOME",)


def extension_text(herd: str, environ: Mapping[str, str]) -> str:
    """Give the file to install.

    Args:
        herd: The absolute path of the command `herd`.
        environ: Where `HERD_HOME` is taken from, if it is set: Pi may be started without it later.

    Raises:
        ValueError: the path is not absolute.
    """
    if not herd.startswith("/"):
        raise ValueError(f"{herd!r} is not an absolute path")
    values = {
        "HERD": herd,
        "ENVIRONMENT": {name: environ[name] for name in _PASSED if environ.get(name)},
        "TOOLS": [{field: tool[field] for field in _SHOWN} for tool in TOOLS],
    }
    text = files("herd.hosts.pi").joinpath("extension.ts").read_text(encoding="utf-8")
    for name, value in values.items():
        # Escaped to ASCII, so that no character of a path means anything to whoever reads the file.
        text = text.replace(f'"@{name}@"', json.dumps(value))
    return text
