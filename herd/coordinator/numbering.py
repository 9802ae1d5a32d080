"""The numbers of agents' results: each is given once in a data root, whoever asks and whatever dies.

A number is on the disk before anything bears it. One whose caller died then is never used.
"""

import hashlib
import json

from herd.core.errors import RecoveryRequired
from herd.core.files import private_folder, read_private, replace_private
from herd.core.limits import RESULT_NUMBER_BYTES, RESULT_NUMBER_WAIT_MS
from herd.core.locks import HeldLock
from herd.core.paths import Layout


def next_number(layout: Layout, agent: str) -> int:
    """Give an agent's next number, from 1, durably taken. Blocks: call it in a thread.

    Args:
        layout: The folders of this machine.
        agent: The name of the agent.

    Raises:
        LockTimeout: somebody else held the numbers for too long.
        RecoveryRequired: the file of the last number is damaged; it is left as it is.
        OSError: the disk refused it.
    """
    private_folder(layout.results)
    path = layout.result_number(hashlib.sha256(agent.encode()).hexdigest())
    with HeldLock.acquire(layout.results_lock, wait_ms=RESULT_NUMBER_WAIT_MS):
        number = _last(path, agent) + 1
        replace_private(path, json.dumps({"version": 1, "agent": agent, "last": number}).encode())
    return number


def _last(path: str, agent: str) -> int:
    content = read_private(path, RESULT_NUMBER_BYTES)
    if content is None:
        return 0
    try:
        match json.loads(content):
            case {"version": 1, "agent": str(named), "last": int(last)} if named == agent and last >= 1:
                return last
    except ValueError:
        pass
    raise RecoveryRequired(f"{path} is damaged, and a number in it may be given already", path=path)
