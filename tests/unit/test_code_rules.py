"""The rules that hold for every module of ours: import directions, environment, children, size.

They are read off the source, so that a module which no test imports is held to them as well. Each rule is
also shown to find what it forbids.
"""

import ast
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from herd.core import config

ROOT = Path(__file__).parents[2]
PACKAGES = ("herd", "roles", "assignments", "federation")

MODULE_LINES = 500
FUNCTION_LINES = 60


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


def test_every_module_of_the_four_packages_is_read():
    read = {module.path.partition("/")[0] for module in modules()}

    assert read == set(PACKAGES)


# --- imports ---------------------------------------------------------------------------------------


@pytest.fixture
def copied_tree(tmp_path: Path) -> Path:
    for package in PACKAGES:
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def import_directions(tree: Path) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-logo", "--no-cache"]
    environment = {"PYTHONPATH": str(tree), "PYTHONUTF8": "1"}
    return subprocess.run(
        command, cwd=tree, env=environment, capture_output=True, encoding="utf-8", check=False
    )


@pytest.mark.requirement("D-code-01")
def test_no_import_of_ours_points_up():
    ended = import_directions(ROOT)

    assert ended.returncode == 0, ended.stdout
    assert "1 kept, 0 broken" in ended.stdout


@pytest.mark.requirement("D-code-01")
@pytest.mark.parametrize(
    ("lower", "upper"),
    [
        ("herd.core", "herd.rpc"),
        ("herd.core", "herd.coordinator"),
        ("herd.rpc", "herd.mail"),
        ("herd.presence", "herd.rpc"),
        ("herd.mail", "assignments"),
        ("assignments.resources", "roles"),
        ("roles", "federation"),
        ("federation.internet", "herd.coordinator"),
        ("herd.mail", "herd.coordinator"),
        ("herd.mail", "herd.client"),
        ("herd.coordinator", "herd.cli"),
        ("herd.mcp", "herd.hosts"),
    ],
)
def test_an_import_that_points_up_fails_the_check(copied_tree: Path, lower: str, upper: str):
    for name in (lower, upper):
        place = copied_tree.joinpath(*name.split("."))
        if not place.is_dir() and not place.with_suffix(".py").exists():
            place.with_suffix(".py").write_text('"""Not built yet."""\n', encoding="utf-8")
    importer = copied_tree.joinpath(*lower.split("."))
    path = importer / "added.py" if importer.is_dir() else importer.with_suffix(".py")
    added = f"{lower}.added" if importer.is_dir() else lower
    with path.open("a", encoding="utf-8") as file:
        file.write(f"\nimport {upper}\n")

    ended = import_directions(copied_tree)

    assert ended.returncode != 0
    assert "Imports point down only BROKEN" in ended.stdout
    assert f"- {added} -> {upper} (l." in ended.stdout


@pytest.mark.requirement("D-code-01")
def test_every_room_stands_in_a_layer():
    contract = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    layers = {name.strip(" ()") for layer in contract["contracts"][0]["layers"] for name in layer.split("|")}
    rooms = {f"herd.{path.stem}" for path in (ROOT / "herd").iterdir() if not path.name.startswith("__")}

    assert rooms | {"roles", "assignments", "federation"} <= layers


@pytest.mark.requirement("D-code-01")
def test_the_check_of_the_project_holds_the_import_directions():
    check = (ROOT / "run").read_text(encoding="utf-8").partition("\ncheck() {")[2].partition("\n}")[0]

    assert "lint-imports" in check


# --- the environment -------------------------------------------------------------------------------

READS_THE_ENVIRONMENT = {
    "environ",
    "environb",
    "getenv",
    "getenvb",
    "expanduser",
    "expandvars",
    "gettempdir",
    "gettempdirb",
}
"""Names of `os`, `os.path`, `pathlib` and `tempfile` that look into the environment."""

MAKES_TEMPORARY = {"mkdtemp", "mkstemp", "TemporaryDirectory", "TemporaryFile", "NamedTemporaryFile"}
"""Names of `tempfile` that look for TMPDIR where they get no `dir`."""


def environment_reads(module: Module) -> Iterator[ast.AST]:
    for node in ast.walk(module.tree):
        name = last_name(node)
        owner = ast.unparse(node.value) if isinstance(node, ast.Attribute) else ""
        if (
            name in READS_THE_ENVIRONMENT and (owner in {"os", "os.path", "tempfile"} or name == "expanduser")
        ) or (name == "home" and owner.endswith("Path")):
            yield node
        elif isinstance(node, ast.ImportFrom) and node.module in {"os", "os.path", "posix", "tempfile"}:
            yield from (alias for alias in node.names if alias.name in READS_THE_ENVIRONMENT)
        elif isinstance(node, ast.Call) and last_name(node.func) in MAKES_TEMPORARY:
            yield from () if keyword(node, "dir") else (node,)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and "/environ" in node.value:
            yield node


