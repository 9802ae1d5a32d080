"""Installing and uninstalling: everything is read and planned, and then all of it is written or nothing.

It knows no host; see `host`. Looking at an installation is `looking`.
"""

import os
from collections.abc import Callable, Sequence
from contextlib import suppress

from herd.core.errors import ResourceBusy
from herd.core.files import private_folder
from herd.core.paths import Layout
from herd.hosts.install.disk import Change, ChangedMeanwhile, Step, apply
from herd.hosts.install.found import Found, find, missing_folders, sweep
from herd.hosts.install.host import Host, Target
from herd.hosts.install.ledger import (
    FileRecord,
    Ledger,
    Shelf,
    digest,
    put_of,
    record_of,
    shelf_of,
    short_name,
)
from herd.hosts.install.plan import CREATED, EDITED, REMOVED, RESTORED, UNCHANGED, Outcome, Plan

_TRIES = 3


class Installer:
    """Installs one host.

    Args:
        host: The host.
        layout: The folders of this machine; nothing there is made before something is written.
        step: See `disk.Step`.
    """

    def __init__(self, host: Host, layout: Layout, step: Step = lambda _, __: None) -> None:
        self._host = host
        self._layout = layout
        self._shelf = shelf_of(layout, host.name)
        self._step = step

    def install(self) -> Plan:
        """Plan and install; where another program changed a file in between, a few times.

        Raises:
            HerdError: as `plan_install` and `carry_out`.
        """
        return self._done(self.plan_install)

    def uninstall(self) -> Plan:
        """Plan and uninstall; where another program changed a file in between, a few times.

        Raises:
            HerdError: as `plan_uninstall` and `carry_out`.
        """
        return self._done(self.plan_uninstall)

    def plan_install(self) -> Plan:
        """Plan what puts everything of ours into every file.

        Raises:
            HerdError: a file cannot be edited; nothing was changed.
        """
        ledger = self._shelf.ledger()
        outcomes, edits, records = [], [], []
        folders: list[str] = []
        for target in self._host.targets:
            found = find(target.path)
            record = ledger.file(target.path) if ledger else None
            after, puts = target.written(found.content)
            if found.content is not None and target.is_kept(found.content):
                outcomes.append(_outcome(target, found, found.content))
                records.append(record or _nothing_known(target))
                continue
            kept, before = self._kept(target, found, record)
            edits += kept
            left = None if before is None else _copy_name(target)
            puts_of_all = [*(record.puts if record else ()), *map(record_of, puts)]
            records.append(
                FileRecord(
                    part=target.part, path=target.path, sha256=digest(after), restore=left, puts=puts_of_all
                )
            )
            outcomes.append(_outcome(target, found, after))
            folders += [one for one in missing_folders(found.path) if one not in folders]
            if after != found.content:
                edits += [*self._shelf.copied(target.path, found), Change(found, after, target.guard)]
        here = {target.path for target in self._host.targets}
        elsewhere = [one for one in (ledger.files if ledger else ()) if one.path not in here]
        made = [one for one in (ledger.folders if ledger else ()) if one not in folders]
        written = Ledger(
            host=self._host.name,
            command=self._host.command,
            files=[*records, *elsewhere],
            folders=[*made, *folders],
        )
        changes = _in_order([*edits, *self._shelf.written(written)], self._shelf)
        return Plan(outcomes, changes, folders, [])

    def plan_uninstall(self) -> Plan:
        """Plan what gives every file back as it was, or takes out what is ours where others changed it.

        Raises:
            HerdError: a file cannot be edited; nothing was changed.
        """
        ledger = self._shelf.ledger()
        records = list(ledger.files) if ledger else []
        earlier = [self._host.target(one.part, one.path) for one in records]
        known = {one.path for one in records}
        targets = [one for one in earlier if one is not None]
        targets += [one for one in self._host.targets if one.path not in known]
        outcomes, edits = [], []
        left: list[FileRecord] = []
        for target in targets:
            found = find(target.path)
            record = ledger.file(target.path) if ledger else None
            after, what = self._given_back(target, found, record)
            is_kept = after is not None and target.is_kept(after)
            remarks = _remarks(target, after) if is_kept else ()
            outcomes.append(Outcome(target.path, what, found.content, after, tuple(remarks)))
            left += [record] if record and is_kept else []
            if after != found.content:
                edits += [*self._shelf.copied(target.path, found), Change(found, after, target.guard)]
        copies = [
            one for record in records if record.restore for one in self._shelf.kept(record.restore, None)
        ]
        written = self._shelf.written(ledger.model_copy(update={"files": left}) if ledger and left else None)
        emptied = list(reversed(ledger.folders)) if ledger else []
        return Plan(outcomes, [*edits, *written, *copies], [], emptied)

    def carry_out(self, plan: Plan) -> None:
        """Do what was planned.

        Raises:
            HerdError: something could not be written, or was changed since; every file is as it was.
        """
        try:
            self._carry_out(plan)
        except ChangedMeanwhile as fault:
            raise ResourceBusy(
                f"{fault.path} was changed by another program just now; every file is as it was",
                hint="Run it again; the host writes its own files, too.",
            ) from fault

    def _carry_out(self, plan: Plan) -> None:
        for outcome in plan.outcomes:
            sweep(os.path.realpath(outcome.path))
        if plan.changes:
            private_folder(self._layout.backups)
            private_folder(self._shelf.copies)
            apply(plan.changes, plan.folders, self._step)
        for folder in plan.emptied:
            with suppress(OSError):  # something else is in it
                os.rmdir(folder)
        for outcome in plan.outcomes:
            for copy in self._shelf.surplus(outcome.path):
                with suppress(OSError):
                    os.unlink(copy)

    def _done(self, plan_anew: Callable[[], Plan]) -> Plan:
        for _ in range(_TRIES - 1):
            with suppress(ChangedMeanwhile):
                plan = plan_anew()
                self._carry_out(plan)
                return plan
        plan = plan_anew()
        self.carry_out(plan)
        return plan

    def _kept(
        self, target: Target, found: Found, record: FileRecord | None
    ) -> tuple[list[Change], bytes | None]:
        """Give what the uninstaller is to give back, and the change that keeps it."""
        known, before = self._shelf.knows(record, found.content)
        if not known and found.content is not None:
            before = _taken_out(target, found.content, record)
        return self._shelf.kept(_copy_name(target), before), before

    def _given_back(
        self, target: Target, found: Found, record: FileRecord | None
    ) -> tuple[bytes | None, str]:
        if found.content is None:
            return None, UNCHANGED
        known, before = self._shelf.knows(record, found.content)
        if known:
            return before, REMOVED if before is None else RESTORED
        after = _taken_out(target, found.content, record)
        if after == found.content:
            return after, UNCHANGED
        return after, REMOVED if after is None else EDITED


def _taken_out(target: Target, content: bytes, record: FileRecord | None) -> bytes | None:
    puts = [put_of(one) for one in record.puts] if record else []
    return target.taken_out(content, puts, ours_alone=record is not None and record.restore is None)


def _outcome(target: Target, found: Found, after: bytes) -> Outcome:
    what = CREATED if found.content is None else UNCHANGED if after == found.content else EDITED
    return Outcome(target.path, what, found.content, after, tuple(_remarks(target, after)))


def _nothing_known(target: Target) -> FileRecord:
    return FileRecord(part=target.part, path=target.path, sha256="", restore=None, puts=[])


def _remarks(target: Target, content: bytes | None) -> Sequence[str]:
    return [] if content is None else target.remarks(content)


def _copy_name(target: Target) -> str:
    return f"restore-{short_name(target.path)}"


def _in_order(changes: list[Change], shelf: Shelf) -> list[Change]:
    """Put what is ours in front: the record of an installation is there before any trace of it."""
    folder = os.path.realpath(shelf.folder)
    return sorted(changes, key=lambda one: not os.path.realpath(one.found.path).startswith(f"{folder}/"))
