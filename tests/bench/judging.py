"""Takes the authority lock at a steady rate, as a session does for its verdicts: a process of its own.

Started with the paths of lock, gate and generation, "shared" or "exclusive", the seconds from one to the next
and those for which each is held. For each line on standard input, a number of seconds, it goes on for that
long and answers with a line: the seconds of every wait, as JSON. It ends with its standard input.
"""

import json
import random
import sys
import time

from herd.core.authority_lock import AuthorityLock


def main(paths: list[str], kind: str, every_s: float, held_s: float) -> None:
    """Serve."""
    lock = AuthorityLock(*paths)
    take = lock.exclusive if kind == "exclusive" else lock.shared
    _say("ready")
    for line in sys.stdin:
        waits = []
        due = time.perf_counter() + random.uniform(0, every_s)  # no two of them go in step
        over = due + float(line)
        while due < over:
            time.sleep(max(due - time.perf_counter(), 0))
            began = time.perf_counter()
            with take():
                waits.append(time.perf_counter() - began)
                time.sleep(held_s)
            due += every_s
        _say(json.dumps(waits))


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:4], sys.argv[4], float(sys.argv[5]), float(sys.argv[6]))
