"""The extension for Pi as it is installed: the template with what this machine's Herd fills in."""

import json
import re
from typing import Any

import pytest

from herd.hosts.pi.files import MARKER, extension_text
from herd.mcp.schemas import TOOLS


def filled_in(text: str, name: str) -> Any:
    """Read the constant of that name out of the file."""
    [value] = re.findall(rf"^const {name}: .+? = (.+?)(?: as any)?;$", text, re.MULTILINE)
    return json.loads(value)


def test_the_file_names_the_command_its_home_and_the_tools():
    text = extension_text("/opt/herd/bin/herd", {"HERD_HOME": "/data/herd", "PATH": "/bin"})

    assert text.startswith(MARKER)
    assert filled_in(text, "HERD") == "/opt/herd/bin/herd"
    assert filled_in(text, "ENVIRONMENT") == {"HERD_HOME": "/data/herd"}
    assert [tool["name"] for tool in filled_in(text, "TOOLS")] == [tool["name"] for tool in TOOLS]
    assert [tool["inputSchema"] for tool in filled_in(text, "TOOLS")] == [
        tool["inputSchema"] for tool in TOOLS
    ]
    assert "@" not in re.sub(r"@earendil-works/", "", text)


def test_no_character_of_a_path_ends_its_string():
    odd = '/opt/a"b\\c\n\u2028é/${HERD}/herd'

    text = extension_text(odd, {"HERD_HOME": odd})

    assert filled_in(text, "HERD") == odd
    assert filled_in(text, "ENVIRONMENT") == {"HERD_HOME": odd}
    assert text.isascii()


@pytest.mark.parametrize("environ", [{}, {"HERD_HOME": ""}])
def test_an_unset_home_is_left_to_herd(environ: dict[str, str]):
    assert filled_in(extension_text("/bin/herd", environ), "ENVIRONMENT") == {}


@pytest.mark.parametrize("command", ["herd", "./herd", ""])
def test_a_command_that_is_not_absolute_is_refused(command: str):
    with pytest.raises(ValueError, match="absolute"):
        extension_text(command, {})