def last_name(node: ast.AST) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def keyword(call: ast.Call, name: str) -> ast.expr | None:
    return next((given.value for given in call.keywords if given.arg == name), None)


def may_read_the_environment(path: str) -> bool:
    return path == "herd/core/config.py" or path.startswith("herd/hosts/")


@pytest.mark.requirement("D-code-05")
def test_the_environment_is_read_by_config_and_the_adapters_of_hosts_alone():
    assert broken(environment_reads, allowed=may_read_the_environment) == []


@pytest.mark.parametrize(
    "source",
    [
        "import os\nos.environ['A']",
        "import os\nos.getenv('A')",
        "import os\nos.environb",
        "from os import environ",
        "from os import getenv as harmless",
        "import os\nos.path.expanduser('~')",
        "from pathlib import Path\nPath('~').expanduser()",
        "from pathlib import Path\nPath.home()",
        "import tempfile\ntempfile.mkdtemp()",
        "import tempfile\ntempfile.gettempdir()",
        "open(f'/proc/{pid}/environ')",
    ],
)
def test_a_read_of_the_environment_is_found(source: str):
    assert found(environment_reads, source)


@pytest.mark.parametrize(
    "source",
    ["environ.get('A')", "load(environ)", "tempfile.mkdtemp(dir='/tmp')", "settings.home", "layout.home()"],
)
def test_a_value_that_was_handed_on_is_no_read_of_the_environment(source: str):
    assert not found(environment_reads, source)


# --- children --------------------------------------------------------------------------------------

TAKES_A_SHELL_STRING = {
    "system",
    "popen",
    "getoutput",
    "getstatusoutput",
    "create_subprocess_shell",
    "subprocess_shell",
}
STARTS_A_CHILD = {"create_subprocess_exec", "subprocess_exec", "Popen", "check_call", "check_output"}
"""Names that start a child whoever owns them."""

STARTS_A_CHILD_IN_SUBPROCESS = {"run", "call"}
"""Names that start a child where they are `subprocess`'s."""

NO_ENVIRONMENT_GIVEN = {
    "execv",
    "execvp",
    "execl",
    "execlp",
    "spawnv",
    "spawnvp",
    "spawnl",
    "spawnlp",
    "fork",
    "forkpty",
}
"""Names of `os` whose children inherit everything."""

SHELLS = {"sh", "bash", "dash", "zsh", "/bin/sh", "/bin/bash", "/bin/dash"}


def shell_strings(module: Module) -> Iterator[ast.AST]:
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Call):
            shell = keyword(node, "shell")
            if shell is not None and not (isinstance(shell, ast.Constant) and shell.value is False):
                yield node
        if isinstance(node, ast.ImportFrom) and node.module in {"os", "subprocess", "asyncio", "pty"}:
            yield from (alias for alias in node.names if alias.name in TAKES_A_SHELL_STRING)
        elif isinstance(node, ast.Attribute) and node.attr in TAKES_A_SHELL_STRING:
            if node.attr not in {"system", "popen"} or ast.unparse(node.value) == "os":
                yield node
        elif isinstance(node, ast.List | ast.Tuple | ast.Call):
            yield from (node,) if is_shell_command(node) else ()


def is_shell_command(node: ast.List | ast.Tuple | ast.Call) -> bool:
    words = node.args if isinstance(node, ast.Call) else node.elts
    texts = [word.value for word in words if isinstance(word, ast.Constant)]
    return (
        bool(texts)
        and texts[0] in SHELLS
        and any(str(text).startswith("-") and "c" in str(text) for text in texts)
    )


def children_that_inherit(module: Module) -> Iterator[ast.AST]:
    given = names_bound_to_a_child_environment(module.tree)
    for node in ast.walk(module.tree):
        if (
            isinstance(node, ast.Attribute)
            and ast.unparse(node.value) == "os"
            and node.attr in NO_ENVIRONMENT_GIVEN
        ):
            yield node
        elif isinstance(node, ast.Call) and starts_a_child(node):
            environment = keyword(node, "env")
            if environment is None or not is_a_child_environment(environment, given):
                yield node


