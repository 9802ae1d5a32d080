"""`herd mcp` as a process: its first answer, its lines, whose session it serves, and how it ends."""

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from herd.core.identity import SessionName
from herd.core.limits import MCP_FRAME_BYTES
from herd.core.locks import HeldLock, probe
from herd.hosts.adapter import adapter_of
from herd.mcp.tools import OUTPUTS
from tests.fakes.command_line import Host
from tests.fakes.herd_mcp import HerdMcp
from tests.fakes.herd_session import HERD, WAIT_S, HerdSession, environment
from tests.fakes.mcp_frames import ERAS, HANDSHAKE, MODERN, OLDER, Era, McpError, Refused, line, request
from tests.processes.conftest import Machine

ALICE, BOB = SessionName("claude", "alice"), SessionName("codex", "bob")

eras = pytest.mark.parametrize("era", ERAS, ids=lambda era: era.version)

NO_LOCALE = {"LANG": "C", "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
"""What a process of ours may find, and no more: text has to be UTF-8 all the same."""


def starting(machine: Machine, host: str = "claude", session_id: str | None = None, **more: Any) -> HerdMcp:
    """Start a server; it is ended with its test."""
    more.setdefault("parent", machine.host)
    return machine._stack.enter_context(HerdMcp(machine.home, host, session_id, **more))


def serving(machine: Machine, session: SessionName, **more: Any) -> HerdMcp:
    """Start a server for a session, and open its connection."""
    more.setdefault("name", session.session_id)
    return starting(machine, session.host, session.session_id, **more).open()


def target_of_other(server: HerdMcp) -> str:
    [peer] = server.call("list_peers")["peers"]
    return str(peer["target"])


def texts(server: HerdMcp, **query: Any) -> list[str]:
    return [message["text"] for message in server.call("peer_messages", **query)["messages"]]


def refusal(server: HerdMcp, tool: str = "list_peers", **arguments: Any) -> Refused:
    with pytest.raises(Refused) as refused:
        server.call(tool, **arguments)
    return refused.value


def until_served(server: HerdMcp) -> dict[str, Any]:
    """Ask until the process serves its session; each try is a round trip."""
    for _ in range(10_000):
        try:
            return server.call("list_peers")
        except Refused as refused:
            assert refused.code == "SESSION_HELD"  # noqa: PT017 - the other outcome is what is waited for
    raise TimeoutError("the session is held still")


# --- the first answer ------------------------------------------------------------------------------

HEAVY = {"asyncio", "sqlite3", "pydantic", "filelock", "herd.coordinator.coordinator", "herd.mcp.server"}


@pytest.mark.requirement("D-mcp-02")
@pytest.mark.parametrize(
    "first",
    [
        request(1, "initialize", {"protocolVersion": "2025-11-25"}, era=HANDSHAKE),
        request(1, "server/discover", era=MODERN),
    ],
    ids=["initialize", "discover"],
)
def test_the_first_answer_stands_before_the_rest_is_loaded(machine: Machine, first: dict[str, Any]):
    # Both streams are one pipe, and the interpreter tells of each module once it is loaded.
    words = [sys.executable, "-X", "importtime", *HERD[1:], "mcp", "--host", "claude", "--session", "alice"]
    with subprocess.Popen(
        words,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=environment(machine.home),
        cwd=machine.home,
    ) as process:
        told = process.communicate(line(first), timeout=WAIT_S)[0].decode().splitlines()

    answered = next(number for number, one in enumerate(told) if one.startswith("{"))
    assert json.loads(told[answered])["id"] == 1
    loaded = [one.rpartition("|")[2].strip() for one in told]
    assert "herd.mcp.opening" in loaded[:answered]
    assert HEAVY.isdisjoint(loaded[:answered])
    assert set(loaded[answered:]) >= HEAVY


# --- what it says ----------------------------------------------------------------------------------


@pytest.mark.requirement("D-mcp-01")
@eras
def test_two_agents_exchange_messages_in_every_era(machine: Machine, era: Era):
    alice, bob = serving(machine, ALICE, era=era), serving(machine, BOB)
    assert [prompt["name"] for prompt in alice.request("prompts/list")["prompts"]] == [
        "peers",
        "inbox",
        "send",
    ]
    assert list(alice.tools) == ["list_peers", "message_peer", "peer_messages"]

    sent = alice.call("message_peer", target=target_of_other(alice), message="question")
    assert sent["status"] == "accepted"
    [message] = bob.call("peer_messages", wait_ms=5_000)["messages"]
    bob.call(
        "message_peer", target=message["from"]["target"], message="answer", reply_to=message["message_id"]
    )
    assert texts(alice, wait_ms=5_000) == ["answer"]
    assert (alice.end(), bob.end()) == (0, 0)


@pytest.mark.requirement("D-mcp-03")
@eras
def test_an_unknown_method_is_answered_so_and_the_process_goes_on(machine: Machine, era: Era):
    server = starting(machine, era=era)
    if not era.modern:
        with pytest.raises(McpError) as refused:
            server.request("nothing/like/this")
        assert refused.value.code == -32601
    server.open()
    for method in ("resources/list", "logging/setLevel", "tools"):
        with pytest.raises(McpError) as refused:
            server.request(method)
        assert refused.value.code == -32601
    assert server.request("tools/list")["tools"] != []


LOUD = """
import atexit, os, subprocess, sys, warnings
from herd.cli.main import main

class Loud:
    on = False
    def find_spec(self, name, path=None, target=None):
        self.on = self.on or name == "herd.mcp.process"
        if self.on:
            print("importing", name, flush=True)
            os.write(1, b"raw bytes\\n")
            warnings.warn("a warning")
            subprocess.run(["echo", "a child"])
            sys.__stdout__.write("half a line")
        return None

sys.meta_path.insert(0, Loud())
atexit.register(print, "at the end")
sys.exit(main())
"""


@pytest.mark.requirement("D-mcp-04")
@eras
def test_nothing_but_frames_reaches_the_output_whatever_prints(machine: Machine, era: Era):
    server = starting(machine, "claude", "alice", era=era, herd=(sys.executable, "-c", LOUD)).open()
    server.call("list_peers")
    assert server.end() == 0

    lines = server.raw.split(b"\n")
    assert lines.pop() == b""
    answers = [json.loads(one.decode("utf-8")) for one in lines]
    assert [answer["id"] for answer in answers] == list(range(1, len(answers) + 1))
    for told in ("importing", "raw bytes", "a warning", "a child", "half a line", "at the end"):
        assert told in server.stderr


@pytest.mark.requirement("D-mcp-05")
@pytest.mark.parametrize("first", [True, False])
def test_a_line_over_one_mebibyte_is_refused_and_the_process_goes_on(machine: Machine, first: bool):
    server = starting(machine)
    if not first:
        server.open()
    server.write(b'{"jsonrpc":"2.0","id":1,"x":"' + b"x" * MCP_FRAME_BYTES + b'"}\n')
    answer = server.frame()
    assert (answer["id"], answer["error"]["code"]) == (None, -32700)

    server.open()
    big = request(77, "tools/list", {"cursor": ""}, era=HANDSHAKE)
    room = MCP_FRAME_BYTES - len(line(big)) + 1
    big["params"]["cursor"] = "x" * room
    assert len(line(big)) == MCP_FRAME_BYTES + 1
    server.send(big)
    assert server.result(77)["tools"] != []


def test_many_requests_in_one_write_are_all_answered(machine: Machine):
    server = starting(machine)
    opening = request(0, "initialize", {"protocolVersion": "2025-06-18"}, era=OLDER)
    server.write(
        b"".join(line(one) for one in [opening, *(request(n, "ping", era=OLDER) for n in range(1, 500))])
    )

    assert sorted(server.frame()["id"] for _ in range(500)) == list(range(500))


@pytest.mark.requirement("A-tools-10")
@pytest.mark.parametrize("field", ["from_", "sender", "role", "call_id"])
def test_a_field_that_would_name_the_sender_is_refused_before_any_effect(machine: Machine, field: str):
    alice, bob = serving(machine, ALICE), serving(machine, BOB)
    target = target_of_other(alice)

    refused = refusal(alice, "message_peer", target=target, message="x", **{field: "lead:0000000000"})
    assert refused.code == "INVALID_PARAMS"
    assert refused.body["field"] == field.rstrip("_")
    assert texts(bob) == []
    assert not os.path.exists(machine.layout.mailbox(BOB.key))


@pytest.mark.requirement("C15", "D-mcp-04")
@pytest.mark.parametrize("coerced", ["0", "1"])
def test_any_script_is_byte_exact_through_command_line_server_and_mailbox_without_a_locale(
    machine: Machine, coerced: str
):
    surroundings = {**NO_LOCALE, "PYTHONCOERCECLOCALE": coerced}
    text = "漢字 한글 ไทย 👩‍👩‍👧‍👦🏽 e\u0301 = é? \u1e9b\u0323 🇩🇪 \u00a0\u2028\ufeff𐍈 ½"
    session = SessionName("claude", "会话-é")
    alice = serving(machine, session, name="alice-名", environ=surroundings)
    bob = serving(machine, BOB, name="bob-名", environ=surroundings, parent=machine.new_host())
    shell = machine.command_line(machine.host, environ=surroundings)

    assert shell.run("send", "bob-名".encode(), text.encode(), "--topic", "主题 é".encode()).status == 0
    [message] = bob.call("peer_messages", wait_ms=5_000)["messages"]
    assert (message["text"], message["topic"]) == (text, "主题 é")
    assert message["from"]["name"] == "alice-名"
    assert text[:10].encode() in bob.raw

    bob.call("message_peer", target=message["from"]["target"], message=text, reply_to=message["message_id"])
    shown = shell.run("inbox", "--wait", "5", "--json")
    assert shown.status == 0
    [answer] = shown.json["messages"]
    assert answer["text"] == text
    assert (alice.end(), bob.end()) == (0, 0)
    assert text.encode() in Path(machine.layout.mailbox(session.key)).read_bytes()


# --- the shapes of the command line ----------------------------------------------------------------


@pytest.mark.requirement("D-cli-11")
def test_the_json_of_a_command_has_the_shape_of_the_tool_that_does_the_same(machine: Machine):
    alice = serving(machine, ALICE)
    bob = serving(machine, BOB, parent=machine.new_host())
    told = {
        "list_peers": machine.inside.run("peers", "--json").json,
        "message_peer": machine.inside.run("send", "bob", "from a shell", "--topic", "t", "--json").json,
    }
    [message] = bob.call("peer_messages", wait_ms=5_000)["messages"]
    bob.call("message_peer", target=message["from"]["target"], message="back", reply_to=message["message_id"])
    told["peer_messages"] = machine.inside.run("inbox", "--wait", "5", "--json").json
    for tool, shape in told.items():
        jsonschema.validate(shape, OUTPUTS[tool], cls=jsonschema.Draft202012Validator)

    assert told["list_peers"] == alice.call("list_peers")
    assert told["message_peer"].keys() == {"message_id", "target", "status"}
    [shown] = told["peer_messages"]["messages"]
    assert shown.keys() == {"message_id", "from", "text", "received_at", "reply_to", "correlation_id"}


@pytest.mark.requirement("D-cli-11")
@pytest.mark.parametrize(
    ("words", "tool", "arguments", "status"),
    [
        (("send", "lead:0000000000", "x"), "message_peer", {"target": "lead:0000000000", "message": "x"}, 3),
        (("inbox", "--message", "nobody-sent-it"), "peer_messages", {"message_id": "nobody-sent-it"}, 3),
        (("inbox", "--message", "../x"), "peer_messages", {"message_id": "../x"}, 2),
    ],
)
def test_a_refusal_is_the_same_through_a_tool_and_on_standard_error(
    machine: Machine, words: tuple[str, ...], tool: str, arguments: dict[str, Any], status: int
):
    alice = serving(machine, ALICE)
    refused = machine.inside.run(*words, "--json")

    assert (refused.status, refused.stdout) == (status, b"")
    assert refused.refusal.keys() >= {"code", "message", "hint"}
    assert refused.refusal["code"] == refusal(alice, tool, **arguments).code


# --- whose session ---------------------------------------------------------------------------------


def of_sessions(machine: Machine) -> list[Path]:
    """Give whatever stands in the folders of records, locks and sessions."""
    return [path for room in ("peers", "locks", "sessions") for path in machine.home.glob(f"*/{room}/*")]


@pytest.mark.requirement("D-bind-02")
@eras
def test_a_process_that_never_learns_an_id_publishes_nothing_and_takes_no_lock(machine: Machine, era: Era):
    server = starting(machine, era=era).open()
    for tool, arguments in (
        ("list_peers", {}),
        ("message_peer", {"target": "lead:0000000000", "message": "x"}),
        ("peer_messages", {"wait_ms": 30_000}),
    ):
        assert refusal(server, tool, **arguments).code == "NO_SESSION"
    assert server.request("prompts/list")["prompts"] != []

    assert of_sessions(machine) == []
    assert server.end() == 0
    assert of_sessions(machine) == []


@pytest.mark.requirement("D-adapter-03", "D-bind-02")
@pytest.mark.parametrize("host", ["claude", "codex", "pi", "opencode"])
def test_the_environment_binds_no_session(machine: Machine, host: str):
    ids = (
        "CLAUDE_CODE_SESSION_ID",
        "CLAUDE_SESSION_ID",
        "CODEX_THREAD_ID",
        "CODEX_SESSION_ID",
        "PI_SESSION_ID",
    )
    server = starting(machine, host, environ=dict.fromkeys(ids, "alice")).open()

    assert refusal(server).code == "NO_SESSION"
    assert of_sessions(machine) == []


class Noticing(dict[str, str]):
    """An environment that notices what is asked of it."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: set[str] = set()

    def get(self, name: str, default: Any = None) -> Any:
        self.asked.add(name)
        return f"id in {name}"

    def __getitem__(self, name: str) -> str:
        return str(self.get(name))

    def __contains__(self, name: object) -> bool:
        self.asked.add(str(name))
        return True


@pytest.mark.requirement("D-adapter-03")
@pytest.mark.parametrize(
    ("host", "own"),
    [("claude", {"CLAUDE_CODE_SESSION_ID"}), ("codex", {"CODEX_THREAD_ID"}), ("terminal", set())],
)
def test_an_adapter_reads_the_variables_of_its_own_host_alone(host: str, own: set[str]):
    environ = Noticing()
    adapter = adapter_of(host)
    assert adapter is not None
    adapter.session_id(environ)

    assert environ.asked == own


@pytest.mark.parametrize("host", ["unknown", "opencode", "../claude", "adapter", "__init__"])
def test_a_host_that_is_not_known_has_no_adapter(host: str):
    assert adapter_of(host) is None


@pytest.mark.requirement("D-bind-04")
@eras
def test_a_session_held_elsewhere_puts_the_process_on_standby_and_names_the_holder(
    machine: Machine, era: Era
):
    holder = serving(machine, ALICE)
    record = Path(machine.layout.record(ALICE.key)).read_bytes()
    standby = serving(machine, ALICE, era=era)

    for tool, arguments in (("list_peers", {}), ("peer_messages", {})):
        refused = refusal(standby, tool, **arguments)
        assert refused.code == "SESSION_HELD"
        assert refused.body["holder"]["pid"] == holder.pid
        assert str(holder.pid) in refused.message
    assert Path(machine.layout.record(ALICE.key)).read_bytes() == record
    assert holder.call("list_peers")["self"]["name"] == "alice"

    assert standby.end() == 0
    assert Path(machine.layout.record(ALICE.key)).read_bytes() == record


def ends_its_input(holder: HerdMcp) -> None:
    assert holder.end() == 0


@pytest.mark.requirement("D-bind-05")
@pytest.mark.parametrize("end", [ends_its_input, HerdMcp.kill], ids=["end of input", "SIGKILL"])
def test_a_standby_takes_over_when_the_holder_ends(machine: Machine, end: Callable[[HerdMcp], None]):
    holder, bob = serving(machine, ALICE), serving(machine, BOB)
    standby = serving(machine, ALICE, name="successor")
    target = target_of_other(bob)
    bob.call("message_peer", target=target, message="waits for whoever comes")
    assert refusal(standby).body["holder"]["pid"] == holder.pid

    end(holder)
    assert until_served(standby)["self"]["name"] == "successor"
    assert texts(standby) == ["waits for whoever comes"]
    assert [peer["name"] for peer in bob.call("list_peers")["peers"]] == ["successor"]


def test_of_several_on_standby_one_takes_over_and_the_others_stay(machine: Machine):
    holder = serving(machine, ALICE)
    waiting = [serving(machine, ALICE, name=f"s{number}") for number in range(3)]
    for server in waiting:
        refusal(server)
    holder.kill()

    names = set()
    for _ in range(3):
        names.add(one_of(waiting))
        taken = next(server for server in waiting if not held(server))
        waiting.remove(taken)
        taken.kill()
    assert names == {"s0", "s1", "s2"}


def held(server: HerdMcp) -> bool:
    try:
        server.call("list_peers")
    except Refused:
        return True
    return False


def one_of(waiting: list[HerdMcp]) -> str:
    """Wait until one of them serves the session, and give its name."""
    for _ in range(10_000):
        for server in waiting:
            try:
                return str(server.call("list_peers")["self"]["name"])
            except Refused as refused:
                assert refused.code in {"SESSION_HELD", "NO_SESSION"}  # noqa: PT017 - see until_served
    raise TimeoutError("nobody took over")


def switches_of(pid: int) -> dict[str, int]:
    """Count how often each thread of a process has gone to sleep."""
    return {
        thread.name: int(told.split()[1])
        for thread in Path(f"/proc/{pid}/task").iterdir()
        for told in (thread / "status").read_text(encoding="utf-8").splitlines()
        if told.startswith("voluntary_ctxt_switches")
    }


@pytest.mark.requirement("D-bind-05")
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux counts them per thread")
def test_a_standby_sleeps_until_the_holder_ends(machine: Machine):
    holder, bob = serving(machine, ALICE), serving(machine, BOB)
    standby = serving(machine, ALICE)
    refusal(standby)
    target = target_of_other(bob)
    before: dict[str, int] = {}
    for _ in range(1_000):  # until the answer that it wrote has settled
        now = switches_of(standby.pid)
        if now == before:
            break
        before = now
        holder.request("ping")
    asleep = switches_of(standby.pid)

    for number in range(10):
        bob.call("message_peer", target=target, message=str(number))
        bob.call("list_peers")
        assert texts(holder, wait_ms=5_000) == [str(number)]
    assert switches_of(standby.pid) == asleep


@pytest.mark.parametrize(
    ("session_id", "name", "code"),
    [
        ("x" * 513, None, "INVALID_PARAMS"),
        (b"\xff\xfe", None, "INVALID_PARAMS"),
        ("alice", b"\xff", "INVALID_PARAMS"),
    ],
)
def test_a_session_that_cannot_be_named_is_told_by_the_tools(
    machine: Machine, session_id: Any, name: Any, code: str
):
    decoded = [None if one is None else os.fsdecode(one) for one in (session_id, name)]
    server = starting(machine, "claude", decoded[0], name=decoded[1]).open()

    assert refusal(server).code == code
    assert server.request("tools/list")["tools"] != []
    assert server.end() == 0


@pytest.mark.parametrize("host", ["terminal"])
def test_no_host_s_server_speaks_as_a_terminal_session(machine: Machine, host: str):
    server = starting(machine, host, "default").open()

    assert refusal(server).code == "CAPABILITY_DENIED"
    assert os.listdir(machine.layout.peers) == []


def test_a_data_root_that_cannot_be_used_is_told_by_the_tools(machine: Machine):
    (machine.home / "file").write_text("", encoding="utf-8")
    for root, code in ((str(machine.home / "file"), "UNSAFE_ENDPOINT"), ("relative", "INVALID_PARAMS")):
        server = starting(machine, "claude", "alice", environ={"HERD_HOME": root}).open()
        assert refusal(server).code == code
        assert server.end() == 0


def test_settings_that_are_wrong_are_told_by_the_tools_with_the_key(machine: Machine):
    settings = machine.home / "config" / "herd" / "config.toml"
    settings.parent.mkdir(parents=True)
    settings.write_text("[limits]\ninbox_mesages = 1\n", encoding="utf-8")
    server = starting(machine, "claude", "alice").open()

    refused = refusal(server)
    assert refused.code == "INVALID_PARAMS"
    assert "inbox_mesages" in refused.message


@pytest.mark.parametrize("words", [["--session", ""], ["--session"], [], ["--wrong"]])
def test_wrong_arguments_end_the_command(machine: Machine, words: list[str]):
    host = [] if words == [] else ["--host", "claude"]
    refused = machine.cron.run("mcp", *host, *words)

    assert (refused.status, refused.stdout) == (2, b"")
    assert "Traceback" not in refused.stderr


@pytest.mark.parametrize("number", [0, 1])
def test_a_closed_input_or_output_ends_the_command(machine: Machine, number: int):
    closed = ("sh", "-c", f'exec "$@" {number}>&-', "sh", *HERD)
    refused = machine.command_line(machine.cron.parent, herd=closed).run("mcp", "--host", "claude")

    assert refused.status == 4
    assert refused.stderr.startswith("herd: UNSAFE_ENDPOINT: standard ")


# --- binding to another session --------------------------------------------------------------------


def bound(session: HerdSession, name: SessionName) -> dict[str, Any]:
    return session.request(
        "session.bind", host=name.host, session_id=name.session_id, cwd="/", name=name.session_id
    )


@pytest.mark.requirement("D-bind-01")
def test_binding_anew_ends_the_session_before_in_order(machine: Machine):
    process, bob = machine.starting(None), serving(machine, BOB)
    bound(process, ALICE)
    first, second = SessionName("pi", "first"), SessionName("pi", "second")
    bound(process, first)
    assert not probe(machine.layout.session_lock(ALICE.key)).held
    to_first = target_of_other(bob)
    bob.call("message_peer", target=to_first, message="handed over")
    assert [one["text"] for one in process.request("session.read", wait_ms=5_000)["messages"]] == [
        "handed over"
    ]

    answer = bound(process, second)
    assert answer["target"] == process.request("session.whoami")["target"]
    assert sorted(os.listdir(machine.layout.peers)) == sorted(f"{one.key}.json" for one in (BOB, second))
    for lock in (machine.layout.session_lock, machine.layout.mailbox_lock):
        assert not probe(lock(first.key)).held
    assert len(os.listdir(machine.layout.run)) == 2

    bound(process, first)
    [again] = process.request("session.read")["messages"]
    assert (again["text"], again["again"]) == ("handed over", True)
    assert process.end() == 0
    assert os.listdir(machine.layout.peers) == [f"{BOB.key}.json"]


@pytest.mark.requirement("D-bind-03")
def test_each_session_of_one_process_gets_its_own_mail_and_no_other(machine: Machine):
    process, bob = machine.starting(None), serving(machine, BOB)
    sessions = [SessionName("pi", "first"), SessionName("pi", "second")]
    targets = {session: str(bound(process, session)["target"]) for session in sessions}
    shown: dict[str, str] = {}
    for session in sessions:
        bound(process, session)
        shown |= {peer["target"]: peer["name"] for peer in bob.call("list_peers")["peers"]}
    assert shown == {targets[session]: session.session_id for session in sessions}
    for session, target in targets.items():
        for number in range(2):
            bob.call("message_peer", target=target, message=f"{session.session_id} {number}")

    for session in sessions:
        bound(process, session)
        messages = process.request("session.read", wait_ms=5_000)["messages"]
        assert [one["text"] for one in messages] == [f"{session.session_id} {number}" for number in range(2)]
        process.request(
            "session.confirm", message_ids=[one["message_id"] for one in messages], evidence="a test"
        )
    for session in sessions:
        bound(process, session)
        assert process.request("session.read")["messages"] == []


def test_binding_the_same_session_again_changes_nothing(machine: Machine):
    process = machine.starting(None)
    first = bound(process, ALICE)
    record = Path(machine.layout.record(ALICE.key)).read_bytes()

    assert bound(process, ALICE) == first
    assert Path(machine.layout.record(ALICE.key)).read_bytes() == record


# --- its end ---------------------------------------------------------------------------------------


def leaves_nothing(machine: Machine) -> bool:
    locks = [machine.layout.session_lock(ALICE.key), machine.layout.mailbox_lock(ALICE.key)]
    left = [*os.listdir(machine.layout.peers), *os.listdir(machine.layout.run)]
    for path in locks:
        # A child of the process that has not come to its exec yet still has its files for a moment.
        HeldLock.acquire(path, wait_ms=int(WAIT_S * 1000)).release()
    return not left


@pytest.mark.requirement("D-mcp-11")
@eras
def test_the_end_of_the_input_ends_the_session_in_order(machine: Machine, era: Era):
    server = serving(machine, ALICE, era=era)
    server.begin_call("peer_messages", wait_ms=30_000)
    assert os.listdir(machine.layout.peers) == [f"{ALICE.key}.json"]

    assert server.end() == 0
    assert leaves_nothing(machine)
    assert server.stderr == ""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_that_asks_for_the_end_ends_the_session_in_order(machine: Machine, number: signal.Signals):
    server = serving(machine, ALICE)
    server.call("list_peers")
    os.kill(server.pid, number)

    assert server.wait() == 0
    assert leaves_nothing(machine)


@pytest.mark.requirement("D-mcp-11")
@pytest.mark.parametrize("said", [b"", b'{"jsonrpc":"2.0","id":1,"method":"ini', b"\n"])
def test_a_client_that_leaves_before_it_asks_leaves_nothing(machine: Machine, said: bytes):
    server = starting(machine, "claude", "alice")
    server.write(said)

    assert server.end() == 0
    assert server.raw == b""
    assert of_sessions(machine) == []


def test_a_host_that_dies_without_reading_ends_the_session_in_order(machine: Machine):
    server = serving(machine, ALICE)
    for number in range(200):  # their answers are far more than the pipe holds
        server.send(request(10_000 + number, "tools/list", era=HANDSHAKE))
    os.close(server._stdout)
    server._stdout = -1
    server.close_stdin()

    assert server.wait() == 0
    assert leaves_nothing(machine)
    assert server.stderr == ""


def test_what_a_killed_server_handed_over_without_evidence_is_given_again(machine: Machine):
    server, bob = serving(machine, ALICE), serving(machine, BOB)
    bob.call("message_peer", target=target_of_other(bob), message="once")
    assert texts(server, wait_ms=5_000) == ["once"]
    server.kill()

    successor = serving(machine, ALICE)
    [message] = successor.call("peer_messages")["messages"]
    assert (message["text"], message["again"]) == ("once", True)
    successor.call("list_peers")
    successor.kill()
    assert texts(serving(machine, ALICE)) == []


def test_the_host_whose_server_it_is_may_run_commands_for_its_session(machine: Machine):
    alone = machine.new_host()
    assert isinstance(alone, Host)
    serving(machine, ALICE, parent=alone)
    shell = machine.command_line(alone)

    assert shell.run("whoami", "--json").json["name"] == "alice"


# --- the end of the input --------------------------------------------------------------------------


def started_bare(home: Path) -> "subprocess.Popen[bytes]":
    words = [*HERD, "mcp", "--host", "shop", "--session", "s1"]
    return subprocess.Popen(
        words,
        env=environment(home),
        cwd=home,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def lines_of(*frames: dict[str, Any]) -> bytes:
    return b"".join(json.dumps(frame).encode() + b"\n" for frame in frames)


def opening() -> dict[str, Any]:
    params = {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "t", "version": "1"},
    }
    return {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}


def calling(number: int, name: str, **arguments: Any) -> dict[str, Any]:
    params = {"name": name, "arguments": arguments}
    return {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}


def test_what_was_asked_before_the_end_of_the_input_is_answered_and_a_wait_is_not_waited_for(home: Path):
    with started_bare(home) as process:
        asked = lines_of(opening(), calling(2, "list_peers"), calling(3, "peer_messages", wait_ms=30_000))
        out, said = process.communicate(asked, timeout=WAIT_S)

    answers = {frame["id"]: frame for frame in map(json.loads, out.splitlines())}
    assert (process.returncode, said) == (0, b"")
    assert answers[2]["result"]["structuredContent"]["peers"] == []
    assert 3 not in answers


def test_a_server_whose_answers_nobody_reads_ends_with_its_input_all_the_same(home: Path):
    with started_bare(home) as process:
        assert process.stdin is not None
        os.set_blocking(process.stdin.fileno(), False)
        frames = iter(range(2, 1_000_000))
        data = lines_of(opening())
        # Until both pipes are full: it waits for room, and reads ahead only so far.
        while select.select([], [process.stdin], [], 1)[1]:
            data = data or lines_of({"jsonrpc": "2.0", "id": next(frames), "method": "tools/list"})
            data = data[os.write(process.stdin.fileno(), data) :]
        process.stdin.close()

        assert process.wait(3 * WAIT_S) == 0
