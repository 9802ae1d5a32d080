"""The source of every module of ours, and the search for places that break a rule.

Read as text, so that a module which no test imports is held to the rules as well.
"""

import ast
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PACKAGES = ("herd", "roles", "assignments", "federation")


class Module(NamedTuple):
    path: str
    source: str

    @property
    def tree(self) -> ast.Module:
        return parsed(self.source)


@cache
def parsed(source: str) -> ast.Module:
    return ast.parse(source)


@cache
def modules() -> list[Module]:
    """Every module of the four packages."""
    files = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
    return [Module(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")) for path in files]


Rule = Callable[[Module], Iterator[ast.AST]]


def broken(rule: Rule, allowed: Callable[[str], bool] = lambda _: False) -> list[str]:
    """Name every place where a rule is broken."""
    held = [module for module in modules() if not allowed(module.path)]
    return [f"{module.path}:{node.lineno}" for module in held for node in rule(module)]  # type: ignore[attr-defined]


def found(rule: Rule, source: str) -> bool:
    return any(True for _ in rule(Module("herd/example.py", source)))


def last_name(node: ast.AST) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def keyword(call: ast.Call, name: str) -> ast.expr | None:
    return next((given.value for given in call.keywords if given.arg == name), None)
