"""Each host's adapter: what it reads of its own variables, and of nobody else's."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from herd.core.paths import Layout
from herd.hosts.adapter import adapter_of
from herd.hosts.serving import Serving

OWN = {
    "claude": {"CLAUDE_CODE_SESSION_ID"},
    "codex": {"CODEX_THREAD_ID"},
    "pi": {"PI_SESSION_ID"},
    "terminal": set(),
}
EVERY = {"CLAUDE_CODE_SESSION_ID": "of claude", "CODEX_THREAD_ID": "of codex", "PI_SESSION_ID": "of pi"}


class Watched(Mapping[str, str]):
    """Variables that note which of them were asked for."""

    def __init__(self, variables: dict[str, str]) -> None:
        self._variables = variables
        self.read: set[str] = set()

    def __getitem__(self, name: str) -> str:
        self.read.add(name)
        return self._variables[name]

    def __iter__(self) -> Iterator[str]:
        self.read |= set(self._variables)
        return iter(self._variables)

    def __len__(self) -> int:
        return len(self._variables)


@pytest.mark.parametrize("host", OWN)
def test_an_adapter_reads_the_variables_of_its_own_host_alone(host: str):
    adapter = adapter_of(host)
    assert adapter is not None
    environ = Watched(EVERY)

    found = adapter.session_id(environ)

    assert adapter.name == host
    assert environ.read == OWN[host]
    assert found == (f"of {host}" if OWN[host] else None)


@pytest.mark.parametrize("host", OWN)
def test_an_absent_or_empty_variable_names_no_session(host: str):
    adapter = adapter_of(host)
    assert adapter is not None

    assert adapter.session_id({}) is None
    assert adapter.session_id(dict.fromkeys(EVERY, "")) is None


@pytest.mark.parametrize("host", ["opencode", "another", "adapter", "../claude", ""])
def test_nothing_special_is_known_of_any_other_host(host: str):
    assert adapter_of(host) is None


@pytest.mark.parametrize("host", OWN)
@pytest.mark.parametrize("meta", [{}, {"claudecode/toolUseId": 7}, {"claudecode/toolUseId": ""}, {"x": "y"}])
def test_a_call_without_an_id_has_none(host: str, meta: dict[str, object]):
    adapter = adapter_of(host)
    assert adapter is not None

    assert adapter.call_id(meta) is None


@pytest.mark.parametrize("host", ["codex", "pi", "terminal", "claude"])
def test_only_claude_code_is_given_text_alone_and_only_where_it_says_who_it_is(host: str):
    adapter = adapter_of(host)
    assert adapter is not None
    key = "io.modelcontextprotocol/clientInfo"

    assert adapter.text_alone({key: {"name": "claude-code"}}) is (host == "claude")
    for meta in ({}, {key: None}, {key: "claude-code"}, {key: {"name": "other"}}, {key: {}}):
        assert not adapter.text_alone(meta)


@pytest.mark.parametrize("host", ["codex", "pi", "terminal", "claude"])
def test_only_beside_claude_code_something_runs(host: str, tmp_path: Path):
    adapter = adapter_of(host)
    assert adapter is not None

    async def bind(session_id: str, cwd: str | None) -> None:
        """Serve nothing."""

    serving = Serving(Layout(str(tmp_path)), {}, 0, "", bind)

    assert adapter.accompanied is (host == "claude")
    assert adapter.companion(serving) is None
