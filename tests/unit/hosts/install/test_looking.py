"""What is found of an installation afterwards."""

from pathlib import Path

import pytest

from herd.core.errors import HerdError
from herd.hosts.install.host import Host
from herd.hosts.install.looking import look
from tests.fakes.host_files import Person

HOSTS = pytest.mark.parametrize("name", ["claude", "claude with tools", "pi"])


def described(person: Person, name: str) -> Host:
    return person.pi() if name == "pi" else person.claude(tools="tools" in name)


@HOSTS
def test_looking_tells_what_is_missing_and_what_is_different(person: Person, name: str):
    host = described(person, name)
    assert look(host, person.layout) == []
    person.install(host)
    assert all(one.ok for one in look(host, person.layout))

    person.command.unlink()
    found = [one for one in look(host, person.layout, ask=False) if not one.ok]
    assert [one.what for one in found] == ["command"]
    path = Path(host.targets[0].path)
    path.write_bytes(path.read_bytes().replace(b"/bin/herd", b"/old/herd"))
    found = [one for one in look(host, person.layout, ask=False) if not one.ok]
    assert found[0].what == ("remark" if name == "pi" else "file")
    path.unlink()
    found = [one for one in look(host, person.layout, ask=False) if not one.ok]
    assert found[0].detail == f"{path} lacks Herd's entries"
    path.mkdir()
    found = [one for one in look(host, person.layout, ask=False) if not one.ok]
    assert "is no regular file" in found[0].detail


def test_every_refusal_has_a_next_step(person: Person):
    person.servers.mkdir()
    with pytest.raises(HerdError) as refusal:
        person.install(person.claude())
    assert refusal.value.next_step
