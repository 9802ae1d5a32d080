"""The command `herd`: finds the command's module, parses, calls, and turns refusals into exit statuses.

A command's module is imported when it is called, so that `herd peers` pays for nothing that sending needs.
"""

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import NoReturn

from herd.cli import output
from herd.core.build import check_shadowing
from herd.core.errors import DONE, INTERNAL, HerdError, InvalidParams, RecoveryRequired
from herd.core.refusals import mending
from herd.core.version import VERSION

COMMANDS = {
    "peers": "herd.cli.peers",
    "send": "herd.cli.send",
    "inbox": "herd.cli.inbox",
    "status": "herd.cli.status",
    "cancel": "herd.cli.cancel",
    "log": "herd.cli.log",
    "recover": "herd.cli.recover",
    "purge": "herd.cli.purge",
    "whoami": "herd.cli.whoami",
    "assignments": "herd.cli.assignments",
    "doctor": "herd.cli.doctor",
    "session": "herd.cli.session",
    "mcp": "herd.cli.mcp",
    "install": "herd.cli.install",
    "uninstall": "herd.cli.uninstall",
}
"""Each command and the module that is it, in the order of the help."""

_INTERRUPTED = 130


class _HelpFormatter(argparse.HelpFormatter):
    """Asks how wide the terminal is when it writes, and not before.

    argparse makes a formatter for every argument that is declared, and asking imports compression and more,
    for a fifth of what the interpreter costs. Its own two attributes are what the width decides.
    """

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=80)

    def format_help(self) -> str:
        """Give the help, as wide as the terminal."""
        import shutil

        asked = argparse.HelpFormatter(self._prog, width=shutil.get_terminal_size().columns - 2)
        self._width, self._max_help_position = asked._width, asked._max_help_position  # noqa: SLF001
        return super().format_help()


class _Parser(argparse.ArgumentParser):
    """Refuses a wrong command line as every other refusal is made, as JSON where that was asked for."""

    def error(self, message: str) -> NoReturn:
        """See `argparse.ArgumentParser.error`."""
        raise InvalidParams(message, hint=" ".join(self.format_usage().split()))


def build_parser(only: str | None = None) -> argparse.ArgumentParser:
    """Give the parser.

    Args:
        only: Import and describe this command alone; all of them where None.
    """
    parser = _Parser(
        prog="herd",
        description="Coding-agent sessions of one person find each other and exchange messages.",
        formatter_class=_HelpFormatter,
    )
    parser.add_argument("--version", action="store_true", help="print version and build, and end")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", prog="herd")
    for name in [only] if only else COMMANDS:
        module = import_module(COMMANDS[name])
        child = commands.add_parser(
            name, help=module.HELP, description=module.DESCRIPTION, formatter_class=_HelpFormatter
        )
        child.add_argument("--json", action="store_true", help="print JSON, and refusals as JSON too")
        module.add_arguments(child)
        child.set_defaults(run=module.run)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and give its exit status."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        status = _status(words)
        output.flush()
    except output.OutputLostError as lost:
        return _lost(lost)
    except KeyboardInterrupt:
        return _INTERRUPTED
    return status


def _status(words: list[str]) -> int:
    options = words[: words.index("--")] if "--" in words else words
    try:
        return _run(words)
    except HerdError as refused:
        refusal = refused
    except OSError as fault:
        refusal = _unusable(fault)
    except SystemExit as ended:  # argparse has given its help
        return int(ended.code or DONE)
    output.complain(refusal, as_json="--json" in options)
    return refusal.exit_status


def _run(words: list[str]) -> int:
    check_shadowing()
    known = words[0] if words and words[0] in COMMANDS else None
    options = build_parser(known).parse_args(words)
    if options.version:
        return _version()
    if options.command is None:
        build_parser().print_help()
        return DONE
    status: int = options.run(options)
    return status


def _lost(lost: output.OutputLostError) -> int:
    output.abandon()
    if lost.reason:
        output.complain_of(f"herd: standard output cannot be written: {lost.reason}")
    return INTERNAL


def _unusable(fault: OSError) -> HerdError:
    """Turn what the disk or the kernel refused into a refusal that names the file."""
    file = fault.filename2 or fault.filename  # of a rename, the one that was meant to be there
    where = "" if file is None else f"{file}: "
    return RecoveryRequired(
        f"{where}{fault.strerror or fault}",
        hint=mending(fault)
        or "Free space, or mend what holds the data root; nothing that was accepted is lost.",
    )


def _version() -> int:
    from herd.core.build import running_build  # reads every file of ours

    output.put(f"herd {VERSION} · {running_build().sha256[:12]}")
    return DONE


if __name__ == "__main__":
    sys.exit(main())
