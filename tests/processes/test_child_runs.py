"""Child runs of real sessions: over the stdio that bound them, until it breaks or the process is killed."""

from pathlib import Path

import pytest

from herd.core.errors import HerdError, InvalidParams, PeerOffline, TargetEnded
from herd.core.identity import peer_id_of
from tests.fakes.herd_session import HerdSession


@pytest.fixture
def alice(home: Path):
    with HerdSession(home, "shop", "alice", name="alice") as one:
        yield one.ready()


def started(home: Path) -> HerdSession:
    return HerdSession(home, "shop", "bob", name="bob").ready()


def run_of(session: HerdSession, run_id: str = "r-1") -> str:
    return str(session.request("session.bind_run", run_id=run_id, name="tester")["target"])


def refused(session: HerdSession, kind: type[HerdError], method: str, **params: object) -> HerdError:
    with pytest.raises(HerdError) as caught:
        session.request(method, **params)
    assert type(caught.value) is kind
    return caught.value


@pytest.mark.requirement("A-runs-11")
def test_what_is_open_for_a_run_is_answered_when_its_parent_has_finished_sending(home, alice):
    with started(home) as bob:
        run = run_of(bob)
        assert alice.until_listed("tester") == run
        reading = bob.begin("session.read", run=run, wait_ms=30_000)
        bob.request("session.waiting", run=run)  # so the one before has begun
        bob.close_stdin()

        with pytest.raises(PeerOffline):
            bob.result(reading)
        assert bob.wait() == 0


@pytest.mark.requirement("A-receipts-09", "A-ident-10", "A-restart-03")
def test_the_mail_of_a_run_whose_session_was_killed_moves_to_nobody_and_its_sender_is_told(home, alice):
    with started(home) as bob:
        run = run_of(bob)
        alice.until_listed("tester")
        message_id = alice.send(run, "never read")
        bob.kill()
    with started(home) as bob:
        again = run_of(bob)
        alice.until_listed("tester")
        status = alice.request("session.status", message_id=message_id)

        assert again != run
        assert (status["state"], status["outcome"]) == ("accepted", "TARGET_ENDED")
        assert bob.request("session.read")["messages"] == []
        assert bob.request("session.read", run=again)["messages"] == []
        refused(alice, TargetEnded, "session.send", target=run, message="x")
        refused(bob, TargetEnded, "session.read", run=run)


def test_a_run_dies_with_its_process_and_its_id_may_be_bound_in_the_next(home, alice):
    with started(home) as bob:
        first = run_of(bob)
        refused(bob, InvalidParams, "session.bind_run", run_id="r-1")
        bob.end()
    with started(home) as bob:
        second = run_of(bob)

        assert first != second
        assert second != peer_id_of("r-1")


@pytest.mark.requirement("A-runs-06")
def test_the_messages_of_a_run_are_carried_out_by_its_parents_coordinator(home, alice):
    with started(home) as bob:
        bob.until_listed("alice")
        target = alice.request("session.whoami")["target"]
        run = run_of(bob)
        before = files_of(home)
        sent = bob.request("session.send", run=run, target=target, message="from the run")
        [message] = alice.request("session.read", wait_ms=20_000)["messages"]

        assert message["from"] == {
            "target": run,
            "name": "tester",
            "role": "lead",
            "run_of": bob.request("session.whoami")["target"],
        }
        assert message["message_id"] == sent["message_id"]
        assert {path for path in files_of(home) - before if "mailbox" not in path.name} == set()


def files_of(home: Path) -> set[Path]:
    """Give every file, socket and key of the data root."""
    return {path for path in home.rglob("*") if not path.is_dir()}
