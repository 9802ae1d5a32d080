"""The build a process runs, the guard against another one, and packages that hide ours.

What imports do is looked at in processes of their own, on a copy of the tree with stub packages beside it.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from herd.core.build import PACKAGES, build_finder, installed_in, running_build
from herd.core.errors import RestartRequired
from herd.core.version import VERSION

ROOT = Path(__file__).parents[3]

SEALED = """
import os, sys
from herd.core.build import running_build, seal
from herd.core.errors import RestartRequired, PackageShadowed
import roles
root = os.path.dirname(roles.__path__[0])
late = os.path.join(root, "roles", "late.py")

def replace(path, text):
    with open(path + ".new", "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(path + ".new", path)

def attempt(statement):
    try:
        exec(statement, {})
    except RestartRequired as refused:
        print("refused", refused)
    except ImportError as failed:
        print(type(failed).__name__)
    else:
        print("ran")

seal()
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Give a folder with a copy of herd's core and with stubs of the other packages."""
    root = tmp_path / "installed"
    shutil.copytree(
        ROOT / "herd" / "core", root / "herd" / "core", ignore=shutil.ignore_patterns("__pycache__")
    )
    shutil.copy2(ROOT / "herd" / "__init__.py", root / "herd")
    for package in ("roles", "assignments", "federation"):
        (root / package / "inner").mkdir(parents=True)
        (root / package / "__init__.py").write_text("NAME = __name__\n", encoding="utf-8")
        (root / package / "inner" / "__init__.py").write_text("", encoding="utf-8")
        (root / package / "late.py").write_text("VALUE = 'old'\n", encoding="utf-8")
    return root


def lines_of(script: str, *places: Path) -> list[str]:
    """Run a script with these places to import from, and give what it printed."""
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, places))},
        cwd=places[0].parent,
        stdout=subprocess.PIPE,
        encoding="utf-8",
        check=True,
    )
    return done.stdout.splitlines()


def build_of(tree: Path) -> str:
    return lines_of("from herd.core.build import running_build; print(*running_build())", tree)[0]


# --- which build ---


def test_this_process_runs_one_build_of_this_version():
    build = running_build()
    assert build.version == VERSION
    assert re.fullmatch("[0-9a-f]{64}", build.sha256)
    assert build is running_build() or build == running_build()


def test_the_digest_is_over_the_sorted_paths_and_contents_each_after_its_length(tree):
    whole = hashlib.sha256()
    files = {str(file.relative_to(tree)).encode(): file.read_bytes() for file in tree.rglob("*.py")}
    for path, content in sorted(files.items()):
        whole.update(len(path).to_bytes(4, "big") + path + len(content).to_bytes(8, "big") + content)
    assert build_of(tree) == f"{VERSION} {whole.hexdigest()}"
    assert installed_in(str(tree)).sha256 == whole.hexdigest()


@pytest.mark.parametrize("package", PACKAGES)
def test_every_change_to_a_python_file_of_ours_is_another_build(tree, package):
    seen = {installed_in(str(tree)).sha256}
    new = tree / package / "deep" / "new.py"
    new.parent.mkdir()
    for change in (
        new.touch,
        lambda: new.write_text("1", encoding="utf-8"),
        lambda: new.rename(new.with_name("renamed.py")),
        lambda: new.with_name("renamed.py").unlink(),
    ):
        change()
        seen.add(installed_in(str(tree)).sha256)
    assert len(seen) == 4  # removed again, it is the first one


def test_nothing_else_makes_another_build(tree, tmp_path):
    before = installed_in(str(tree)).sha256
    (tree / "roles" / "notes.txt").write_text("text", encoding="utf-8")
    (tree / "roles" / ".#late.py").symlink_to("editor@host")
    (tree / "other").mkdir()
    (tree / "other" / "module.py").touch()
    subprocess.run([sys.executable, "-m", "compileall", "-q", tree], check=True)
    for file in tree.rglob("*.py"):
        if file.exists():
            os.utime(file, (0, 0))
    assert installed_in(str(tree)).sha256 == before
    moved = tree.rename(tmp_path / "elsewhere")
    assert installed_in(str(moved)).sha256 == before


