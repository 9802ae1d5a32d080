"""The main job, shown: three sessions in a repository and its linked worktree exchange mail.

Everything is real: three MCP servers as processes of their own, as an agent's host starts them, their
sockets, their mailboxes, a kill. What each agent does it does with the tools; the status is what `herd
status` says in the sender's shell. The transcript says what was done and what came of it; the exit status is
not 0 if anything else came of it.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tests.demo.talker import Talker

_WAIT_MS = 10_000
_BOUND_S = 30


class Demo:
    """The scene: a data root, a repository, and who talks in it."""

    def __init__(self, stack: ExitStack) -> None:
        # Right under /tmp, since a socket's whole path may have 103 bytes.
        self._folder = Path(tempfile.mkdtemp(prefix="herd-demo-", dir="/tmp"))
        stack.callback(shutil.rmtree, self._folder, ignore_errors=True)
        self._stack = stack
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self._folder),
            "HERD_HOME": str(self._folder / "state"),
            "LANG": "C.UTF-8",
        }
        self.repository = self._folder / "shop"
        self.worktree = self._folder / "shop-checkout"

    def prepare(self) -> None:
        """Make a repository with one commit and a linked worktree."""
        identity = ("-c", "user.name=Demo", "-c", "user.email=demo@example.org")
        for arguments in (
            ("init", "-q", "-b", "main", str(self.repository)),
            ("-C", str(self.repository), *identity, "commit", "-q", "--allow-empty", "-m", "Begin"),
            ("-C", str(self.repository), "worktree", "add", "-q", str(self.worktree), "-b", "checkout"),
        ):
            subprocess.run(("git", *arguments), check=True, env=self.environment)

    def session(self, session_id: str, name: str, cwd: Path) -> Talker:
        """Start the server of a session, as a host does."""
        talker = Talker(session_id, name, cwd, self.environment)
        self._stack.callback(talker.end)
        return talker


def say(text: str) -> None:
    """Write a line of the transcript."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def expect(what: str, found: Any, wanted: Any) -> None:
    """Show an outcome, and end where it is not the expected one."""
    say(f"   {what}: {found}")
    if found != wanted:
        say(f"   EXPECTED {wanted}")
        raise SystemExit(1)


def target_named(talker: Talker, name: str) -> str:
    """Find a peer in a session's list."""
    peers = talker.call("list_peers")["peers"]
    return next(str(peer["target"]) for peer in peers if peer["name"] == name)


def play(demo: Demo) -> None:
    """Play the scene."""
    say(
        "1. A repository `shop` with a linked worktree `shop-checkout`; "
        "three sessions start, one process each."
    )
    demo.prepare()
    api = demo.session("11", "api", demo.repository)
    web = demo.session("22", "web", demo.repository)
    checkout = demo.session("33", "checkout", demo.worktree)
    for talker in (api, web, checkout):
        me = talker.call("list_peers")["self"]
        say(f"   {me['name']:9} {me['target']}  process {talker.pid}")

    say("2. Each lists the others.")
    for talker, others in (
        (api, ["checkout", "web"]),
        (web, ["api", "checkout"]),
        (checkout, ["api", "web"]),
    ):
        found = sorted(peer["name"] for peer in talker.call("list_peers")["peers"])
        expect(f"{talker.name} sees", found, others)

    sent = exchange(api, checkout)
    survive(demo, api, web, checkout)
    expect("the first message is still", reached(api, sent, "replied"), "replied")


def exchange(api: Talker, checkout: Talker) -> dict[str, Any]:
    """Send, read, answer, and watch the status; gives what the first send gave."""
    say("3. `api` asks `checkout`; the status tells what is proved, step by step.")
    target = target_named(api, "checkout")
    checkout.signal(signal.SIGSTOP)
    sent = api.call("message_peer", target=target, message="Does the cart keep prices in cents?")
    expect("sent while checkout's process is stopped", sent["status"], "queued")
    expect("status", status(api, sent), "pending")
    checkout.signal(signal.SIGCONT)
    expect("status once it goes on", reached(api, sent, "accepted"), "accepted")
    mail = checkout.call("peer_messages", wait_ms=_WAIT_MS)["messages"]
    expect("checkout reads", [message["text"] for message in mail], ["Does the cart keep prices in cents?"])
    expect("status after reading", status(api, sent), "accepted")
    checkout.call("list_peers")
    expect(
        "status after checkout's next call, which is the evidence",
        reached(api, sent, "delivered"),
        "delivered",
    )
    answer = checkout.call(
        "message_peer",
        target=mail[0]["from"]["target"],
        message="Yes, as integers.",
        reply_to=sent["message_id"],
    )
    reply = api.call("peer_messages", wait_ms=_WAIT_MS, reply_to=sent["message_id"])["messages"]
    expect("status of the answer", reached(checkout, answer, "accepted"), "accepted")
    expect(
        "api reads the answer",
        [(one["text"], one["reply_to"]) for one in reply],
        [("Yes, as integers.", sent["message_id"])],
    )
    expect("status after the answer came", reached(api, sent, "replied"), "replied")
    return sent


def survive(demo: Demo, api: Talker, web: Talker, checkout: Talker) -> None:
    """Kill the receiver with mail waiting, write on, and start it again."""
    say("4. `checkout` gets SIGKILL while mail waits; two more messages are sent while it is down.")
    target = target_named(api, "checkout")
    expect(
        "before the kill",
        reached(api, api.call("message_peer", target=target, message="one"), "accepted"),
        "accepted",
    )
    checkout.kill()
    for talker, text in ((api, "two"), (web, "three")):
        sent = talker.call("message_peer", target=target, message=text)
        expect(
            f"while it is down, {talker.name}",
            (reached(talker, sent, "accepted"), sent.get("peer_running", True)),
            ("accepted", False),
        )

    say("5. The same session starts again, and has everything, once.")
    again = demo.session("33", "checkout", demo.worktree)
    mail = again.call("peer_messages", wait_ms=_WAIT_MS)["messages"]
    expect("checkout reads", [message["text"] for message in mail], ["one", "two", "three"])
    expect("and then", again.call("peer_messages")["messages"], [])


def status(talker: Talker, sent: dict[str, Any]) -> str:
    """Ask in the sender's shell what became of a message."""
    return str(talker.shell("status", sent["message_id"])["state"])


def reached(talker: Talker, sent: dict[str, Any], wanted: str) -> str:
    """Ask until the status is the expected one, as a busy machine may need a moment; gives the last one."""
    deadline = time.monotonic() + _BOUND_S
    while (found := status(talker, sent)) != wanted and time.monotonic() < deadline:
        pass
    return found


def main() -> int:
    """Play the demo and give its exit status."""
    if shutil.which("git") is None:
        say("The demo needs git.")
        return 2
    with ExitStack() as stack:
        play(Demo(stack))
    say("All outcomes were the expected ones.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
