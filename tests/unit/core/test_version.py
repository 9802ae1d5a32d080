"""The one place that says the version."""

import re
import tomllib
from pathlib import Path

from herd.core.version import VERSION

PROJECT = Path(__file__).parents[3] / "pyproject.toml"


def test_the_version_has_a_released_form_and_fits_build_evidence():
    assert re.fullmatch(r"\d+\.\d+\.\d+((a|b|rc)\d+)?(\.dev\d+)?", VERSION)
    assert len(VERSION) <= 128


def test_the_distribution_has_the_version_that_the_code_says():
    project = tomllib.loads(PROJECT.read_text(encoding="utf-8"))
    if "version" in project["project"].get("dynamic", []):
        assert project["tool"]["hatch"]["version"]["path"] == "herd/core/version.py"
    else:
        assert project["project"]["version"] == VERSION
