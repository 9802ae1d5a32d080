"""Who is there: `list_peers`, what counts as shown, and which session a target, peer id or name means."""

import base64
import binascii
import json
from typing import Any, NamedTuple

from herd.coordinator.authority import Authority
from herd.coordinator.own import Own
from herd.coordinator.runs.directories import entries_of_runs
from herd.coordinator.runs.others import ListedRuns
from herd.coordinator.shapes import size_of
from herd.core.clock import Clock
from herd.core.errors import AmbiguousTarget, EligibilityUnverified, InvalidParams, UnknownTarget
from herd.core.identity import is_peer_id, is_target, target_of
from herd.core.limits import ANSWER_BYTES, LIST_PAGE
from herd.core.paths import Layout
from herd.core.text import printable
from herd.mail import shown
from herd.mail.correspondents import identity_of
from herd.mail.mailbox import Mailbox
from herd.mail.shown import Shown
from herd.presence.bearers import Bearers
from herd.presence.entries import entries_of, matches
from herd.presence.record import Record
from herd.presence.registry import Registry, names_of, sleeping_keys
from herd.presence.scopes import Extent, narrowed
from herd.presence.session_file import read_session_file
from roles.discovery import Judging, eligible, named
from roles.model import Unverified, next_step


class Recipient(NamedTuple):
    """A resolved target: what the envelope says, the session it means, and whether it means a run of that."""

    to: str
    key: str
    run: bool = False

    @property
    def identity(self) -> str:
        """Who it is, as messages are told apart by it; see `herd.mail.inbox.Sender.identity`."""
        return identity_of(self.key, self.to if self.run else None)


