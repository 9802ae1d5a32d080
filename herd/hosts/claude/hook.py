"""What a hook of Claude Code runs once its guard has seen a flag: one exchange with its session's server.

Run as `python -I -S hook.py FLAGFILE... EVENT` with the event's JSON on standard input; it is a program and
imports nothing of Herd. All it does has 200 ms; after that, and whenever nobody answers, it ends silently
with status 0, and the host goes on as if there were no hook.

The first flag file behind which somebody listens is the one: where machines share a home, another machine may
have left one of the same name. It has two lines: the path of a Unix socket, and a token for it. On that
socket go, all numbers unsigned and big-endian:

    to the server    b"HERD1"
                     2 bytes length, the token
                     2 bytes length, the name of the event
                     1 byte   1 where the input was longer than 8 MiB and only its beginning follows, else 0
                     4 bytes length, the input, byte for byte
    from the server  4 bytes length, what is to be printed, byte for byte
    to the server    b"!" once all of it was printed

The last byte is sent only after the write to standard output: without it the server knows that the host was
not given the text.
"""

import posix
import sys
from _signal import ITIMER_REAL, SIGALRM, setitimer, signal  # type: ignore[import-not-found]
from _socket import AF_UNIX, SOCK_STREAM, socket
from posix import _exit as end

# The modules above are those that cost nothing: `signal` and `socket` alone would double what a hook takes.

_SECONDS = 0.2
_MOST = 8 * 1024 * 1024
_PART = 1 << 20
_FLAG_BYTES = 4_096


def _exchange(flags: list[str], event: str) -> None:
    server, token = _connected(flags)
    told, is_cut = _read(0, _MOST)
    name = event.encode()
    server.sendall(b"".join((b"HERD1", _sized(token, 2), _sized(name, 2), bytes((is_cut,)))))
    server.sendall(len(told).to_bytes(4, "big"))
    server.sendall(told)
    shown = _exactly(server, int.from_bytes(_exactly(server, 4), "big"))
    setitimer(ITIMER_REAL, 0)  # half a text is worse than a late one
    while shown:
        shown = shown[posix.write(1, shown) :]
    server.sendall(b"!")


def _connected(flags: list[str]) -> tuple[socket, bytes]:
    for flag in flags:
        try:
            number = posix.open(flag, posix.O_RDONLY | posix.O_CLOEXEC)
            path, token = _read(number, _FLAG_BYTES)[0].split(b"\n")[:2]
            server = socket(AF_UNIX, SOCK_STREAM)
            server.connect(path)
        except (OSError, ValueError):
            continue
        return server, token
    raise EOFError


def _read(number: int, most: int) -> tuple[bytes, bool]:
    parts: list[bytes] = []
    size = 0
    while size <= most:
        part = posix.read(number, min(_PART, most + 1 - size))
        if not part:
            return b"".join(parts), False
        parts.append(part)
        size += len(part)
    return b"".join(parts)[:most], True


def _sized(data: bytes, width: int) -> bytes:
    return len(data).to_bytes(width, "big") + data


def _exactly(source: socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = source.recv(size - len(data))
        if not part:
            raise EOFError
        data += part
    return data


def _give_up(_number: int, _frame: object) -> None:
    end(0)


def _main() -> None:
    signal(SIGALRM, _give_up)
    setitimer(ITIMER_REAL, _SECONDS)
    try:  # noqa: SIM105 - contextlib is one more module to load
        _exchange(sys.argv[1:-1], sys.argv[-1])
    except Exception:  # noqa: BLE001, S110 - whatever it is, the host must not notice
        pass
    end(0)


if __name__ == "__main__":
    _main()
