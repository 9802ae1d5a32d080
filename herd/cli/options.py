"""The options that several commands share."""

import argparse


def add_as(parser: argparse.ArgumentParser) -> None:
    """Add `--as NAME`."""
    parser.add_argument(
        "--as",
        dest="as_name",
        metavar="NAME",
        help="act for this terminal session instead of the default one",
    )


SCOPES = ("machine", "repository", "workspace")
CAPABILITIES = ("message.send", "message.receive", "message.wait")
"""Written out here once more: parsing a command line imports neither the settings nor the registry."""

OWN_CHOICES = ("scope", "alias", "capabilities")
"""What `add_own_choices` adds."""


def add_scope(parser: argparse.ArgumentParser, help_text: str) -> None:
    """Add `--scope SCOPE`."""
    parser.add_argument("--scope", choices=SCOPES, help=help_text)


def add_own_choices(parser: argparse.ArgumentParser) -> None:
    """Add what is chosen for one session alone: its scope, alias and capabilities."""
    add_scope(parser, "how far this session reaches and is reached, in place of the configured scope")
    parser.add_argument(
        "--alias",
        help="the name to list the session under where its host gives none, in place of the configured one",
    )
    parser.add_argument(
        "--capability",
        dest="capabilities",
        action="append",
        choices=CAPABILITIES,
        help="what the session may do; given once for each, and without it everything",
    )


def add_session(parser: argparse.ArgumentParser) -> None:
    """Add `--session TARGET`."""
    parser.add_argument(
        "--session",
        dest="other",
        metavar="TARGET",
        help="look at another session of yours; nothing there changes",
    )
