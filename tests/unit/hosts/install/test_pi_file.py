"""Pi's one file: ours is replaced, a person's stays, one that a person changed stays unless forced."""

import pytest

from herd.core.errors import InvalidParams, ResourceBusy
from herd.hosts.install.pi import signed
from herd.hosts.install.plan import CREATED, EDITED, REMOVED, UNCHANGED
from herd.hosts.pi.files import MARKER, extension_text
from tests.fakes.host_files import Person


@pytest.mark.requirement("D-host-09")
def test_the_extension_is_one_file_and_names_this_command(person: Person):
    plan = person.install(person.pi())

    assert [one.what for one in plan.outcomes] == [CREATED]
    written = person.extension.read_text(encoding="utf-8")
    assert written.startswith(extension_text(str(person.command), person.environ))
    assert [name for name, one in person.snapshot().items() if one[0] == "file"] == [
        ".pi/agent/extensions/herd.ts"
    ]


def test_a_foreign_file_of_that_name_is_refused_and_left(person: Person):
    person.extension.parent.mkdir(parents=True)
    person.extension.write_bytes(b"export default () => {}\n")
    before = person.snapshot()

    for force in (False, True):
        with pytest.raises(ResourceBusy, match="is there and not Herd's; no file was changed"):
            person.install(person.pi(force=force))
        assert person.uninstall(person.pi(force=force)).outcomes[0].what == UNCHANGED

    assert person.snapshot() == before


def test_the_file_of_another_version_is_replaced(person: Person):
    person.install(person.pi())
    person.extension.write_bytes(signed(f"{MARKER} An older one.\n"))

    assert person.install(person.pi()).outcomes[0].what == EDITED
    assert b"An older one" not in person.extension.read_bytes()
    person.uninstall(person.pi())
    assert person.snapshot() == {}


def test_a_file_that_a_person_changed_is_kept_and_told_until_forced(person: Person):
    person.install(person.pi())
    changed = person.extension.read_bytes().replace(b"3_000", b"9_000") + b"// mine\n"
    person.extension.write_bytes(changed)

    for act in (person.install, person.uninstall, person.uninstall):
        (outcome,) = act(person.pi()).outcomes
        assert outcome.what == UNCHANGED
        assert "was changed by somebody, and is kept" in outcome.remarks[0]
        assert person.extension.read_bytes() == changed

    assert person.install(person.pi(force=True)).outcomes[0].what == EDITED
    person.extension.write_bytes(changed)
    assert person.uninstall(person.pi(force=True)).outcomes[0].what == REMOVED
    assert person.snapshot() == {}


@pytest.mark.parametrize(("chosen", "place"), [("~/pi", "pi"), ("~", "."), ("", ".pi/agent")])
def test_another_folder_of_pi_is_found(person: Person, chosen: str, place: str):
    host = person.pi(PI_CODING_AGENT_DIR=chosen)

    assert host.targets[0].path == str(person.home / place / "extensions" / "herd.ts")


def test_a_folder_that_is_another_one_in_every_place_is_refused(person: Person):
    with pytest.raises(InvalidParams, match="PI_CODING_AGENT_DIR is 'pi', which is not absolute"):
        person.pi(PI_CODING_AGENT_DIR="pi")
