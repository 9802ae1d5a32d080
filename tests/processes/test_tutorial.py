"""The pages with examples are executed: each command runs, and prints what its page says, ids masked.

A block `console` is a shell: lines after `$ ` are commands, what follows each is its output. A block
`console second` is another shell, in which a command goes on while the first shell is used; a block of it
that has no command holds what that command printed. In a block `jsonl` lines after `-> ` are written to a
`herd session` and lines after `<- ` are its answers. A `herd peers` is repeated until it shows what its page
says, since a session in the other shell needs a moment to start, and `queued` counts where a page shows
`accepted`, once the message has been accepted.
"""

import json
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.fakes.herd_session import WAIT_S, HerdSession, environment

DOCS = Path(__file__).parents[2] / "docs"
HERD = (sys.executable, "-m", "herd.cli.main")

_BLOCK = re.compile(r"^```(console|console second|jsonl)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_MASKS = (
    (re.compile(r"\b\d+\.\d+\.\d+ · [0-9a-f]{12}"), "VERSION · BUILD"),
    (re.compile(r'"version": "[^"]*", "sha256": "[0-9a-f]{64}"'), "BUILD"),
    (re.compile(r"SQLite \d+\.\d+\.\d+"), "SQLite VERSION"),
    (re.compile(r"/herd/[0-9a-f]{12} on \w+"), "/herd/MACHINE on TYPE"),
    (re.compile(r"^ok   machine: .*$", re.MULTILINE), "ok   machine: ..."),
    (re.compile(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"), "TIME"),
    (re.compile(r'"cursor": "\d+"'), '"cursor": "..."'),
)


class Block(NamedTuple):
    """One executable block of a page."""

    kind: str
    text: str


class Spoken(NamedTuple):
    """One command of a block and the output that its page shows; the command is empty where there is none."""

    command: str
    output: str


def blocks_of(page: str) -> list[Block]:
    text = (DOCS / page).read_text(encoding="utf-8")
    return [Block(*found) for found in _BLOCK.findall(text)]


def spoken_in(block: Block) -> Iterator[Spoken]:
    """Divide a shell's block into its commands."""
    before, *rest = re.split(r"^\$ ", block.text, flags=re.MULTILINE)
    if before:
        yield Spoken("", before)
    for part in rest:
        command, _, output = part.partition("\n")
        yield Spoken(command, output)


class Ids:
    """The ids of a page and those that stand for them in this run, bound in the order of their appearance."""

    def __init__(self) -> None:
        self._real: dict[str, str] = {}

    def real(self, text: str) -> str:
        """Give a text of the page with this run's ids in it."""
        return _ID.sub(lambda found: self._real.get(found[0], found[0]), text)

    def learn(self, shown: str, real: str) -> None:
        """Bind the ids that an output has to those at the same places on the page."""
        for on_page, in_run in zip(_ID.findall(shown), _ID.findall(real), strict=False):
            self._real.setdefault(on_page, in_run)


class Reader:
    """Somebody who follows a page in two shells.

    Args:
        home: The data root; the pages call it the one that everybody has by default.
        folder: Where both shells are.
    """

    def __init__(self, home: Path, folder: Path) -> None:
        self._places = (
            (str(home / "config"), "/home/you/.config"),
            (str(home), "/home/you/.local/state/herd"),
            (str(folder), "/home/you/shop"),
        )
        self._folder = folder
        self._environment = environment(home)
        self._ids = Ids()
        self._status = 0
        self._waiting: subprocess.Popen[str] | None = None

    def follow(self, blocks: list[Block]) -> None:
        """Do everything that the shells' blocks of a page say."""
        for block in blocks:
            for spoken in spoken_in(block):
                if block.kind == "console":
                    self._first(spoken)
                else:
                    self._second(spoken)

    def stop(self) -> None:
        """End what still runs in the second shell."""
        if self._waiting is not None:
            self._waiting.kill()
            self._waiting.communicate()

    def compare(self, shown: str, printed: str) -> None:
        """Compare what a page shows with what came."""
        printed = self._on_page(printed)
        self._ids.learn(shown, printed)
        assert masked(printed) == masked(self._ids.real(shown))

    def real(self, text: str) -> str:
        """Give a text of the page as it is in this run."""
        return self._ids.real(text)

    def _first(self, spoken: Spoken) -> None:
        if spoken.command == "echo $?":
            assert spoken.output == f"{self._status}\n"
            return
        printed = self._run(spoken.command)
        give_up = time.monotonic() + WAIT_S
        while "herd peers" in spoken.command and self._on_page(printed) != spoken.output:
            assert time.monotonic() < give_up, printed
            printed = self._run(spoken.command)
        if "herd send" in spoken.command and printed.endswith("  queued\n"):
            self._brought_on_its_way(spoken, printed)
            return
        self.compare(spoken.output, printed)

    def _brought_on_its_way(self, spoken: Spoken, printed: str) -> None:
        """Do what pages say of a message that a busy machine took too long over: start its sender again."""
        self._ids.learn(spoken.output, printed)
        sender = shlex.split(spoken.command)[3]
        message = printed.partition(" ")[0]
        give_up = time.monotonic() + WAIT_S
        while "pending" in self._run(f"herd status --as {sender} {message}"):
            assert time.monotonic() < give_up, printed
            self._run(f"herd inbox --as {sender}")

    def _on_page(self, printed: str) -> str:
        """Give an output with the folders that the pages name."""
        for real, on_page in self._places:
            printed = printed.replace(real, on_page)
        return printed

    def _second(self, spoken: Spoken) -> None:
        if spoken.command:
            assert self._waiting is None, "one command at a time runs in the second shell"
            self._waiting = self._started(spoken.command)
            return
        assert self._waiting is not None, "its output needs a command"
        printed, _ = self._waiting.communicate(timeout=WAIT_S)
        self._waiting = None
        self.compare(spoken.output, printed)

    def _run(self, command: str) -> str:
        with self._started(command) as child:
            printed, _ = child.communicate(timeout=WAIT_S)
            self._status = child.returncode
        return printed

    def _started(self, command: str) -> subprocess.Popen[str]:
        name, *words = shlex.split(self._ids.real(command))
        assert name == "herd"
        return subprocess.Popen(
            [*HERD, *words],
            cwd=self._folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
        )


def masked(text: str) -> str:
    for pattern, word in _MASKS:
        text = pattern.sub(word, text)
    return text


@pytest.fixture
def reader(home: Path, tmp_path: Path) -> Iterator[Reader]:
    one = Reader(home, tmp_path)
    yield one
    one.stop()


@pytest.mark.timeout(240)  # some twenty commands, each a process that has to start
@pytest.mark.parametrize("page", ["tutorial/first-messages.md", "how-to/when-something-is-wrong.md"])
def test_every_command_of_a_page_prints_what_the_page_shows(page: str, reader: Reader):
    blocks = blocks_of(page)

    reader.follow(blocks)

    assert blocks


def test_every_page_with_executable_blocks_is_executed():
    executed = {
        "tutorial/first-messages.md",
        "how-to/when-something-is-wrong.md",
        "how-to/start-a-session-from-an-extension.md",
    }
    pages = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")}

    assert {page for page in pages if blocks_of(page)} == executed


def exchanges_of(page: str) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Give the requests of a page with the answers that it shows."""
    lines = [line for block in blocks_of(page) if block.kind == "jsonl" for line in block.text.splitlines()]
    asked = [json.loads(line.removeprefix("-> ")) for line in lines if line.startswith("-> ")]
    answers = [json.loads(line.removeprefix("<- ")) for line in lines if line.startswith("<- ")]
    assert len(asked) + len(answers) == len(lines)
    return list(zip(asked, answers, strict=True))


def test_an_extension_gets_the_answers_that_its_page_shows(home: Path, tmp_path: Path, reader: Reader):
    exchanges = exchanges_of("how-to/start-a-session-from-an-extension.md")
    with (
        HerdSession(home, "shop", "a1", name="api", cwd=tmp_path) as api,
        HerdSession(home, "shop", "c1", name="checkout", cwd=tmp_path) as checkout,
    ):
        api.ready()
        checkout.ready()
        for asked, shown in exchanges:
            checkout.write(reader.real(json.dumps(asked)).encode() + b"\n")
            came = json.dumps(checkout.line())
            if asked["method"] == "session.send":
                answer(api)
                came = came.replace('"queued"', '"accepted"')  # the page calls both a good end
            reader.compare(json.dumps(shown), came)
        assert checkout.end() == 0

    assert [asked["method"] for asked, _ in exchanges][-1] == "session.update"


def answer(api: HerdSession) -> None:
    """Let the other session of the page do what the page tells of it."""
    (message,) = api.request("session.read", wait_ms=10_000)["messages"]
    sent = api.request(
        "session.send",
        target=message["from"]["target"],
        message="Yes, as integers.",
        reply_to=message["message_id"],
    )
    give_up = time.monotonic() + WAIT_S
    while api.request("session.status", message_id=sent["message_id"])["state"] == "pending":
        assert time.monotonic() < give_up


# --- the reader itself -----------------------------------------------------------------------------


def test_a_block_is_divided_into_commands_and_their_outputs():
    block = Block("console", "$ herd one\nfirst\n  second\n$ herd two\n")

    assert list(spoken_in(block)) == [
        Spoken("herd one", "first\n  second\n"),
        Spoken("herd two", ""),
    ]
    assert list(spoken_in(Block("console second", "printed\n"))) == [Spoken("", "printed\n")]


def test_ids_are_bound_where_they_first_appear():
    page, run = "00000000-0000-0000-0000-00000000000", "11111111-1111-1111-1111-11111111111"
    ids = Ids()

    ids.learn(f"{page}1 and {page}2", f"{run}1 and {run}2")
    ids.learn(f"{page}1", f"{run}3")

    assert ids.real(f"{page}2, {page}1, {page}9") == f"{run}2, {run}1, {page}9"


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        ("accepted\n", "queued\n"),
        ("lead:824ydyj1c2\n", "lead:jwj0rbm0nb\n"),
        ("/home/you/shop\n", "/elsewhere\n"),
        ("nothing new\n", ""),
    ],
)
def test_an_output_that_differs_fails(shown: str, printed: str, reader: Reader):
    with pytest.raises(AssertionError):
        reader.compare(shown, printed)


def test_a_second_appearance_of_an_id_has_to_be_the_same_one(reader: Reader):
    page, run = "00000000-0000-0000-0000-000000000001", "11111111-1111-1111-1111-111111111111"
    reader.compare(f"{page}\n", f"{run}\n")

    reader.compare(f"{page}\n", f"{run}\n")
    with pytest.raises(AssertionError):
        reader.compare(f"{page}\n", "22222222-2222-2222-2222-222222222222\n")


def test_what_differs_between_machines_is_masked():
    mine = "ok   build: 0.1.0 · e7256f8fe260, SQLite 3.40.1\nok   data root: /herd/0035969ec53f on ext4\n"
    yours = "ok   build: 2.0.0 · 0123456789ab, SQLite 3.53.0\nok   data root: /herd/abcdefabcdef on tmpfs\n"

    assert masked(mine) == masked(yours)
