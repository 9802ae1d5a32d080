"""Which build this process runs, and that it runs no other: manifest, import guard, shadowing.

What counts is the content of every Python file of ours when it was first asked for; a coordinator asks at its
start. This module is ignorant of who compares builds, and why.
"""

import hashlib
import os
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import find_spec, spec_from_file_location
from types import CodeType, ModuleType
from typing import NamedTuple

from herd.core.errors import PackageShadowed, RestartRequired
from herd.core.version import VERSION

PACKAGES = ("assignments", "federation", "herd", "roles")
"""The top-level packages that are ours."""


class Build(NamedTuple):
    """What code is running."""

    version: str
    """The version of the distribution."""
    sha256: str
    """SHA-256 over every Python file of ours, its path and content length-prefixed, as 64 hex digits."""


class Installed(NamedTuple):
    """The Python files of ours in one place, at one time."""

    root: str
    """The folder that holds the packages."""
    files: Mapping[str, bytes]
    """SHA-256 of the content of each file, by its path below `root`."""
    sha256: str
    """As in `Build`."""


def running_build() -> Build:
    """Give the build of this process: what was installed at the first call, whatever is installed since."""
    return Build(VERSION, _installed().sha256)


def seal() -> None:
    """Let no module of ours load from now on whose file is not what it was at the start.

    Such an import raises RestartRequired, so that old and new code never run in one process. The start is the
    first call of `running_build`, or this one. Again: nothing.
    """
    if not any(isinstance(finder, SealedFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, build_finder(_installed()))


def check_shadowing() -> None:
    """Check that the names of our packages lead to ours.

    Raises:
        PackageShadowed: another installed package or module has the name; the message says where it lies.
    """
    root = _root()
    for name in PACKAGES:
        for found in _locations(name):
            if os.path.realpath(found) != os.path.join(root, name):
                raise PackageShadowed(f"{name} is taken from {found}, not from Herd's own folder {root}")


def installed_in(root: str) -> Installed:
    """Read every Python file of our packages below a folder.

    Raises:
        OSError: a file or folder cannot be read.
    """
    files: dict[str, bytes] = {}
    whole = hashlib.sha256()
    for path in sorted(_python_files(root), key=os.fsencode):
        content, name = _content(os.path.join(root, path)), os.fsencode(path)
        files[path] = hashlib.sha256(content).digest()
        whole.update(len(name).to_bytes(4, "big") + name + len(content).to_bytes(8, "big") + content)
    return Installed(root, files, whole.hexdigest())


def build_finder(installed: Installed) -> "SealedFinder":
    """Give a finder that loads modules of ours as they were installed, and refuses all that changed since."""
    return SealedFinder(installed)


class SealedFinder:
    """See `build_finder`. Its method makes it one; the base class would bring in pathlib and tempfile."""

    def __init__(self, installed: Installed) -> None:
        self._installed = installed

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find a module of ours as it was installed; any other is left to the finders behind this one."""
        if fullname.partition(".")[0] not in PACKAGES:
            return None
        base = fullname.replace(".", "/")
        for name in (f"{base}/__init__.py", f"{base}.py"):
            if name in self._installed.files:
                return self._spec(fullname, name)
        found = PathFinder.find_spec(fullname, path, target)
        if found is not None and found.loader is not None:
            raise RestartRequired(f"{fullname} was installed after this process started")
        return None

    def _spec(self, fullname: str, name: str) -> ModuleSpec | None:
        file = os.path.join(self._installed.root, name)
        return spec_from_file_location(
            fullname,
            file,
            loader=_SealedLoader(fullname, file, self._installed.files[name]),
            submodule_search_locations=[os.path.dirname(file)] if name.endswith("/__init__.py") else None,
        )


class _SealedLoader(SourceFileLoader):
    def __init__(self, fullname: str, path: str, sha256: bytes) -> None:
        super().__init__(fullname, path)
        self._sha256 = sha256

    def get_code(self, fullname: str) -> CodeType:
        """Compile the very bytes that were compared; cached bytecode is bound to a size and a time only."""
        path = self.get_filename(fullname)
        try:
            content = _content(path)
        except OSError as error:
            raise RestartRequired(f"{path} is gone since this process started") from error
        if hashlib.sha256(content).digest() != self._sha256:
            raise RestartRequired(f"{path} was replaced after this process started")
        return self.source_to_code(content, path)


@cache
def _installed() -> Installed:
    return installed_in(_root())


def _root() -> str:
    # This file is <root>/herd/core/build.py.
    return os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))


def _python_files(root: str) -> list[str]:
    found: list[str] = []
    for package in PACKAGES:
        for folder, _, names in os.walk(os.path.join(root, package), onerror=_refuse):
            place = os.path.relpath(folder, root)
            # An editor's own files beside a module begin with a dot, and may be dangling links.
            found += [f"{place}/{name}" for name in names if name.endswith(".py") and name[0] != "."]
    return found


def _refuse(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error


def _content(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _locations(name: str) -> list[str]:
    loaded = sys.modules.get(name)
    if loaded is not None:
        return list(getattr(loaded, "__path__", [])) or [loaded.__file__ or "a module without a file"]
    spec = find_spec(name)
    if spec is None:
        return []
    return list(spec.submodule_search_locations or [spec.origin or "a module without a file"])
