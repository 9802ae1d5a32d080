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


def add_session(parser: argparse.ArgumentParser) -> None:
    """Add `--session TARGET`."""
    parser.add_argument(
        "--session",
        dest="other",
        metavar="TARGET",
        help="look at another session of yours; nothing there changes",
    )
