"""The two eras as words: which a first request opens, what each wants, and what each answer looks like."""

import ast
from pathlib import Path
from typing import Any

import pytest

from herd.mcp import protocol
from herd.mcp.protocol import ProtocolError, check_envelope, first_answer, initialize_result, is_id, is_modern
from tests.fakes.mcp_frames import ERAS, HANDSHAKE, MODERN, OLDER, Era, request, result_of
from tests.unit.our_source import ROOT

META = MODERN.envelope["_meta"]
VERSION, CAPABILITIES = (
    f"io.modelcontextprotocol/{name}" for name in ("protocolVersion", "clientCapabilities")
)


@pytest.mark.parametrize(
    ("method", "params", "modern"),
    [
        ("server/discover", {"_meta": META}, True),
        ("tools/list", {"_meta": META}, True),
        ("tools/call", {"_meta": {VERSION: "2099-01-01"}}, True),
        ("initialize", {"_meta": META}, False),
        ("initialize", {}, False),
        ("server/discover", {}, False),
        ("ping", {"_meta": {"progressToken": 1}}, False),
        ("ping", {"_meta": [VERSION]}, False),
    ],
)
def test_the_first_request_tells_the_era(method: str, params: dict[str, Any], modern: bool):
    assert is_modern(method, params) is modern


@pytest.mark.parametrize(
    ("meta", "code"),
    [
        ({}, -32602),
        ({CAPABILITIES: {}}, -32602),
        ({VERSION: None, CAPABILITIES: {}}, -32602),
        ({VERSION: 20260728, CAPABILITIES: {}}, -32602),
        ({VERSION: "2026-07-28"}, -32602),
        ({VERSION: "2026-07-28", CAPABILITIES: None}, -32602),
        ({VERSION: "2025-11-25", CAPABILITIES: {}}, -32022),
        ({VERSION: "", CAPABILITIES: {}}, -32022),
        ("2026-07-28", -32602),
    ],
)
def test_a_modern_request_without_its_envelope_is_refused(meta: object, code: int):
    with pytest.raises(ProtocolError) as refused:
        check_envelope({"_meta": meta}, modern=True)

    assert refused.value.code == code


def test_each_era_takes_its_own_requests():
    check_envelope({"_meta": META}, modern=True)
    check_envelope({}, modern=False)
    check_envelope({"_meta": {"progressToken": 1}}, modern=False)
    with pytest.raises(ProtocolError) as refused:
        check_envelope({"_meta": META}, modern=False)

    assert refused.value.code == -32600


@pytest.mark.parametrize(
    ("asked", "told"), [("2099-01-01", "2099-01-01"), ("x" * 1_000, "x" * 64), (7, ""), (None, "")]
)
def test_an_unknown_version_is_told_which_are_known(asked: object, told: str):
    error = protocol.unsupported(asked)

    assert error.code == -32022
    assert error.data == {"supported": ["2026-07-28"], "requested": told}


@pytest.mark.parametrize("wanted", ["2024-11-05", "2099-01-01", "", None, 7, ["2025-06-18"], {}])
def test_a_handshake_for_a_version_not_spoken_here_is_offered_the_newest(wanted: object):
    assert initialize_result({"protocolVersion": wanted})["protocolVersion"] == "2025-11-25"


@pytest.mark.requirement("D-mcp-01")
@pytest.mark.parametrize("era", [OLDER, HANDSHAKE])
def test_initialize_is_answered_at_once_in_the_client_s_version(era: Era):
    params = {"protocolVersion": era.version, "capabilities": {}}
    answer, modern = first_answer(request(0, "initialize", params, era=era))

    assert modern is False
    assert answer is not None
    result = result_of(answer, era)
    assert result.keys() == {"protocolVersion", "capabilities", "serverInfo", "instructions"}
    assert result["protocolVersion"] == era.version


