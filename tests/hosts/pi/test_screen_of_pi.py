"""Mail while a person sits before Pi: the draft stays as it is, and a peer's words are shown as text only."""

import pytest

from herd.mail.header import NOTICE
from tests.fakes.pi_screen import PiScreen
from tests.hosts.pi.conftest import PiWorld

pytestmark = [pytest.mark.machine, pytest.mark.timeout(120)]


@pytest.mark.requirement("A-boundary-12")
def test_a_draft_and_its_cursor_stay_as_they_are_when_mail_wakes_pi(world: PiWorld):
    with PiScreen(world.folder, "one") as screen:
        target = world.target("one")
        screen.type("/hello wrld !")
        screen.press("Left", "Left", "Left", "Left", "Left")
        screen.until(lambda text: "hello wrld" in text)

        message = world.other.send(target, "mail meanwhile [[say mail was read]]")
        screen.until(lambda text: "mail was read" in text.replace("[[say mail was read]]", ""))
        woken = world.model.requests[-1]
        screen.type("o")
        screen.press("Home", "Delete")
        screen.press("Enter")
        prompted = world.model.wait("hello world !")

    assert "hello" not in woken.text
    assert prompted.fresh == "hello world !"
    assert world.becomes(message, "delivered")


@pytest.mark.requirement("C4", "A-boundary-04", "A-boundary-13")
def test_control_characters_of_a_peer_do_nothing_to_the_terminal(world: PiWorld):
    with PiScreen(world.folder, "one") as screen:
        target = world.target("one")
        title = screen.title()

        world.other.send(target, "\x1b[31mred\x1b[0m \x1b]0;owned\x07 \u202eevil\u202c [[say seen]]")
        shown = screen.until(lambda text: "\\u001b]0;owned\\u0007" in text)

        assert screen.title() == title
        assert "\\u001b[31mred\\u001b[0m" in shown
        assert "\\u202eevil\\u202c" in shown
        assert not {"\x07", "\u202e", "\u202c"} & set(shown)


@pytest.mark.requirement("A-boundary-09", "A-boundary-11", "D-host-04")
def test_escape_cancels_the_turn_and_not_the_mail(world: PiWorld):
    with PiScreen(world.folder, "one") as screen:
        target = world.target("one")
        screen.type("[[hold long]] [[say never]]")
        screen.press("Enter")
        cancelled = world.model.held("long")
        message = world.other.send(target, "in between")
        screen.press("Escape")
        screen.until(lambda text: "aborted" in text.lower())
        state = world.state(message)

        screen.type("go on [[say on]]")
        screen.press("Enter")
        next_one = world.model.wait("go on", after=cancelled.number)
        delivered = world.becomes(message, "delivered")
        screen.press("C-d")
        ended = screen.ended()
        left = world.other.request("session.list")["peers"]

    assert (state, next_one.number) == ("accepted", cancelled.number + 1)
    assert (next_one.text.count("in between"), next_one.text.count(NOTICE)) == (1, 0)
    assert (delivered, ended, left) == (True, True, [])


@pytest.mark.requirement("D-host-04")
def test_a_reload_goes_on_with_the_same_session(world: PiWorld):
    with PiScreen(world.folder, "one") as screen:
        target = world.target("one")
        screen.type("begin [[say begun]]")
        screen.press("Enter")
        screen.until(lambda text: "begun" in text.replace("[[say begun]]", ""))
        screen.type("/reload")
        screen.press("Enter")
        screen.until(lambda text: "Reloaded" in text)

        message = world.other.send(target, "after the reload [[say read]]")
        delivered = world.becomes(message, "delivered")

        assert delivered
        assert world.model.requests[-1].text.count("after the reload") == 1
        assert world.target("one") == target
