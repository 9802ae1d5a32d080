"""Scopes, aliases and capabilities of real sessions, in checkouts that git made."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from herd.core.errors import CapabilityDenied, HerdError, InvalidParams, ScopeDenied
from tests.fakes.checkouts import Checkouts
from tests.fakes.herd_mcp import HerdMcp
from tests.fakes.herd_session import HerdSession, SessionEndedError
from tests.fakes.mcp_frames import MODERN
from tests.processes.conftest import Machine


@pytest.fixture
def at(tmp_path: Path) -> Checkouts:
    return Checkouts(tmp_path)


def configured(home: Path, *lines: str) -> None:
    """Write the user's settings; None of them where there are no lines."""
    folder = home / "config" / "herd"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.toml").write_text("\n".join(lines) + "\n", encoding="utf-8")


def names(session: HerdSession | HerdMcp, **asking: Any) -> set[str]:
    """List, and give the names of the peers."""
    answer = (
        session.call("list_peers", **asking)
        if isinstance(session, HerdMcp)
        else session.request("session.list", **asking)
    )
    return {peer["name"] for peer in answer["peers"]}


# --- the two-session lab, its seventh scenario ------------------------------


@pytest.mark.requirement("A-discover-06", "A-discover-08", "A-discover-11", "A-discover-14")
def test_scenario_7_worktrees_at_repository_two_projects_at_machine_and_data_roots_apart(
    machine: Machine, home_of_another: Path, at: Checkouts
):
    one = machine.session("claude", "one", name="one", cwd=at.main)
    linked = machine.session("codex", "linked", name="linked", cwd=at.linked)
    clone = machine.session("pi", "clone", name="clone", cwd=at.clone)

    # Linked worktrees see each other at repository scope, and a separate clone does not see them.
    assert names(one, scope="repository") == {"linked"}
    assert names(linked, scope="repository") == {"one"}
    assert names(clone, scope="repository") == set()
    for session in (one, linked, clone):
        assert names(session, scope="workspace") == set()
    # Two projects see each other at machine scope.
    assert names(one) == names(one, scope="machine") == {"linked", "clone"}
    assert names(clone) == {"one", "linked"}
    clone.send(clone.until_listed("one"), "from another project")
    assert [message["text"] for message in one.request("session.read", wait_ms=20_000)["messages"]] == [
        "from another project"
    ]

    # The same folders on another data root: nobody there sees or reaches anybody here.
    with HerdSession(home_of_another, "claude", "away", name="away", cwd=at.linked) as away:
        target = away.ready().request("session.whoami")["target"]
        assert names(away) == set()
        assert "away" not in names(one)
        with pytest.raises(HerdError) as refused:
            one.request("session.send", target=target, message="over there?")
        assert refused.value.code == "UNKNOWN_TARGET"


@pytest.fixture
def home_of_another(tmp_path: Path) -> Path:
    """Another data root; its name is short, so that its sockets lie in it."""
    other = tmp_path / "other"
    other.mkdir(0o700)
    return other


# --- the user's scope and one session's own ---------------------------------


@pytest.mark.requirement("A-config-03", "A-discover-11", "A-discover-15")
@pytest.mark.parametrize("scope", ["machine", "repository", "workspace", None])
def test_the_configured_scope_is_the_default_and_bounds_every_call_of_the_session(
    machine: Machine, at: Checkouts, scope: str | None
):
    reached = {"machine": {"near", "far"}, "repository": {"near"}, "workspace": set(), None: {"near", "far"}}[
        scope
    ]
    if scope is not None:
        configured(machine.home, f'scope = "{scope}"')
    host = machine.new_host()
    one = machine.session("claude", "one", name="one", cwd=at.main, parent=host)
    for name, folder in (("near", at.linked), ("far", at.plain)):
        machine.session("pi", name, name=name, cwd=folder, options=["--scope", "machine"])

    assert one.request("session.whoami")["scope"] == (scope or "machine")
    assert names(one) == reached
    inside = machine.command_line(host, cwd=at.main)
    shown = inside.run("peers", "--json").json
    assert {peer["name"] for peer in shown["peers"]} == reached
    for asked in ("machine", "repository", "workspace"):
        found = inside.run("peers", "--json", "--scope", asked)
        order = ("workspace", "repository", "machine")
        if order.index(asked) > order.index(scope or "machine"):
            with pytest.raises(ScopeDenied):
                one.request("session.list", scope=asked)
            assert (found.status, found.refusal["code"]) == (4, "SCOPE_DENIED")
        else:
            assert names(one, scope=asked) == {peer["name"] for peer in found.json["peers"]}


