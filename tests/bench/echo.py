"""The far end of the round-trip floor: reads JSON lines on a Unix socket and sends each one back.

Started as a process of its own with the socket's path; it says a line when it listens, and ends with its
standard input.
"""

import asyncio
import json
import sys


async def _serve(path: str) -> None:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            writer.write(json.dumps(json.loads(line)).encode() + b"\n")
            await writer.drain()
        writer.close()

    async with await asyncio.start_unix_server(echo, path):
        sys.stdout.write("listening\n")
        sys.stdout.flush()
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(_serve(sys.argv[1]))
