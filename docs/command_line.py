"""The reference page of the command line, read off its argparse parser."""

import argparse
from collections.abc import Iterator

from docs.markdown import Undocumented, page, table


def command_line_page(parser: argparse.ArgumentParser) -> str:
    """Describe every command, as its parser has it.

    Raises:
        Undocumented: a command has no description, or an argument no help.
    """
    parts = [part for command in _commands(parser) for part in _command_parts(command)]
    return page("Command line", *parts, "Exit statuses and codes stand in [errors](errors.md#exit-statuses).")


def _commands(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    yield parser
    for action in _actions(parser):
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001 - argparse has no public way
            # An alias is the same parser under another name.
            for below in dict.fromkeys(action.choices.values()):
                yield from _commands(below)


def _command_parts(parser: argparse.ArgumentParser) -> list[str]:
    if not parser.description:
        raise Undocumented(f"{parser.prog} has no description")
    shown = [action for action in _actions(parser) if action.help != argparse.SUPPRESS]
    synopsis = " ".join([parser.prog, *(_synopsis(action) for action in shown)])
    rows = [_argument_row(parser, action) for action in shown]
    return [
        f"## `{parser.prog}`",
        parser.description,
        f"```\n{synopsis}\n```",
        *([table(("argument", "default", "meaning"), rows)] if rows else []),
        *([parser.epilog] if parser.epilog else []),
    ]


def _actions(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    actions = parser._actions  # noqa: SLF001 - argparse has no public way
    return [action for action in actions if not isinstance(action, argparse._HelpAction)]  # noqa: SLF001


def _value_name(action: argparse.Action) -> str:
    if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001 - argparse has no public way
        return "COMMAND ..."
    name = action.metavar or action.dest.upper()
    text = " ".join(name) if isinstance(name, tuple) else name
    return f"[{text}]" if action.nargs == "?" else f"{text}..." if action.nargs in {"*", "+"} else text


def _synopsis(action: argparse.Action) -> str:
    if not action.option_strings:
        return _value_name(action)
    value = "" if action.nargs == 0 else f" {_value_name(action)}"
    text = action.option_strings[-1] + value
    return text if action.required else f"[{text}]"


def _argument_row(parser: argparse.ArgumentParser, action: argparse.Action) -> tuple[str, str, str]:
    names = ", ".join(action.option_strings) or _value_name(action)
    default = "" if action.default in (None, False, "", argparse.SUPPRESS) else f"`{action.default}`"
    return f"`{names}`", default, _meaning(parser, action)


def _meaning(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001 - argparse has no public way
        return "One of the commands below."
    if not action.help:
        raise Undocumented(f"{parser.prog}: {action.dest} has no help")
    return parser._get_formatter()._expand_help(action)  # noqa: SLF001 - it puts in defaults and choices