@pytest.mark.requirement("A-config-03")
def test_a_scope_that_is_none_stops_the_start(machine: Machine):
    configured(machine.home, 'scope = "world"')
    with pytest.raises(SessionEndedError, match="'scope' is none of"):
        machine.session("claude", "one")
    configured(machine.home)
    with pytest.raises(SessionEndedError, match="--scope"):
        machine.session("claude", "one", options=["--scope", "world"])


@pytest.mark.requirement("A-discover-15")
@pytest.mark.parametrize("way", ["herd session --scope", "herd mcp --scope", "session.bind"])
def test_a_scope_for_one_session_takes_the_place_of_the_users_there_alone(
    machine: Machine, at: Checkouts, way: str
):
    configured(machine.home, 'scope = "workspace"')
    machine.session("pi", "near", name="near", cwd=at.linked, options=["--scope", "machine"])
    other = machine.session("codex", "other", name="other", cwd=at.main)
    own = ["--scope", "repository"]
    one: HerdSession | HerdMcp
    if way == "herd mcp --scope":
        one = HerdMcp(
            machine.home, "claude", "one", name="one", cwd=at.main, options=own, parent=machine.host
        )
    elif way == "session.bind":
        one = machine.starting(None)
        one.request(
            "session.bind", host="claude", session_id="one", name="one", cwd=str(at.main), scope="repository"
        )
    else:
        one = machine.session("claude", "one", name="one", cwd=at.main, options=own)
    with one:
        if isinstance(one, HerdMcp):
            one.open()
        assert names(one) == {"near", "other"}
        assert names(other) == {"one"}, "the user's, which takes in the same folder alone"


@pytest.mark.requirement("A-discover-09")
def test_a_send_to_who_sleeps_beyond_a_scope_is_refused_and_both_scopes_are_told(
    machine: Machine, at: Checkouts
):
    one = machine.session("claude", "one", name="one", cwd=at.plain)
    two = machine.session("pi", "two", name="two", cwd=at.plain, options=["--scope", "repository"])
    target = one.until_listed("two")
    two.request("session.update", cwd=str(at.main))
    one_is_gone = [peer for peer in one.request("session.list")["peers"] if peer["target"] == target]
    while one_is_gone:  # the ids follow the folder as soon as they are known
        one_is_gone = [peer for peer in one.request("session.list")["peers"] if peer["target"] == target]

    with pytest.raises(ScopeDenied, match="sender's scope is machine and the recipient's is repository"):
        one.request("session.send", target=target, message="hello")
    assert two.end() == 0
    with pytest.raises(ScopeDenied, match="sender's scope is machine and the recipient's is repository"):
        one.request("session.send", target=target, message="hello")
    refused = machine.command_line(machine.host, cwd=at.plain).run("send", "--json", target, "hello")
    assert refused.status == 4
    told = refused.refusal
    assert told["code"] == "SCOPE_DENIED"
    for word in ("scopes of both sessions", "run's delegation", "canonical workspace", "data root"):
        assert word in told["hint"]


def test_a_terminal_session_that_does_not_run_is_judged_by_its_folder(machine: Machine, at: Checkouts):
    machine.session("claude", "one", name="one", cwd=at.main, options=["--scope", "repository"])
    shells = {folder: machine.command_line(machine.terminal, cwd=folder) for folder in (at.linked, at.plain)}

    assert [peer["name"] for peer in shells[at.linked].run("peers", "--json").json["peers"]] == ["one"]
    assert shells[at.plain].run("peers", "--json").json["peers"] == []
    assert shells[at.linked].run("send", "one", "hello").status == 0
    assert shells[at.plain].run("send", "one", "hello").status == 3
    whoami = shells[at.plain].run("whoami", "--json").json
    assert whoami["scope"] == "machine"


# --- aliases -----------------------------------------------------------------


@pytest.mark.requirement("A-ident-07")
def test_an_alias_is_the_name_where_the_host_gives_none(machine: Machine, at: Checkouts):
    configured(machine.home, 'alias = "mine"')
    configured_one = machine.session("claude", "one")
    own = machine.session("pi", "two", options=["--alias", "builder"])
    named = machine.session("codex", "three", name="by its host", options=["--alias", "other"])
    shown = [one.request("session.whoami")["name"] for one in (configured_one, own, named)]

    assert shown == ["mine", "builder", "by its host"]
    assert names(configured_one) == {"builder", "by its host"}
    assert machine.shell.run("whoami", "--json").json["name"] == "terminal"


