"""What `tests/conftest.py` promises every test: shown on a small tree with tests that break each rule."""

import os
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("herd", "roles", "assignments", "federation")

BLOCKS = """
import os, sqlite3, time

def look(): os.stat("/")
def read():
    with open("/proc/version", "rb") as file: file.read()
def ask():
    connection = sqlite3.connect(":memory:")
    try: connection.execute("SELECT 1")
    finally: connection.close()
def doze(): time.sleep(0)
"""

ON_THE_LOOP = """
import os, sqlite3
from pathlib import Path
from herd.core import files
from herd.mail import inbox
from herd.presence.deeper import registry

async def test_a_small_file_is_read_by_core(): files.look(); files.read()
async def test_a_record_is_read_by_presence(): registry.look(); registry.read()
async def test_core_asks_sqlite(): files.ask()
async def test_core_dozes(): files.doze()
async def test_mail_looks(): inbox.look()
async def test_mail_reads(): inbox.read()
async def test_mail_asks_sqlite(): inbox.ask()
async def test_mail_dozes(): inbox.doze()
async def test_a_test_reads_for_itself(): Path("/proc/version").read_bytes()
def test_mail_without_a_loop(): inbox.look(); inbox.ask(); inbox.doze()
"""

LEAVES_A_CHILD = """
import subprocess

def test_leaves_a_child():
    subprocess.run(["sh", "-c", "sleep 600 >/dev/null 2>&1 & echo $! >left"], check=True)
"""

ENDS_ITS_CHILD = """
import subprocess

def test_ends_its_child():
    with subprocess.Popen(["sleep", "600"]) as child:
        child.kill()
"""

SEES_NO_HOME = """
import os, pytest

@pytest.mark.parametrize("name", ["HERD_HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME"])
def test_sees_no_home_of_the_user(name):
    with pytest.raises(NotADirectoryError):
        os.makedirs(os.environ[name])
"""

USES_A_HOME = """
from pathlib import Path

def test_uses_a_home(home):
    (home / "folder").mkdir()
    (home / "folder" / "file").touch()
    Path("home").write_text(str(home), encoding="utf-8")
"""

SOURCES = (ON_THE_LOOP, LEAVES_A_CHILD, ENDS_ITS_CHILD, SEES_NO_HOME, USES_A_HOME)


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """Run the tests of the small tree once; what became of each, by its name."""
    tree = tmp_path_factory.mktemp("tree")
    for place in (*PACKAGES, "herd/core", "herd/mail", "herd/presence", "herd/presence/deeper"):
        (tree / place).mkdir()
        (tree / place / "__init__.py").touch()
    for place in ("core/files", "mail/inbox", "presence/deeper/registry"):
        (tree / "herd" / f"{place}.py").write_text(BLOCKS, encoding="utf-8")
    (tree / "tests").mkdir()
    shutil.copy(ROOT / "pyproject.toml", tree)
    shutil.copy(ROOT / "tests" / "conftest.py", tree / "tests")
    for number, source in enumerate(SOURCES):
        (tree / "tests" / f"test_{number}.py").write_text(source, encoding="utf-8")
    surroundings = {"HERD_HOME": str(tree / "of-the-user"), "PYTHONPATH": str(tree), "COLUMNS": "400"}
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rA"],
        cwd=tree,
        env={"PATH": os.environ["PATH"], **surroundings},
        capture_output=True,
        check=False,
        encoding="utf-8",
    )
    found = re.findall(r"^(PASSED|FAILED|ERROR) \S+::(\w+)(.*)$", ended.stdout, re.MULTILINE)
    notes = {name: (tree / name).read_text(encoding="utf-8").strip() for name in ("left", "home")}
    return {**notes, **{name: f"{outcome}{more}" for outcome, name, more in found}}


@pytest.mark.parametrize(
    "name",
    [
        "test_a_small_file_is_read_by_core",
        "test_a_record_is_read_by_presence",
        "test_a_test_reads_for_itself",
        "test_mail_without_a_loop",
        "test_ends_its_child",
        "test_sees_no_home_of_the_user",
    ],
)
def test_what_is_meant_passes(outcomes: Mapping[str, str], name: str):
    assert outcomes[name].startswith("PASSED")


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("test_core_asks_sqlite", "sqlite3"),
        ("test_core_dozes", "time.sleep"),
        ("test_mail_looks", "os.stat"),
        ("test_mail_reads", "io.BufferedReader.read"),
        ("test_mail_asks_sqlite", "sqlite3"),
        ("test_mail_dozes", "time.sleep"),
    ],
)
def test_code_of_ours_that_blocks_the_event_loop_fails(outcomes: Mapping[str, str], name: str, call: str):
    assert re.match(rf"FAILED - blockbuster.*Blocking call to {re.escape(call)}", outcomes[name])


def test_a_process_left_behind_fails_the_module_and_is_ended(outcomes: Mapping[str, str]):
    assert outcomes["test_leaves_a_child"].startswith("ERROR")
    assert "left processes behind" in outcomes["test_leaves_a_child"]
    assert not Path(f"/proc/{outcomes['left']}/exe").exists()


def test_a_home_is_private_empty_and_short(home: Path):
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    assert list(home.iterdir()) == []
    assert os.environ["HERD_HOME"] == str(home)
    assert len(str(home)) < 20


def test_a_home_is_gone_after_its_test(outcomes: Mapping[str, str]):
    assert outcomes["test_uses_a_home"].startswith("PASSED")
    assert outcomes["home"].startswith("/tmp/herd-")
    assert not Path(outcomes["home"]).exists()
