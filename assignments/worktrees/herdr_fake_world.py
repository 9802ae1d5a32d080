"""What a faked Herdr knows, and its results in Herdr's own shapes: workspaces, repositories, agents.

It changes nothing, and what is optional is left out. Whoever serves it, it does not know. Looks at paths, so
call it in a thread.
"""

import os
from typing import Any, NamedTuple


class Row(NamedTuple):
    """One checkout of a repository, as `worktree.list` has it."""

    path: str
    branch: str | None = "main"
    linked: bool = False
    bare: bool = False
    prunable: bool = False


class Repository(NamedTuple):
    """A worktree group; its first row is the primary checkout."""

    key: str
    rows: tuple[Row, ...]
    also: tuple[str, ...] = ()
    """Folders that git finds it from and does not list: the checkout of a submodule, a forged one."""

    @property
    def root(self) -> str:
        """The folder of the primary checkout."""
        return self.rows[0].path

    @property
    def name(self) -> str:
        """What its checkouts are labelled with."""
        return os.path.basename(self.root)


class Workspace(NamedTuple):
    """An open workspace with one tab and one pane, and the agent that runs in there."""

    workspace_id: str
    cwd: str
    agent: str | None = "pi"
    agent_name: str | None = None
    session_path: str | None = None
    status: str = "idle"


