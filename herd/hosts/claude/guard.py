"""The command that Claude Code runs at its hook events: a test in the shell, and Python only if it holds.

A hook runs at every prompt and after every tool call, so what it costs when nothing waits is paid all day.
The text below is run as `/bin/sh -c TEXT`; until the test holds it reads no input and starts no process. It
ends with status 0 whatever happens, since Claude Code shows a failing hook to the person.

This module knows where flags stand and nothing of who sets them (`herd.hosts.claude.flags`).
"""

import shlex

EVENTS = ("SessionStart", "UserPromptSubmit", "PostToolBatch", "Stop", "SessionEnd")
"""The events that the commands are installed for."""

PROMPT_SUFFIX = ".prompt"
"""What the name of a flag ends in that only a prompt needs."""

_MACHINES = "/*/hooks"
_OF_SESSION = '"$CLAUDE_CODE_SESSION_ID-$PPID"'
_FLAGS = {
    # These tell that the session changes, so they pass wherever a server of this process listens at all.
    "SessionStart": ('"$PPID"',),
    "SessionEnd": ('"$PPID"',),
    "UserPromptSubmit": (_OF_SESSION, _OF_SESSION + PROMPT_SUFFIX),
}


def hook_command(event: str, hooks_glob: str, python: str, script: str) -> str:
    """Give the shell text for one event.

    Args:
        event: One of `EVENTS`.
        hooks_glob: The folders with flags: `<data root>/*/hooks`, since a home that several machines share
            has a folder for each. Only that star is a pattern; whatever else stands in the root is quoted.
        python: The interpreter that runs the script.
        script: The path of `herd/hosts/claude/hook.py`.

    Raises:
        ValueError: the event is none of `EVENTS`, or the glob has another form.
    """
    root, machines, rest = hooks_glob.rpartition(_MACHINES)
    if event not in EVENTS or not machines or rest or not root.startswith("/"):
        raise ValueError(f"no hook for {event} below {hooks_glob}")
    folder = f"{shlex.quote(root)}{_MACHINES}"
    flags = " ".join(f"{folder}/{flag}" for flag in _FLAGS.get(event, (_OF_SESSION,)))
    # `-I -S`: nothing of the project's folder or of site-packages is loaded, and it starts in half the time.
    run = f'{shlex.quote(python)} -I -S {shlex.quote(script)} "$@" {event}'
    # Once for all flags, since the input can be read only once: one of them may be another machine's.
    given = f'set --; for f in {flags}; do if [ -e "$f" ]; then set -- "$@" "$f"; fi; done'
    return f"{given}; if [ $# -gt 0 ]; then {{ {run}; }} 2>/dev/null; fi; exit 0"
