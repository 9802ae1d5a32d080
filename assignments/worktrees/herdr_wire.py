"""What is read from Herdr's socket: pure functions from an answer to a worktree group.

Protocols 20 to 22 are known; fields that are not known are let through, and one that is missing proves
nothing.
"""

from typing import Any, NamedTuple

PROTOCOLS = range(20, 23)
_NO_REPOSITORY = "not_git_worktree"


class Refused(NamedTuple):
    """Herdr answered with an error."""

    code: str

    @property
    def no_repository(self) -> bool:
        """Whether it is the one error that is certain: the folder or workspace is in no repository."""
        return self.code == _NO_REPOSITORY


class Group(NamedTuple):
    """A worktree group as Herdr has it."""

    key: str
    """The real path of the common directory, by Herdr's word."""
    paths: frozenset[str]
    """The checkouts that are there, as Herdr names them."""
    workspaces: frozenset[str]
    """The workspaces that have one of them open."""


class Unreadable(ValueError):
    """An answer that lacks something, or has something else in its place; the message says what."""


def result_of(answer: dict[str, Any], asked: str, kind: str) -> dict[str, Any] | Refused:
    """Open the envelope of one answer.

    Args:
        answer: What came.
        asked: The id of the request.
        kind: The type that the result has to have.

    Raises:
        Unreadable: it is no answer to that request.
    """
    error = answer.get("error")
    if error is not None:
        code = error.get("code") if isinstance(error, dict) else None
        if not isinstance(code, str) or answer.get("id") not in {asked, ""}:
            raise Unreadable("its error is none that can be read")
        return Refused(code)
    result = answer.get("result")
    if answer.get("id") != asked or not isinstance(result, dict) or result.get("type") != kind:
        raise Unreadable(f"it is no {kind} for what was asked")
    return result


def protocol_of(pong: dict[str, Any]) -> int:
    """Give the protocol that a `pong` names.

    Raises:
        Unreadable: it names none, or one that this Herd does not know.
    """
    protocol = pong.get("protocol")
    if not isinstance(protocol, int) or protocol not in PROTOCOLS:
        raise Unreadable(f"its protocol {protocol!r:.20} is not one of {PROTOCOLS[0]} to {PROTOCOLS[-1]}")
    return protocol


def group_of(listed: dict[str, Any]) -> Group:
    """Give the group that a `worktree_list` is about.

    Raises:
        Unreadable: a field is missing, or two rows contradict each other.
    """
    source, rows = listed.get("source"), listed.get("worktrees")
    if not isinstance(source, dict) or not isinstance(rows, list) or not rows:
        raise Unreadable("source or worktrees is missing")
    for name in ("repo_root", "source_checkout_path"):
        _path(source, name)
    paths = [_path(row, "path") for row in rows]
    if len(set(paths)) != len(paths):
        raise Unreadable("it has a worktree twice")
    if sum(not _flag(row, "is_linked_worktree") for row in rows) != 1:
        raise Unreadable("it does not have exactly one primary checkout")
    opened = [one for one in (_open_in(row) for row in rows) if one is not None]
    if len(set(opened)) != len(opened):
        raise Unreadable("it has one workspace open in two worktrees")
    first = source.get("source_workspace_id")
    return Group(
        _path(source, "repo_key"),
        frozenset(path for path, row in zip(paths, rows, strict=True) if _is_there(row)),
        frozenset([*opened, *([first] if isinstance(first, str) else [])]),
    )


def _is_there(row: dict[str, Any]) -> bool:
    bare, prunable = _flag(row, "is_bare"), _flag(row, "is_prunable")
    return not bare and not prunable


def _open_in(row: dict[str, Any]) -> str | None:
    workspace = row.get("open_workspace_id")
    if workspace is not None and (not isinstance(workspace, str) or not workspace):
        raise Unreadable("open_workspace_id is no id")
    return workspace


def _path(holder: Any, name: str) -> str:
    value = holder.get(name) if isinstance(holder, dict) else None
    if not isinstance(value, str) or not value.startswith("/") or "\0" in value:
        raise Unreadable(f"{name} is missing or no absolute path")
    return value


def _flag(row: dict[str, Any], name: str) -> bool:
    value = row.get(name)
    if not isinstance(value, bool):
        raise Unreadable(f"{name} is missing or neither true nor false")
    return value
