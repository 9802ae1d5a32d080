"""`./run`, the one door: it sets itself up once, says what is missing, and passes on what it is given.

The real script runs in a small tree, with a path that holds only the programs put there.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BASICS = ("sh", "cat", "cksum", "dirname", "id", "ln", "mkdir", "rm")

NOBODY = 65_534

PYTHON_OF_THE_VENV = f"""#!/bin/sh
case $1 in
-c) exit 0 ;;
-) exec {sys.executable} - ;;
esac
echo "ran $*; HERD_HOME=${{HERD_HOME-unset}} XDG_CONFIG_HOME=${{XDG_CONFIG_HOME-unset}}" >>../log
case $* in *"$FAILS"*) exit 3 ;; esac
"""

UV = """#!/bin/sh
echo "uv $*" >>../log
[ "$1 $2" != "$UV_FAILS" ] || exit 1
if [ "$1" = venv ]; then
    for venv; do :; done
    mkdir "$venv" "$venv/bin"
    cat ../python >"$venv/bin/python"
    chmod +x "$venv/bin/python"
fi
"""


class Door:
    """A tree with the real `./run`, its programs, and a log of what it started."""

    def __init__(self, folder: Path) -> None:
        self.tree = folder / "tree"
        self.programs = folder / "bin"
        self.log = folder / "log"
        self.programs.mkdir()
        for name in (*BASICS, "chmod"):
            (self.programs / name).symlink_to(shutil.which(name) or name)
        (self.tree / "herd" / "core").mkdir(parents=True)
        for name in ("run", "pyproject.toml", "herd/core/version.py"):
            shutil.copy(ROOT / name, self.tree / name)
        (folder / "python").write_text(PYTHON_OF_THE_VENV, encoding="utf-8")

    def has(self, name: str, script: str) -> None:
        """Put a program on the path."""
        (self.programs / name).write_text(script, encoding="utf-8")
        (self.programs / name).chmod(0o755)

    def opens(self, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
        surroundings = {"FAILS": "nothing fails", "PATH": str(self.programs), **environ}
        return subprocess.run(
            [str(self.tree / "run"), *arguments],
            cwd="/",
            env=surroundings,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            encoding="utf-8",
        )

    def started(self) -> list[str]:
        """What was started since the last time this was asked."""
        lines = self.log.read_text(encoding="utf-8").splitlines() if self.log.exists() else []
        self.log.unlink(missing_ok=True)
        return lines


@pytest.fixture
def door(tmp_path: Path) -> Door:
    return Door(tmp_path)


@pytest.fixture
def door_with_uv(door: Door) -> Door:
    door.has("uv", UV)
    return door


@pytest.mark.parametrize("script", ["run", ".ci/run", ".ci/hosts"])
@pytest.mark.parametrize("shell", ["sh", "dash", "bash"])
def test_the_scripts_are_read_by_every_shell_that_is_here(script: str, shell: str):
    # Only `sh` is everywhere; what the others would say is told where they are.
    found = shutil.which(shell) or "/bin/sh"

    subprocess.run([found, "-n", ROOT / script], check=True)
    assert os.access(ROOT / script, os.X_OK)


@pytest.mark.parametrize("arguments", [(), ("help",), ("--help",)])
def test_help_names_what_works_and_sets_nothing_up(door: Door, arguments: tuple[str, ...]):
    ended = door.opens(*arguments)

    assert ended.returncode == 0
    for command in ("demo", "test", "check", "test-machine", "bench"):
        assert f"\n  {command} " in ended.stdout
    assert "simulate" not in ended.stdout
    assert not (door.tree / ".venv").exists()


def test_an_unknown_command_is_a_usage_error(door: Door):
    ended = door.opens("tset")

    assert ended.returncode == 2
    assert "there is no command tset" in ended.stderr
    assert ended.stdout == ""


def test_simulate_says_that_it_is_not_there_yet(door: Door):
    ended = door.opens("simulate")

    assert ended.returncode == 9
    assert "simulate is not available yet" in ended.stderr


@pytest.mark.parametrize(
    ("python", "said"),
    [
        (
            None,
            "Python 3.11 or newer was not found; install it (Debian: apt-get install python3 python3-venv)",
        ),
        ("#!/bin/sh\nexit 127\n", "Python 3.11 or newer was not found"),
        ("#!/bin/sh\ncase $2 in *version_info*) exit 1 ;; esac\n", "Python 3.11 or newer was not found"),
        (
            "#!/bin/sh\ncase $2 in *ensurepip*) exit 1 ;; esac\n",
            "python3 has no venv or no pip; install them",
        ),
        ("#!/bin/sh\ncase $2 in venv) exit 1 ;; esac\n", "python3 could not make .venv"),
    ],
)
def test_what_is_missing_is_said_in_one_sentence(door: Door, python: str | None, said: str):
    if python is not None:
        door.has("python3", python)

    ended = door.opens("demo")

    assert ended.returncode == 1
    assert said in ended.stderr.splitlines()[-1]
    assert not (door.tree / ".venv").exists()


def test_the_environment_is_set_up_once(door_with_uv: Door):
    assert door_with_uv.opens("demo").returncode == 0
    first = door_with_uv.started()
    assert door_with_uv.opens("demo", "--fast", "two words").returncode == 0
    second = door_with_uv.started()

    assert [line.split()[:2] for line in first[:-1]] == [["uv", "venv"], ["uv", "pip"]]
    assert first[-1].startswith("ran tests/demo/demo.py;")
    assert second[0].startswith("ran tests/demo/demo.py --fast two words;")
    assert len(second) == 1


@pytest.mark.parametrize("file", ["pyproject.toml", "herd/core/version.py"])
def test_the_environment_is_renewed_after_a_change_and_not_made_anew(door_with_uv: Door, file: str):
    door_with_uv.opens("demo")
    door_with_uv.started()
    with (door_with_uv.tree / file).open("a", encoding="utf-8") as changed:
        changed.write("\n# changed\n")

    door_with_uv.opens("demo")

    assert [line.split()[:2] for line in door_with_uv.started()][:1] == [["uv", "pip"]]


def test_a_set_up_that_failed_is_said_and_done_again(door_with_uv: Door):
    failed = door_with_uv.opens("demo", UV_FAILS="pip install")
    tried = door_with_uv.started()

    again = door_with_uv.opens("demo")

    assert failed.returncode == 1
    assert "the packages could not be installed" in failed.stderr
    assert not any(line.startswith("ran tests/demo") for line in tried)
    assert again.returncode == 0
    assert door_with_uv.started()[0].startswith("uv pip install")


def test_an_environment_that_was_copied_from_elsewhere_is_made_anew(door_with_uv: Door):
    door_with_uv.opens("demo")
    door_with_uv.started()
    moved = door_with_uv.tree.with_name("moved")
    door_with_uv.tree = door_with_uv.tree.rename(moved)

    door_with_uv.opens("demo")

    assert door_with_uv.started()[0].startswith("uv venv")


def test_the_demo_needs_no_test_tools_and_the_tests_get_every_group(door_with_uv: Door):
    door_with_uv.opens("demo")
    for_demo = [line for line in door_with_uv.started() if line.startswith("uv pip")]
    door_with_uv.opens("test")
    for_tests = [line for line in door_with_uv.started() if line.startswith("uv pip")]

    assert [line.rpartition("python ")[2] for line in for_demo] == ["--editable ."]
    assert for_tests[0].endswith("--editable . --requirement .venv/herd-tools.txt")
    wanted = (door_with_uv.tree / ".venv" / "herd-tools.txt").read_text(encoding="utf-8")
    assert {"pytest>=8", "mypy>=1.13"} <= set(wanted.splitlines())
    assert door_with_uv.opens("demo").stderr == ""


def test_the_home_and_settings_of_the_user_stay_outside(door_with_uv: Door):
    door_with_uv.opens("test", "-k", "one or two", HERD_HOME="/home/a", XDG_CONFIG_HOME="/home/a/.config")

    ran = door_with_uv.started()[-1]
    cores = os.sysconf("SC_NPROCESSORS_ONLN")
    workers = cores + (cores + 1) // 2
    assert ran == (
        f"ran -m pytest -n {workers} -m not machine -k one or two; HERD_HOME=unset XDG_CONFIG_HOME=unset"
    )


@pytest.mark.parametrize(
    ("fails", "last"), [("format", "-m ruff format --check ."), ("ruff check", "-m ruff check .")]
)
def test_the_check_names_its_steps_and_stops_at_the_first_failure(door_with_uv: Door, fails: str, last: str):
    ended = door_with_uv.opens("check", FAILS=fails)

    assert ended.returncode == 1
    assert f"check failed at: .venv/bin/python {last}" in ended.stderr
    assert door_with_uv.started()[-1].startswith(f"ran {last};")


@pytest.mark.machine
def test_the_tests_of_the_machine_are_refused_to_an_ordinary_user(home: Path):
    door = Door(home)
    home.chmod(0o755)

    ended = subprocess.run(
        [str(door.tree / "run"), "test-machine"],
        env={"PATH": str(door.programs)},
        capture_output=True,
        check=False,
        encoding="utf-8",
        user=NOBODY,
    )

    assert ended.returncode == 1
    assert "test-machine needs root" in ended.stderr


@pytest.mark.machine
def test_the_tests_of_the_machine_are_refused_where_a_program_is_missing(door: Door):
    ended = door.opens("test-machine")

    assert ended.returncode == 1
    assert "test-machine skips nothing, and these programs are missing:" in ended.stderr
    assert " tmux" in ended.stderr
    assert not (door.tree / ".venv").exists()
