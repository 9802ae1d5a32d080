"""The first answer, on real pipes: what is answered before anything is loaded, what is left to the server."""

import fcntl
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from herd.core.limits import MCP_FRAME_BYTES
from herd.mcp.opening import Opened, answer_first
from tests.fakes.mcp_frames import HANDSHAKE, MODERN, Era, line, notification, request

INITIALIZE = line(request(1, "initialize", {"protocolVersion": "2025-06-18"}, era=HANDSHAKE))
DISCOVER = line(request(1, "server/discover", era=MODERN))
NEWER = line(request(0, "server/discover", era=Era("2099-01-01", modern=True)))
PING = line(request(2, "ping", era=HANDSHAKE))


class Host:
    """The other ends of the two pipes."""

    def __init__(self) -> None:
        self.source, self._input = os.pipe()
        self._output, self.sink = os.pipe()

    def says(self, data: bytes) -> None:
        os.write(self._input, data)

    def leaves(self) -> None:
        os.close(self._input)
        self._input = -1

    def reads_nothing_more(self) -> None:
        os.close(self._output)
        self._output = -1

    def heard(self) -> list[dict[str, object]]:
        """Everything that was answered, once nothing more can be."""
        os.close(self.sink)
        self.sink = -1
        with open(os.dup(self._output), "rb") as file:
            return [json.loads(one) for one in file]

    def close(self) -> None:
        for number in (self.source, self._input, self._output, self.sink):
            if number >= 0:
                os.close(number)


@pytest.fixture
def host() -> Iterator[Host]:
    host = Host()
    yield host
    host.close()


def opened(host: Host) -> Opened:
    return answer_first(host.source, host.sink)


@pytest.mark.parametrize(("first", "modern"), [(INITIALIZE, False), (DISCOVER, True)])
def test_the_request_that_opens_an_era_is_answered_and_the_rest_is_left(
    host: Host, first: bytes, modern: bool
):
    host.says(first + PING + b'{"half":')

    assert opened(host) == Opened(host.source, host.sink, PING + b'{"half":', modern, ended=False)
    assert [answer["id"] for answer in host.heard()] == [1]


@pytest.mark.parametrize(
    "other",
    [
        PING,
        line(request(3, "tools/list", era=MODERN)),
        line(notification("notifications/initialized")),
        line([1]),
    ],
)
def test_any_other_frame_is_left_to_the_server_with_all_behind_it(host: Host, other: bytes):
    host.says(other + INITIALIZE)

    assert opened(host) == Opened(host.source, host.sink, other + INITIALIZE, None, ended=False)
    assert host.heard() == []


def test_a_request_in_pieces_is_put_together(host: Host):
    def speak() -> None:
        for at in range(len(INITIALIZE)):
            host.says(INITIALIZE[at : at + 1])

    speaking = threading.Thread(target=speak)
    speaking.start()
    found = opened(host)
    speaking.join()

    assert (found.left, found.modern) == (b"", False)


def test_bad_lines_and_a_refused_probe_are_answered_and_open_nothing(host: Host):
    host.says(b"nonsense\n\xff\n\n" + NEWER + INITIALIZE + PING)

    assert opened(host) == Opened(host.source, host.sink, PING, False, ended=False)
    answers = host.heard()
    assert [answer["id"] for answer in answers] == [None, None, 0, 1]
    codes = [answer["error"]["code"] for answer in answers if "error" in answer]  # type: ignore[index]
    assert codes == [-32700, -32700, -32022]


def test_a_line_that_is_too_long_is_answered_and_not_taken_for_the_next(host: Host):
    def speak() -> None:
        data = b"x" * (MCP_FRAME_BYTES + 1) + b"\n" + INITIALIZE
        for at in range(0, len(data), 4_096):
            host.says(data[at : at + 4_096])

    speaking = threading.Thread(target=speak)
    speaking.start()
    found = opened(host)
    speaking.join()

    assert (found.left, found.modern) == (b"", False)
    assert [answer["id"] for answer in host.heard()] == [None, 1]


@pytest.mark.parametrize("said", [b"", b'{"jsonrpc":"2.0"', b"\n \n", b"nonsense\n"])
def test_a_client_that_leaves_first_is_noticed(host: Host, said: bytes):
    host.says(said)
    host.leaves()

    assert opened(host).ended


def test_a_client_that_reads_no_answer_is_gone_too(host: Host):
    host.reads_nothing_more()
    host.says(INITIALIZE)

    assert opened(host).ended


def test_pipes_that_do_not_block_are_waited_for(host: Host):
    for number in (host.source, host.sink):
        flags = fcntl.fcntl(number, fcntl.F_GETFL)
        fcntl.fcntl(number, fcntl.F_SETFL, flags | os.O_NONBLOCK)
    room = fill(host.sink)
    found: list[Opened] = []
    serving = threading.Thread(target=lambda: found.append(opened(host)))
    serving.start()
    host.says(INITIALIZE)
    drain(host, room)
    serving.join(20)

    assert found[0].modern is False
    assert [answer["id"] for answer in host.heard()] == [1]


def fill(number: int) -> int:
    """Fill a pipe and give how much it took."""
    taken = 0
    try:
        while True:
            taken += os.write(number, b"\n" * 4_096)
    except BlockingIOError:
        return taken


def drain(host: Host, size: int) -> None:
    while size:
        size -= len(os.read(host._output, size))


# --- taking standard input and output over ---------------------------------------------------------

TAKE_OVER = """
import os, sys
from herd.mcp.opening import take_over
source, sink = take_over()
assert source > 2 and sink > 2, (source, sink)
print("printed")
sys.stdout.flush()
os.system("echo by a child")
os.write(1, b"written")
assert os.read(0, 10) == b""
assert not os.get_inheritable(source) and not os.get_inheritable(sink)
os.write(sink, b"[" + os.read(source, 100) + b"]")
"""


def taken_over(words: str = "") -> subprocess.CompletedProcess[bytes]:
    script = f'exec "$0" -c "$1" {words}'
    return subprocess.run(
        ["sh", "-c", script, sys.executable, TAKE_OVER], input=b"frame", capture_output=True, check=False
    )


@pytest.mark.requirement("D-mcp-04")
def test_whatever_prints_reaches_standard_error_and_never_the_wire():
    ended = taken_over()

    assert (ended.returncode, ended.stdout) == (0, b"[frame]")
    for told in (b"printed", b"by a child", b"written"):
        assert told in ended.stderr


def test_a_closed_standard_error_does_not_lead_prints_to_the_wire():
    ended = taken_over("2>&-")

    assert (ended.returncode, ended.stdout) == (0, b"[frame]")


@pytest.mark.parametrize("closed", ["<&-", ">&-"])
def test_without_standard_input_or_output_nothing_is_served(closed: str):
    ended = taken_over(closed)

    assert ended.returncode != 0
    assert b"UnsafeEndpoint" in ended.stderr
    assert ended.stdout == b""