def test_packages_that_are_not_there_count_for_nothing_and_an_unreadable_one_fails(tmp_path):
    assert installed_in(str(tmp_path)).files == {}
    (tmp_path / "roles").mkdir()
    (tmp_path / "roles" / "loop.py").symlink_to("loop.py")
    with pytest.raises(OSError, match="loop"):
        installed_in(str(tmp_path))


@given(st.dictionaries(st.sampled_from(["roles/a.py", "roles/ab.py", "roles/b/a.py"]), st.binary(max_size=9)))
def test_two_trees_have_one_digest_only_if_they_are_equal(tmp_path_factory, files):
    root = tmp_path_factory.mktemp("tree")
    for path, content in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(content)
    found = installed_in(str(root))
    assert found.files == {path: hashlib.sha256(content).digest() for path, content in files.items()}
    assert (found.sha256 == hashlib.sha256().hexdigest()) == (not files)


def test_a_process_keeps_its_build_when_newer_code_is_installed_and_the_next_one_has_the_new(tree):
    script = SEALED + (
        "print(*running_build())\nreplace(late, 'VALUE = 1')\nprint(*running_build())\nseal()\n"
        "print(*running_build(), sum('Sealed' in type(finder).__name__ for finder in sys.meta_path))\n"
    )
    old = build_of(tree)
    assert lines_of(script, tree) == [old, old, f"{old} 1"]
    assert build_of(tree) != old


# --- no other build ---


def test_a_sealed_process_loads_what_did_not_change(tree):
    script = SEALED + (
        "from roles import late; import federation.inner, json, xml.dom\n"
        "import importlib; importlib.reload(late)\n"
        "print(late.VALUE, late.__file__ == __import__('os').path.join(root, 'roles', 'late.py'))\n"
        "print(late.__name__, late.__package__, federation.inner.__path__ == [root + '/federation/inner'])\n"
        "attempt('import roles.absent')\nattempt('from roles import absent')\nattempt('import absent')\n"
    )
    assert lines_of(script, tree) == [
        "old True",
        "roles.late roles True",
        "ModuleNotFoundError",
        "ImportError",
        "ModuleNotFoundError",
    ]


@pytest.mark.parametrize(
    "change",
    [
        "replace(late, 'VALUE = \"new\"')",
        "replace(late, '')",
        "replace(late, 'VALUE = ')",
        "time = os.stat(late).st_mtime_ns; replace(late, \"VALUE = 'new'\\n\"); os.utime(late, ns=(0, time))",
        "open(late, 'a', encoding='utf-8').write('#')",
        "os.unlink(late)",
        "os.unlink(late); os.mkdir(late)",
        "os.rename(root, root + '.old')",
    ],
)
@pytest.mark.parametrize("compiled", [False, True])
def test_a_module_that_was_replaced_is_not_run_but_asks_for_a_restart(tree, change, compiled):
    if compiled:
        subprocess.run([sys.executable, "-m", "compileall", "-q", tree], check=True)
    script = SEALED + f"{change}\nattempt('import roles.late')\nattempt('from roles.late import VALUE')\n"
    first, second = lines_of(script, tree)
    assert first == second
    assert re.fullmatch(r"refused \S+/roles/late\.py (was replaced|is gone).*", first)


def test_code_that_appeared_after_the_start_is_not_run(tree):
    script = SEALED + (
        "replace(os.path.join(root, 'roles', 'new.py'), 'print(1)')\n"
        "os.mkdir(os.path.join(root, 'roles', 'package'))\n"
        "replace(os.path.join(root, 'roles', 'package', '__init__.py'), 'print(2)')\n"
        "attempt('import roles.new')\nattempt('import roles.package')\n"
    )
    assert [line.split()[:2] for line in lines_of(script, tree)] == [
        ["refused", "roles.new"],
        ["refused", "roles.package"],
    ]


def test_a_package_that_replaces_a_module_or_hides_it_is_not_run(tree):
    script = SEALED + (
        "os.mkdir(late[:-3])\nreplace(os.path.join(late[:-3], '__init__.py'), 'VALUE = \"hidden\"')\n"
        "from roles.late import VALUE\nprint(VALUE)\n"
    )
    assert lines_of(script, tree) == ["old"]