class Listing:
    """The calling session's view of the registry.

    Args:
        layout: The folders of this machine.
        registry: Where records are read.
        authority: Asked about each peer.
        own: The calling session.
        mailbox: Where what was shown is kept.
        clock: Says when.
        runs: The runs of this session and of others.
    """

    def __init__(
        self,
        layout: Layout,
        registry: Registry,
        authority: Authority,
        own: Own,
        mailbox: Mailbox,
        clock: Clock,
        runs: ListedRuns,
    ) -> None:
        self._runs = runs
        self._layout = layout
        self._registry = registry
        self._authority = authority
        self._own = own
        self._mailbox = mailbox
        self._clock = clock
        self._bearers = Bearers(layout)
        self._seen: dict[str, Shown] = {}

    async def page(
        self, query: str | None, cursor: str | None, *, scope: str | None = None, show: bool
    ) -> dict[str, Any]:
        """Give one page of the peers this session may write to, in the order of their targets.

        Args:
            query: Only peers with this text in a label or target, whatever its case.
            cursor: What the page before gave as `next_cursor`.
            scope: Only peers within this scope, which is none wider than the session's; that one where None.
            show: Whether the page counts as shown to this session's tools.

        Raises:
            InvalidParams: the cursor belongs to another scope or query or is none of ours.
            ScopeDenied: the scope is wider than the session's.
        """
        extent = narrowed(self._own.as_party().extent, scope)
        after = _read_cursor(cursor, extent.scope, query)
        peers = await self.eligible(extent)
        found = entries_of(peers)
        keys = {names_of(peer)[0]: peer.key for peer in peers}
        runs = await self._runs.listed(peers, self._own)
        if runs:
            found += entries_of_runs(runs, [entry["name"] for entry in found if "name" in entry])
            found.sort(key=lambda entry: str(entry["target"]))
            keys.update((one.entry.peer_id, one.record.key) for one in runs)
        entries = [entry for entry in found if query is None or matches(entry, query)]
        rest = [entry for entry in entries if entry["target"] > after]
        page = _fitting(rest)
        if show:
            await self._show(page, keys)
        more = (
            {"next_cursor": _cursor(extent.scope, query, page[-1]["target"])} if len(rest) > len(page) else {}
        )
        return {"peers": page, **more}

    async def eligible(
        self, extent: Extent | None = None, unproven: list[Unverified] | None = None
    ) -> list[Record]:
        """Give the listed sessions that this one may write to; see `roles.discovery.eligible`.

        Args:
            extent: What the call asks for; all that the session's scope takes in where None.
            unproven: Takes why somebody is left out about whom nothing is certain.
        """
        me = self._own.as_party()
        party = me if extent is None else me._replace(extent=extent)

        def judged(judging: Judging) -> list[Record]:
            if unproven is not None:
                unproven.clear()
            return eligible(self._registry.listed(), party, judging, unproven=unproven)

        return await self._authority.gathered(judged)

    async def shown(self, target: str) -> Recipient:
        """Resolve what a tool gave: an exact target or peer id that was shown to this session.

        Raises:
            UnknownTarget: it was not shown to this session, or is this session itself.
            AmbiguousTarget: another session of this machine has the same target.
        """
        self._require_other(target)
        if not (is_target(target) or is_peer_id(target)):
            raise UnknownTarget(f"{printable(target)!r} is no target; names and paths are not accepted")
        if self._runs.is_inside(target, self._own):
            return Recipient(target, self._own.key)
        peer = self._seen.get(target)
        if peer is None:
            peer = await self._mailbox.read(lambda connection: shown.find(connection, target))
        if peer is None:
            raise UnknownTarget(f"{target} was not shown to this session")
        self._seen[target] = peer
        if is_target(target) and self._bearers.of(target) <= {peer.key}:
            return Recipient(target, peer.key)
        if any(key != peer.key for key in self._with_target(target)):
            raise AmbiguousTarget(f"two sessions of this machine have the target {target}")
        return Recipient(target, peer.key)

    async def typed(self, text: str) -> Recipient:
        """Resolve what a person typed, as `named` does, and a run that was shown to this session.

        Raises as `named` and `shown` do.
        """
        if not is_peer_id(text) or any(text in names_of(one) for one in self._registry.listed()):
            return await self.named(text)
        return await self.shown(text)

    async def named(self, text: str) -> Recipient:
        """Resolve what a person typed: a target, a peer id, or a name that one eligible peer alone bears.

        Raises:
            UnknownTarget: nothing bears it, or it is this session itself.
            AmbiguousTarget: several do; `candidates` are their exact targets.
            EligibilityUnverified: nothing bears it, and about somebody nothing is certain.
        """
        self._require_other(text)
        if is_target(text):
            keys = self._with_target(text)
        elif is_peer_id(text):
            keys = {record.key for record in self._registry.listed() if text in names_of(record)}
        else:
            unproven: list[Unverified] = []
            peers = await self.eligible(unproven=unproven)
            try:
                peer = named(peers, text)
            except UnknownTarget as unknown:
                if not unproven:
                    raise
                # Somebody about whom nothing is proven may have that name.
                raise EligibilityUnverified(
                    f"{unknown.message}, and {unproven[0].reason}", hint=next_step(unproven[0])
                ) from None
            return Recipient(names_of(peer)[0], peer.key)
        if len(keys) > 1:
            raise AmbiguousTarget(f"two sessions of this machine have the target {text}")
        if not keys:
            raise UnknownTarget(f"no session of this machine is {printable(text)}")
        return Recipient(text, keys.pop())

    def _with_target(self, target: str) -> set[str]:
        """Give the keys of every session here with that target, running or not."""
        keys = {record.key for record in self._registry.scan() if target in names_of(record)}
        # A target is computed from the key, so only a file that may have this one is read: a damaged file of
        # another session keeps nobody from writing.
        role = target.partition(":")[0]
        for key in sleeping_keys(self._layout):
            if key not in keys and target_of(role, key) == target:
                file = read_session_file(self._layout, key)
                if file is not None and file.role == role:
                    keys.add(key)
        return keys

    def _require_other(self, target: str) -> None:
        if target in self._own.names:
            raise UnknownTarget("that target is this session itself")

    async def _show(self, page: list[dict[str, Any]], keys: dict[str, str]) -> None:
        known = await self._mailbox.read(shown.every) or {}
        new = [
            Shown(entry["target"], keys[entry["target"]], entry.get("name"))
            for entry in page
            if entry["target"] not in known
        ]
        if new:
            self._seen.clear()  # the table holds so many, and forgets those seen longest ago
            now = self._clock.wall_ms()
            await self._mailbox.run(lambda connection: shown.remember(connection, new, now))


def _fitting(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Give the first entries, as many as one answer carries."""
    page: list[dict[str, Any]] = []
    size = 0
    for entry in entries[:LIST_PAGE]:
        size += size_of(entry)
        if page and size > ANSWER_BYTES:
            break
        page.append(entry)
    return page


def _cursor(scope: str, query: str | None, target: str) -> str:
    return base64.urlsafe_b64encode(json.dumps([scope, query, target]).encode()).decode()


def _read_cursor(cursor: str | None, scope: str, query: str | None) -> str:
    if cursor is None:
        return ""
    try:
        *asked, target = json.loads(base64.urlsafe_b64decode(cursor.encode()))
    except (ValueError, TypeError, binascii.Error, RecursionError):
        raise InvalidParams("cursor is none that list_peers gave", field="cursor") from None
    if asked != [scope, query] or not isinstance(target, str):
        raise InvalidParams("cursor belongs to another scope or query", field="cursor")
    return target
