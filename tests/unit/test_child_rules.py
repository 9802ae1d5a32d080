"""What reaches a process from outside, and what it hands to its children, by the source of every module."""

import ast
from collections.abc import Iterator

import pytest

from herd.core import config
from tests.unit.our_source import Module, broken, found, keyword, last_name

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
        if isinstance(node, ast.Attribute) and is_environment(ast.unparse(node.value), node.attr):
            yield node
        elif isinstance(node, ast.ImportFrom) and node.module in {"os", "os.path", "posix", "tempfile"}:
            yield from (alias for alias in node.names if alias.name in READS_THE_ENVIRONMENT)
        elif isinstance(node, ast.Call) and last_name(node.func) in MAKES_TEMPORARY:
            yield from () if keyword(node, "dir") else (node,)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and "/environ" in node.value:
            yield node


def is_environment(owner: str, name: str) -> bool:
    if name == "home":
        return owner.endswith("Path")
    return name == "expanduser" or (name in READS_THE_ENVIRONMENT and owner in {"os", "os.path", "tempfile"})


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
        "GITHUB_TOKEN HERDR_PANE_ID HERDR_SOCKET_PATH HERD_HOME HERD_TOKEN LD_PRELOAD OPENAI_API_KEY "
        "OPENCODE OPENCODE_SESSION PI_SESSION_ID PYTHONPATH SSH_AUTH_SOCK path"
    )
    environ = {**harmless, **dict.fromkeys(of_hosts.split(), "secret")}

    assert config.child_environment(environ) == harmless