def test_compiled_code_that_only_looks_current_is_not_run(tree):
    late = tree / "roles" / "late.py"
    old = late.read_text(encoding="utf-8")
    late.write_text("VALUE = 'bad'\n", encoding="utf-8")
    os.utime(late, (1_000, 1_000))
    subprocess.run([sys.executable, "-m", "compileall", "-q", late], check=True)
    late.write_text(old, encoding="utf-8")
    os.utime(late, (1_000, 1_000))  # same size, same time: the loader of Python takes the compiled file
    assert lines_of("import roles.late; print(roles.late.VALUE)", tree) == ["bad"]
    assert lines_of(SEALED + "import roles.late; print(roles.late.VALUE)", tree) == ["old"]


def test_a_failed_import_can_be_tried_again_once_the_old_file_is_back(tree):
    script = SEALED + (
        "old = open(late, encoding='utf-8').read()\nreplace(late, '')\nattempt('import roles.late')\n"
        "replace(late, old)\nattempt('import roles.late')\n"
    )
    assert [line.split()[0] for line in lines_of(script, tree)] == ["refused", "ran"]


def test_what_was_loaded_before_goes_on_working(tree):
    script = SEALED + (
        "import roles.late\nreplace(late, 'VALUE = 1')\nattempt('import roles.late')\nprint(roles.late.VALUE)"
    )
    assert lines_of(script, tree) == ["ran", "old"]


def test_every_module_of_ours_loads_sealed():
    modules = [
        ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for package in PACKAGES
        for file in sorted((ROOT / package).rglob("*.py"))
        if file.name != "__main__.py"
    ]
    script = f"from herd.core.build import seal; seal()\nimport {', '.join(modules)}\nprint('loaded')"
    assert lines_of(script, ROOT) == ["loaded"]


def test_the_finder_leaves_other_peoples_modules_alone(tree):
    finder = build_finder(installed_in(str(tree)))
    assert finder.find_spec("json", None) is None
    assert finder.find_spec("herdsman.roles", None) is None
    spec = finder.find_spec("roles.late", None)
    assert spec is not None
    assert isinstance(spec.loader, SourceFileLoader)
    assert spec.origin == str(tree / "roles" / "late.py")
    (tree / "roles" / "late.py").unlink()
    with pytest.raises(RestartRequired, match=r"late\.py"):
        spec.loader.get_code("roles.late")


# --- packages that hide ours ---

CHECK = """
from herd.core.build import check_shadowing
from herd.core.errors import PackageShadowed
try:
    check_shadowing()
except PackageShadowed as refused:
    print(refused.next_step)
    print(refused)
else:
    print("ours")
"""


def test_our_own_packages_are_not_called_hidden(tree, tmp_path):
    (tmp_path / "link").symlink_to(tree)
    (tmp_path / "empty" / "roles").mkdir(parents=True)  # no package: Python prefers ours behind it
    assert lines_of(CHECK, tree) == ["ours"]
    assert lines_of(CHECK, tmp_path / "link") == ["ours"]
    assert lines_of(CHECK, tmp_path / "empty", tree) == ["ours"]
    assert lines_of(f"import roles, federation.inner\n{CHECK}", tree) == ["ours"]


@pytest.mark.parametrize("name", ["roles", "federation", "assignments"])
@pytest.mark.parametrize("form", ["package", "module", "loaded package", "loaded module", "missing ours"])
def test_another_package_of_the_same_name_is_refused_with_its_place_and_what_to_do(
    tree, tmp_path, name, form
):
    other = tmp_path / "other"
    place = other / f"{name}.py" if "module" in form else other / name / "__init__.py"
    place.parent.mkdir(parents=True)
    if form == "missing ours":
        shutil.rmtree(tree / name)
    place.touch()
    hint, message = lines_of(f"import {name}\n{CHECK}" if "loaded" in form else CHECK, other, tree)
    assert "pipx install" in hint
    assert message.startswith(f"{name} is taken from {other / name}")
