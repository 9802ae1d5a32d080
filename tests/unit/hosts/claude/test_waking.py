"""When the notice goes out to an idle session."""

import pytest

from herd.coordinator.attention import Arrival
from herd.coordinator.waking import Waiting
from herd.hosts.claude.session_file import State
from herd.hosts.claude.waking import Waker

IDLE = State("s-1", "/w", "idle", interactive=True, changed=1)
BUSY = IDLE._replace(status="busy", changed=2)
WAITING = IDLE._replace(status="waiting", changed=3)
MAY = Arrival(unread=1, wake=True)
MAY_NOT = Arrival(unread=1, wake=False)


class Sent:
    """A waker, and how often it woke."""

    def __init__(self) -> None:
        self.times = 0
        self.waker = Waker(self._wake)

    def _wake(self) -> None:
        self.times += 1


@pytest.fixture
def sent() -> Sent:
    return Sent()


def test_an_idle_session_is_woken_by_mail_that_may_wake(sent: Sent):
    assert sent.waker.arrived(MAY, IDLE)

    assert sent.times == 1


@pytest.mark.requirement("A-boundary-10")
def test_what_comes_together_wakes_once(sent: Sent):
    sent.waker.arrived(MAY, IDLE)
    sent.waker.arrived(Arrival(unread=3, wake=False), IDLE)
    sent.waker.changed(IDLE, unread=True)

    assert sent.times == 1


@pytest.mark.requirement("A-boundary-11")
@pytest.mark.parametrize(
    "state", [BUSY, WAITING, None, IDLE._replace(interactive=False), IDLE._replace(status=None)]
)
def test_nothing_is_woken_but_a_person_s_idle_session(sent: Sent, state: State | None):
    sent.waker.arrived(MAY, state)

    assert sent.times == 0


def test_mail_that_may_not_wake_does_not(sent: Sent):
    sent.waker.arrived(MAY_NOT, IDLE)
    sent.waker.changed(IDLE, unread=True)

    assert sent.times == 0


@pytest.mark.requirement("A-boundary-07")
@pytest.mark.parametrize("state", [BUSY, WAITING])
def test_a_wake_that_comes_too_early_is_made_up_for_once_the_session_is_idle(sent: Sent, state: State):
    sent.waker.arrived(MAY, state)

    sent.waker.changed(IDLE, unread=True)
    sent.waker.changed(BUSY, unread=True)
    sent.waker.changed(IDLE, unread=True)

    assert sent.times == 1


def test_mail_that_was_handed_over_meanwhile_wakes_nobody(sent: Sent):
    sent.waker.arrived(MAY, BUSY)

    sent.waker.changed(IDLE, unread=False)
    sent.waker.changed(IDLE, unread=True)

    assert sent.times == 0


@pytest.mark.requirement("A-boundary-11")
def test_after_a_turn_was_cut_off_only_something_new_wakes(sent: Sent):
    sent.waker.cut_off()

    assert not sent.waker.arrived(Arrival(unread=2, wake=True), IDLE)
    sent.waker.stands(Waiting(unread=2, newest_waking=7))
    assert not sent.waker.arrived(Arrival(unread=2, wake=True), IDLE)
    assert sent.times == 0

    assert sent.waker.arrived(Arrival(unread=3, wake=True), IDLE)
    assert sent.times == 1


def test_a_wake_that_was_due_when_the_turn_was_cut_off_is_dropped(sent: Sent):
    sent.waker.arrived(MAY, BUSY)
    sent.waker.cut_off()
    sent.waker.changed(IDLE, unread=True)

    assert sent.times == 0


def test_a_session_in_use_again_is_woken_again(sent: Sent):
    sent.waker.cut_off()
    sent.waker.went_on()

    sent.waker.arrived(MAY, IDLE)

    assert sent.times == 1


@pytest.mark.requirement("A-boundary-11")
def test_a_session_that_ends_is_not_woken_and_one_that_goes_on_is(sent: Sent):
    sent.waker.ending()
    sent.waker.arrived(MAY, IDLE)
    assert sent.times == 0

    sent.waker.went_on()
    sent.waker.changed(IDLE, unread=True)
    assert sent.times == 1