def starts_a_child(call: ast.Call) -> bool:
    name = last_name(call.func)
    owner = ast.unparse(call.func.value) if isinstance(call.func, ast.Attribute) else ""
    return name in STARTS_A_CHILD or (name in STARTS_A_CHILD_IN_SUBPROCESS and owner == "subprocess")


def names_bound_to_a_child_environment(tree: ast.Module) -> set[str]:
    bindings = [node for node in ast.walk(tree) if isinstance(node, ast.Assign)]
    made = [node for node in bindings if is_a_child_environment(node.value, set())]
    return {last_name(target) for node in made for target in node.targets}


def is_a_child_environment(expression: ast.expr, given: set[str]) -> bool:
    """Tell whether an expression comes from `child_environment`: a call of it, or a name that holds one."""
    names = {last_name(node) for node in ast.walk(expression)}
    return bool(names & ({"child_environment"} | given))


@pytest.mark.requirement("D-code-06")
def test_no_child_is_started_through_a_shell_string():
    assert broken(shell_strings) == []


@pytest.mark.parametrize(
    "source",
    [
        "import os\nos.system('ls')",
        "from os import popen",
        "import subprocess\nsubprocess.run('ls', shell=True)",
        "import subprocess\nsubprocess.run('ls', shell=choice)",
        "import subprocess\nsubprocess.getoutput('ls')",
        "import asyncio\nasyncio.create_subprocess_shell('ls')",
        "loop.subprocess_shell(make, 'ls')",
        "run(['sh', '-c', text])",
        "run(('/bin/bash', '-ec', text))",
        "asyncio.create_subprocess_exec('sh', '-c', text)",
    ],
)
def test_a_shell_string_is_found(source: str):
    assert found(shell_strings, source)


@pytest.mark.parametrize(
    "source", ["run(['ssh', '-T', host])", "platform.system()", "run(['git'], shell=False)"]
)
def test_a_list_of_arguments_is_no_shell_string(source: str):
    assert not found(shell_strings, source)


@pytest.mark.requirement("D-code-07")
def test_every_child_gets_the_allow_listed_environment():
    assert broken(children_that_inherit) == []


@pytest.mark.parametrize(
    "source",
    [
        "subprocess.run(['git'])",
        "subprocess.Popen(['git'], env=None)",
        "subprocess.Popen(['git'], env=os.environ)",
        "subprocess.Popen(['git'], env=dict(environment()))",
        "Popen(['git'])",
        "asyncio.create_subprocess_exec('git')",
        "os.execvp('git', ['git'])",
        "os.fork()",
    ],
)
def test_a_child_that_inherits_is_found(source: str):
    assert found(children_that_inherit, source)


@pytest.mark.parametrize(
    "source",
    [
        "subprocess.run(['git'], env=config.child_environment(environ))",
        "env = {**child_environment(environ), 'GIT_DIR': path}\nsubprocess.run(['git'], env=env)",
        "def start(child_environment):\n    subprocess.run(['git'], env=child_environment)",
        "loop.run(main())",
    ],
)
def test_a_child_with_the_allow_listed_environment_passes(source: str):
    assert not found(children_that_inherit, source)


@pytest.mark.requirement("D-code-07")
def test_the_environment_of_children_holds_nothing_of_any_host():
    harmless = {"PATH": "/usr/bin", "HOME": "/home/a", "LANG": "C.UTF-8", "TMPDIR": "/tmp"}
    of_hosts = (
        "ANTHROPIC_API_KEY CLAUDECODE CLAUDE_CODE_SESSION_ID CLAUDE_CODE_SSE_PORT CODEX_HOME CODEX_THREAD_ID "
        "GITHUB_TOKEN HERDR_PANE_ID HERDR_SOCKET_PATH HERD_HOME HERD_TOKEN LD_PRELOAD OPENAI_API_KEY OPENCODE "
        "OPENCODE_SESSION PI_SESSION_ID PYTHONPATH SSH_AUTH_SOCK path"
    )
    environ = {**harmless, **dict.fromkeys(of_hosts.split(), "secret")}

    assert config.child_environment(environ) == harmless


# --- size ------------------------------------------------------------------------------------------


def test_no_module_is_too_long():
    lengths = {module.path: len(module.source.splitlines()) for module in modules()}

    assert {path: lines for path, lines in lengths.items() if lines > MODULE_LINES} == {}


def test_no_function_is_too_long():
    functions = [
        (f"{module.path}:{node.lineno} {node.name}", (node.end_lineno or node.lineno) - node.lineno + 1)
        for module in modules()
        for node in ast.walk(module.tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]

    assert {place: lines for place, lines in functions if lines > FUNCTION_LINES} == {}
