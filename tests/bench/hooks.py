"""Section hook: what a hook of Claude Code costs while nothing waits and while something does.

The floor of all of it is the interpreter itself, `python -I -S -c pass`. What is handed over is timed from
the acceptance of a message to the moment at which the hook of the woken turn has printed it, with the test in
Claude Code's part.
"""

import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from herd.hosts.claude import guard, hook
from herd.mail.header import NOTICE
from tests.bench.measuring import in_turn, percentile
from tests.bench.report import Check, Figure, Finding, timed_figure, timed_floor
from tests.bench.workshop import Workshop
from tests.fakes.fake_claude import WAIT_S, FakeClaude
from tests.fakes.herd_session import HerdSession

_SAMPLES = 40
_HANDED = 40
_LARGE = b"x" * 1_000_000
_PYTHON = os.path.realpath(sys.executable)
_ENVIRON = {"PATH": "/usr/bin:/bin", "CLAUDE_CODE_SESSION_ID": "s-1"}

_GUARD_BOUND = 0.25
_HOOK_BOUND = 1.5


def measure(workshop: Workshop) -> Iterator[Finding]:
    """Measure."""
    home = workshop.home()
    hooks = home / "0123456789ab" / "hooks"
    hooks.mkdir(parents=True)
    flag = hooks / "flag"
    flag.write_text("/nowhere\ntoken\n", encoding="utf-8")
    bare = [_PYTHON, "-I", "-S", "-c", "pass"]
    command = guard.hook_command("PostToolBatch", f"{home}/*/hooks", _PYTHON, hook.__file__)
    guarded = ["/bin/sh", "-c", command]
    script = [_PYTHON, "-I", "-S", hook.__file__, str(flag), "Stop"]
    found = in_turn(
        {
            "bare": lambda: _cpu(bare),
            "guard": lambda: _cpu(guarded),
            "large": lambda: _cpu(guarded, _LARGE),
            "hook": lambda: _cpu(script),
        },
        samples=_SAMPLES,
    )
    floor = timed_floor("python -I -S -c pass, CPU", found["bare"])
    yield timed_figure("guard, nothing waits, CPU", found["guard"], floor, _GUARD_BOUND)
    yield timed_figure("the same beside 1 MB of input", found["large"], floor, _GUARD_BOUND)
    yield timed_figure("hook, nobody answers, CPU", found["hook"], floor, _HOOK_BOUND)
    yield from _handed_over(workshop.home())


def _cpu(words: list[str], told: bytes = b"") -> float:
    """Run a program to its end and give the CPU seconds it took."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, env=_ENVIRON) as process:
        try:
            process.communicate(told)
        except BrokenPipeError:
            process.wait()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def _handed_over(home: Path) -> Iterator[Finding]:
    settings = home / "config" / "herd" / "config.toml"
    settings.parent.mkdir(parents=True)
    settings.write_text("[limits]\nwakes_per_hour = 1000\nrate_per_second = 1000\n", encoding="utf-8")
    taken, missing = [], 0
    with HerdSession(home, "codex", "other", name="other") as other, FakeClaude(home) as claude:
        other.ready()
        claude.program = hook.__file__
        claude.says("s-1")
        with claude.server() as server:
            server.open()
            target = _target(other)
            for number in range(_HANDED):
                sent = other.request("session.send", target=target, message=f"number {number}")
                began = time.perf_counter()
                claude.pushed.get(timeout=WAIT_S)
                text = claude.text("UserPromptSubmit", prompt=NOTICE)
                taken.append(time.perf_counter() - began)
                missing += sent["message_id"] not in text
                claude.says("s-1", "busy")
                claude.hook("Stop", stop_hook_active=False)
                claude.says("s-1")
    p95 = percentile(taken, 0.95) * 1_000
    yield Figure("acceptance to hand-over, idle host, p50", percentile(taken, 0.5) * 1_000, "ms")
    yield Figure("the same, p95", p95, "ms", bound=50.0)
    yield Check("every message was handed over", f"{missing} were not" if missing else None)


def _target(other: HerdSession) -> str:
    give_up = time.monotonic() + WAIT_S
    while time.monotonic() < give_up:
        peers = other.request("session.list")["peers"]
        if peers:
            return str(peers[0]["target"])
    raise TimeoutError("the session of Claude Code was not listed")
