"""A person whose home a test installs into."""

from pathlib import Path

import pytest

from tests.fakes.host_files import Person


@pytest.fixture
def person(tmp_path: Path) -> Person:
    """Give a person with an empty home."""
    return Person(tmp_path)
