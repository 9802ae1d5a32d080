"""Section authority: what a verdict costs, and a send on which authority has something to say.

Sends are compared with those of a machine on which there are no assignments. Once both sides are ordinary and
a thousand assignments of others lie beside them; once both are managed, in one worktree group of a real git,
which is asked anew as often as a verdict needs it.
"""

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from assignments import store
from assignments.evidence import Held, Scan
from assignments.record import Assignment
from assignments.worktrees.groups import Grouped
from herd.core.authority_lock import AuthorityLock
from herd.core.identity import SessionName
from herd.core.paths import Layout, open_layout
from roles.eligibility import verdict
from roles.model import LEAD, MANAGED, ORDINARY, Allowed, Party
from tests.bench.measuring import Sample, cpu_timed, in_turn
from tests.bench.report import Check, Figure, Finding, timed_figure, timed_floor
from tests.bench.workshop import AS_INSTALLED, HERD, TEXT, Workshop, all_taken, sending, target
from tests.fakes.herd_session import HerdSession

_OTHERS = 1_000
_SAMPLES = 60
_CALLS = 1_000
_VERDICT_BOUND_US = 50.0
_SEND_BOUND = 1.5
_REPO = "/home/somebody/project/.git"


def measure(workshop: Workshop) -> Iterator[Finding]:
    """Measure."""
    yield from _verdicts()
    yield from _sends(workshop)


def _verdicts() -> Iterator[Finding]:
    held = {f"{number:064x}": (Held("none", _REPO, f"work/{number}"),) for number in range(_OTHERS)}
    scan = Scan(held)
    ordinary = [Party(name * 64, LEAD, ORDINARY, socket="none") for name in "xy"]
    managed = [Party(key, LEAD, MANAGED, socket="none", membership=Grouped(_REPO)) for key in list(held)[:2]]
    for name, (sender, target_) in {"ordinary Leads": ordinary, "managed Leads": managed}.items():
        used = in_turn({name: lambda: cpu_timed(lambda: _judge(sender, target_, scan))}, samples=20)  # noqa: B023
        figure = used[name].best / _CALLS * 1e6
        yield Figure(f"one verdict about {name}, CPU", figure, "us", bound=_VERDICT_BOUND_US)
        right = verdict(sender, target_, scan) == Allowed()
        yield Check(f"it allows these {name}", None if right else "it does not")


def _judge(sender: Party, target_: Party, scan: Scan) -> None:
    for _ in range(_CALLS):
        verdict(sender, target_, scan)


def _sends(workshop: Workshop) -> Iterator[Finding]:
    free, bound = workshop.home(wide=True), workshop.home(wide=True)
    repository = workshop.folder / "repository"
    linked = workshop.folder / "linked"
    _git(workshop.folder, "init", "-q", str(repository))
    _git(repository, "commit", "-q", "--allow-empty", "-m", "first")
    _git(repository, "worktree", "add", "-q", "-b", "other", str(linked))
    _assign(open_layout(str(bound)), str(repository / ".git"))
    outcomes: list[str] = []
    with ExitStack() as running:

        def pair(home: Path, name: str, *folders: Path) -> Sample:
            sides = [
                running.enter_context(_session(home, f"{name}-{number}", folder))
                for number, folder in enumerate(folders)
            ]
            sides[0].request("session.list")
            return sending(sides[0], target(sides[1]), outcomes)

        cases = {
            "none": pair(free, "ordinary", free, free),
            "ordinary": pair(bound, "ordinary", bound, bound),
            "managed": pair(bound, "managed", repository, linked),
        }
        for case in cases.values():
            for _ in range(3):
                case()
        outcomes.clear()
        found = in_turn(cases, samples=_SAMPLES)
    floor = timed_floor("a send where there are no assignments", found["none"])
    yield timed_figure(f"beside {_OTHERS} assignments of others", found["ordinary"], floor, _SEND_BOUND)
    yield timed_figure("between managed Leads", found["managed"], floor, _SEND_BOUND)
    yield all_taken(outcomes)


def _session(home: Path, session_id: str, folder: Path) -> HerdSession:
    return HerdSession(home, "bench", session_id, cwd=folder, herd=(HERD,), environ=AS_INSTALLED).ready()


def _assign(layout: Layout, repo: str) -> None:
    lock = AuthorityLock(layout.authority_lock, layout.authority_gate, layout.authority_generation)
    with lock.exclusive() as hold:
        for number in range(_OTHERS):
            store.write(layout, hold, _assignment(number, f"other-{number}", _REPO))
        for number in range(2):
            store.write(layout, hold, _assignment(_OTHERS + number, f"managed-{number}", repo))
    lock.close()


def _assignment(number: int, session_id: str, repo: str) -> Assignment:
    return Assignment(
        id=f"00000000-0000-4000-8000-{number:012x}",
        socket="none",
        repo=repo,
        branch=f"work/{number}",
        session=SessionName("bench", session_id),
        text=TEXT,
        created_at=1_700_000_000_000,
    )


def _git(folder: Path, *words: str) -> None:
    quiet = ("-c", "user.name=bench", "-c", "user.email=bench@localhost")
    subprocess.run(["git", *quiet, *words], cwd=folder, check=True, stdin=subprocess.DEVNULL)