@pytest.mark.requirement("A-ident-07")
@pytest.mark.parametrize("alias", ["1st", "a b", "x" * 65, "naïve"])
@pytest.mark.parametrize("way", ["config.toml", "--alias", "session.bind"])
def test_what_is_no_alias_stops_the_start_and_is_shown(machine: Machine, alias: str, way: str):
    if way == "session.bind":
        session = machine.starting(None)
        with pytest.raises(InvalidParams) as refused:
            session.request(
                "session.bind", host="claude", session_id="one", cwd=str(machine.home), alias=alias
            )
        told = refused.value.message
    else:
        if way == "config.toml":
            configured(machine.home, f"alias = {json.dumps(alias, ensure_ascii=False)}")
        options = ["--alias", alias] if way == "--alias" else []
        with pytest.raises(SessionEndedError) as ended:
            machine.session("claude", "one", options=options)
        told = str(ended.value)
        assert "INVALID_PARAMS" in told
    assert alias in told
    assert not os.path.lexists(machine.layout.peers) or os.listdir(machine.layout.peers) == []


# --- capabilities --------------------------------------------------------------


SEND, RECEIVE, WAIT = "message.send", "message.receive", "message.wait"


def only(*capabilities: str) -> list[str]:
    return [word for one in capabilities for word in ("--capability", one)]


@pytest.mark.requirement("A-tools-12")
@pytest.mark.parametrize(
    ("held", "offered", "denied"),
    [
        ((SEND, RECEIVE, WAIT), {"list_peers", "message_peer", "peer_messages"}, {}),
        ((RECEIVE, WAIT), {"list_peers", "peer_messages"}, {"message_peer": {}}),
        ((SEND,), {"list_peers", "message_peer"}, {"peer_messages": {}}),
        ((SEND, RECEIVE), {"list_peers", "message_peer", "peer_messages"}, {"peer_messages": {"wait_ms": 5}}),
    ],
)
def test_a_server_offers_the_tools_of_the_sessions_capabilities_and_refuses_the_others(
    machine: Machine, held: tuple[str, ...], offered: set[str], denied: dict[str, dict[str, Any]]
):
    other = machine.session("pi", "other", name="other")
    with HerdMcp(machine.home, "claude", "one", era=MODERN, options=only(*held), parent=machine.host) as one:
        one.open()
        assert set(one.tools) == offered
        if "peer_messages" in offered:
            inputs = one.tools["peer_messages"]["inputSchema"]["properties"]
            assert ("wait_ms" in inputs) is (WAIT in held)
        assert names(one) == {"other"}
        target = one.call("list_peers")["peers"][0]["target"]
        arguments = {"message_peer": {"target": target, "message": "hello"}, "peer_messages": {}}
        # No session has what resources need yet, so nobody is offered that tool, and all are refused it.
        for tool, more in {**denied, "coordinate_resource": {}}.items():
            call = {"name": tool, "arguments": {**arguments.get(tool, {}), **more}}
            result = one.request("tools/call", call)
            assert result["isError"] is True
            assert result["structuredContent"]["code"] == "CAPABILITY_DENIED"
        for tool in offered - denied.keys() - {"list_peers"}:
            one.call(tool, **arguments[tool])
        waited = {"wait_ms": 20_000} if SEND in held else {}
        told = [message["text"] for message in other.request("session.read", **waited)["messages"]]
        assert told == ["hello"] * (SEND in held)


@pytest.mark.requirement("A-tools-12")
def test_an_extension_and_a_command_line_get_no_more_than_the_tools(machine: Machine):
    machine.session("pi", "other", name="other")
    one = machine.session("claude", "one", options=only(RECEIVE), parent=machine.new_host())
    host = machine.new_host()
    two = machine.starting(None, parent=host)
    two.request("session.bind", host="codex", session_id="two", cwd=str(machine.home), capabilities=[])

    assert [tool["name"] for tool in one.request("session.tools")["tools"]] == ["list_peers", "peer_messages"]
    assert [tool["name"] for tool in two.request("session.tools")["tools"]] == ["list_peers"]
    target = one.until_listed("other")
    assert two.until_listed("other") == target
    for session in (one, two):
        with pytest.raises(CapabilityDenied, match=r"message\.send"):
            session.request("session.send", target=target, message="hello")
        answer = session.request(
            "session.tool", name="message_peer", arguments={"target": target, "message": "hello"}
        )
        assert (answer["is_error"], "CAPABILITY_DENIED" in answer["text"]) == (True, True)
    composed = {"text": ":other hello", "references": [{"start": 0, "end": 6, "to": target}]}
    for session in (one, two):
        with pytest.raises(CapabilityDenied, match=r"message\.send"):
            session.request("session.compose", **composed)
    for method, params in (("read", {"wait_ms": 5}), ("read", {}), ("waiting", {}), ("drain", {})):
        with pytest.raises(CapabilityDenied, match=r"message\.receive"):
            two.request(f"session.{method}", **params)
    with pytest.raises(CapabilityDenied, match=r"message\.wait"):
        one.request("session.read", wait_ms=5)
    refused = machine.command_line(host).run("send", "--json", "other", "hello")
    assert (refused.status, refused.refusal["code"]) == (4, "CAPABILITY_DENIED")