@pytest.mark.requirement("D-mcp-01")
def test_discover_is_answered_at_once():
    answer, modern = first_answer(request("d", "server/discover", era=MODERN))

    assert modern is True
    assert answer is not None
    result = result_of(answer, MODERN)
    assert (result["supportedVersions"], result["ttlMs"], result["cacheScope"]) == (
        ["2026-07-28"],
        0,
        "private",
    )
    assert result["capabilities"] == {"tools": {"listChanged": True}, "prompts": {"listChanged": True}}


def test_a_refused_probe_opens_no_era():
    answer, modern = first_answer(request(1, "server/discover", era=Era("2099-01-01", modern=True)))

    assert modern is None
    assert answer is not None
    assert answer["error"]["code"] == -32022


@pytest.mark.parametrize(
    "frame",
    [
        None,
        [],
        "x",
        {},
        {"id": 1, "method": "initialize"},
        {"jsonrpc": "2.0", "method": "initialize"},
        {"jsonrpc": "2.0", "id": None, "method": "initialize"},
        {"jsonrpc": "2.0", "id": True, "method": "initialize"},
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": []},
        {"jsonrpc": "2.0", "id": 1, "method": ["initialize"]},
        {"jsonrpc": "2.0", "id": 1, "method": "server/discover"},
        request(1, "tools/list", era=MODERN),
        request(1, "ping", era=HANDSHAKE),
    ],
)
def test_everything_else_is_left_to_the_server(frame: object):
    assert first_answer(frame) == (None, None)


@pytest.mark.parametrize("method", ["tools/list", "prompts/list", "server/discover", "tools/call"])
def test_a_modern_result_says_what_its_era_wants(method: str):
    shaped = protocol.shaped(method, {"x": 1, "_meta": {"kept": 1}}, modern=True)

    assert shaped["x"] == 1
    assert shaped["resultType"] == "complete"
    assert shaped["_meta"]["kept"] == 1
    assert shaped["_meta"]["io.modelcontextprotocol/serverInfo"]["name"] == "herd"
    assert ("ttlMs" in shaped) == ("cacheScope" in shaped) == (method != "tools/call")
    assert protocol.shaped(method, {"x": 1}, modern=False) == {"x": 1}


@pytest.mark.parametrize("value", ["", "x", 0, -1, 2**80])
def test_an_id_is_a_text_or_an_integer(value: object):
    assert is_id(value)


@pytest.mark.parametrize("value", [None, True, False, 1.0, [], {}, b"x"])
def test_nothing_else_is_an_id(value: object):
    assert not is_id(value)


@pytest.mark.parametrize("era", ERAS)
def test_an_error_has_data_only_where_there_is_some(era: Era):
    bare = protocol.failure(None, ProtocolError(-32700, "x"))

    assert bare == {"jsonrpc": "2.0", "id": None, "error": {"code": -32700, "message": "x"}}
    assert protocol.failure("a", ProtocolError(1, "x", {"y": 1}))["error"]["data"] == {"y": 1}


# --- what stands before the first answer, and who writes the server --------------------------------


def imported_by(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            names.add(node.module or "")
    return names


@pytest.mark.requirement("D-mcp-09")
def test_no_module_of_ours_imports_the_mcp_package():
    foreign = {
        (path.relative_to(ROOT).as_posix(), name)
        for package in ("herd", "roles", "assignments", "federation")
        for path in (ROOT / package).rglob("*.py")
        for name in imported_by(path)
        if name.partition(".")[0] in {"mcp", "mcp_types", "fastmcp"}
    }

    assert foreign == set()


@pytest.mark.requirement("D-mcp-09")
def test_the_mcp_package_is_a_dependency_of_the_tests_alone():
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    told = [project["project"].get("dependencies"), project["project"].get("optional-dependencies")]

    assert "mcp" not in str(told)
    assert any(line.startswith("mcp>=2") for line in project["dependency-groups"]["tests"])