class RequestRefused(Exception):
    """Herdr's error for a request; `code` is what the answer says."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class HerdrWorld(NamedTuple):
    """One Herdr server's state."""

    repositories: tuple[Repository, ...] = ()
    """The worktree groups that its git would find."""
    workspaces: tuple[Workspace, ...] = ()
    """The open ones; the first is the focused one."""
    protocol: int = 22
    """The protocol it names."""

    def knows(self, method: str) -> bool:
        """Tell whether it has a method."""
        return method in self._methods()

    def result(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Give the result of a method that it has.

        Raises:
            RequestRefused: Herdr would answer with an error.
        """
        result: dict[str, Any] = self._methods()[method](params)
        return result

    def _methods(self) -> dict[str, Any]:
        return {
            "ping": self._pong,
            "worktree.list": self._worktrees,
            "agent.list": self._agents,
            "workspace.list": self._workspaces,
            "session.snapshot": self._snapshot,
        }

    def _pong(self, _: dict[str, Any]) -> dict[str, Any]:
        able = {"live_handoff": True, "detached_server_daemon": True}
        if self.protocol > 20:  # noqa: PLR2004 - what 0.9 added
            able |= {"surface_interest": True, "health_check": True}
        return {
            "type": "pong",
            "version": self._version(),
            "protocol": self.protocol,
            "capabilities": able,
        }

    def _version(self) -> str:
        return {20: "0.8.2", 21: "0.9.0-dev"}.get(self.protocol, "0.9.1")

    def _worktrees(self, params: dict[str, Any]) -> dict[str, Any]:
        repository = self._repository(params)
        source = {
            "repo_key": repository.key,
            "repo_name": repository.name,
            "repo_root": repository.root,
            "source_checkout_path": repository.root,
            "source_workspace_id": self._open_in(repository.root),
        }
        rows = [self._row(repository, row) for row in repository.rows]
        return {"type": "worktree_list", "source": _without_none(source), "worktrees": rows}

    def _row(self, repository: Repository, row: Row) -> dict[str, Any]:
        return _without_none(
            {
                "path": row.path,
                "branch": None if row.bare else row.branch,
                "is_bare": row.bare,
                "is_detached": row.branch is None and not row.bare,
                "is_prunable": row.prunable,
                "is_linked_worktree": row.linked,
                "open_workspace_id": self._open_in(row.path),
                "label": repository.name,
            }
        )

    def _repository(self, params: dict[str, Any]) -> Repository:
        workspace_id, cwd = params.get("workspace_id"), params.get("cwd")
        if workspace_id is not None and cwd is not None:
            raise RequestRefused("invalid_request", "workspace_id and cwd exclude each other")
        if cwd is None:
            cwd = self._workspace(workspace_id).cwd
        if not cwd.startswith(("/", "~")):
            raise RequestRefused("invalid_request", "cwd is not absolute")
        found = self._nearest(os.path.realpath(cwd))
        if found is None:
            raise RequestRefused("not_git_worktree", f"{cwd} is not inside a git worktree")
        return found[1]

    def _workspace(self, workspace_id: str | None) -> Workspace:
        for one in self.workspaces:
            if workspace_id is None or one.workspace_id == workspace_id:
                return one
        raise RequestRefused("workspace_not_found", f"workspace {workspace_id} not found")

    def _nearest(self, folder: str) -> tuple[str, Repository] | None:
        """Give the checkout a folder lies in, and its repository."""
        rows = {
            os.path.realpath(path): one
            for one in self.repositories
            for path in (*(row.path for row in one.rows), *one.also)
        }
        while folder not in rows:
            if folder == "/":
                return None
            folder = os.path.dirname(folder)
        return folder, rows[folder]

    def _open_in(self, path: str) -> str | None:
        for one in self.workspaces:
            found = self._nearest(os.path.realpath(one.cwd))
            if found is not None and found[0] == os.path.realpath(path):
                return one.workspace_id
        return None

    def _agents(self, _: dict[str, Any]) -> dict[str, Any]:
        return {"type": "agent_list", "agents": self._all(_agent)}

    def _workspaces(self, _: dict[str, Any]) -> dict[str, Any]:
        return {"type": "workspace_list", "workspaces": self._all(_workspace)}

    def _snapshot(self, _: dict[str, Any]) -> dict[str, Any]:
        snapshot = {
            "version": self._version(),
            "protocol": self.protocol,
            "workspaces": self._all(_workspace),
            "tabs": self._all(_tab),
            "panes": self._all(_pane),
            "layouts": [],
            "agents": self._all(_agent),
        }
        if self.workspaces:
            first = _pane(1, self.workspaces[0])
            snapshot |= {f"focused_{part}_id": first[f"{part}_id"] for part in ("workspace", "tab", "pane")}
        return {"type": "session_snapshot", "snapshot": snapshot}

    def _all(self, shape: Any) -> list[dict[str, Any]]:
        shaped = (shape(number, one) for number, one in enumerate(self.workspaces, 1))
        return [one for one in shaped if one is not None]


def _pane(number: int, one: Workspace) -> dict[str, Any]:
    session = one.session_path and {
        "source": f"herdr:{one.agent}",
        "agent": one.agent,
        "kind": "path",
        "value": one.session_path,
    }
    return _without_none(
        {
            "pane_id": f"{one.workspace_id}:p1",
            "terminal_id": f"term_{number:x}",
            "workspace_id": one.workspace_id,
            "tab_id": f"{one.workspace_id}:t1",
            "focused": number == 1,
            "cwd": one.cwd,
            "foreground_cwd": one.cwd,
            "agent": one.agent,
            "agent_status": one.status if one.agent else "unknown",
            "agent_session": session,
            "revision": 1,
        }
    )


def _agent(number: int, one: Workspace) -> dict[str, Any] | None:
    if one.agent is None:
        return None
    return _without_none({**_pane(number, one), "name": one.agent_name, "state_change_seq": 1})


def _tab(number: int, one: Workspace) -> dict[str, Any]:
    pane = _pane(number, one)
    kept = {name: pane[name] for name in ("tab_id", "workspace_id", "focused", "agent_status")}
    return {**kept, "number": 1, "label": "1", "pane_count": 1}


def _workspace(number: int, one: Workspace) -> dict[str, Any]:
    pane = _pane(number, one)
    kept = {name: pane[name] for name in ("workspace_id", "focused", "agent_status")}
    counts = {"pane_count": 1, "tab_count": 1, "active_tab_id": pane["tab_id"]}
    return {**kept, **counts, "number": number, "label": os.path.basename(one.cwd)}


def _without_none(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}
