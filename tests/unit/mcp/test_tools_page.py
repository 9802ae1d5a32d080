"""The reference page of the tools says what their schemas say, and leaves nothing out."""

import pytest

from docs import tools
from docs.markdown import Undocumented
from herd.mcp.prompts import PROMPTS
from herd.mcp.tools import OUTPUTS, TOOLS


def test_every_tool_and_prompt_stands_on_the_page_with_every_field():
    page = tools.tools_page()

    for tool in TOOLS:
        assert f"## `{tool['name']}`" in page
        assert tool["description"] in page
        for field in tool["inputSchema"]["properties"]:
            assert f"\n| `{field}` | " in page
    for prompt in PROMPTS:
        assert f"\n| `{prompt['name']}` | " in page
    assert "| `messages.from.target` | text | no |" in page
    assert "| `wait_ms` | whole number, from 0, to 30000 | yes |" in page


@pytest.mark.parametrize(
    ("tool", "field", "schema"), [("list_peers", "new", {"type": "string"}), ("message_peer", "scope", {})]
)
def test_an_input_without_a_meaning_is_refused(tool: str, field: str, schema: dict[str, str]):
    with pytest.raises(Undocumented, match=f"{tool}: {field} says nowhere"):
        tools._meaning(tool, field, schema)


def test_every_field_of_a_result_has_its_meaning_and_no_other():
    for tool, schema in OUTPUTS.items():
        fields = {path for path, _, _ in tools._fields(schema)}
        assert {row[0].strip("`") for row in tools._result_rows(tool)} == fields
