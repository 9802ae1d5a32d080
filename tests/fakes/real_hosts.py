"""Where the real hosts stand that `.ci/hosts` installs. A test that needs one fails where it is missing."""

from pathlib import Path

from tests.fakes.herd_session import ROOT

NODE_PROGRAMS = ROOT / ".venv" / "hosts" / "bin"


def program(name: str) -> Path:
    """Give the path of `pi`, `claude`, `node` or `mcp-inspector`."""
    path = NODE_PROGRAMS / name
    assert path.is_file(), f"{path} is missing; run .ci/hosts, which installs it"
    return path
