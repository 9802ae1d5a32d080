"""The look at the files of the hosts that Herd is installed into; the hosts themselves are not asked."""

import os
from collections.abc import Mapping

from herd.cli.hosting import HOSTS, describe
from herd.cli.looking.finding import Finding, Findings
from herd.core.config import Settings
from herd.core.paths import Layout
from herd.hosts.install.ledger import shelf_of
from herd.hosts.install.looking import look


def hosts(environ: Mapping[str, str], settings: Settings, layout: Layout) -> Findings:
    """Look at every installation.

    Raises:
        HerdError: a variable of a host cannot be used, or what was installed is not on record any more.
    """
    for name in HOSTS:
        if not os.path.lexists(shelf_of(layout, name).ledger_file):
            continue
        for one in look(describe(name, environ, settings, layout, tools=False), layout, ask=False):
            yield Finding(f"{name}: {one.what}", one.ok, one.detail, one.next_step)
