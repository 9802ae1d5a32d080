"""Whether an open mailbox still stands at its path.

It compares what one look at the path tells with what was noted at the opening, and knows nothing of SQLite,
of locks, or of what follows where the two differ.
"""

import os
from typing import NamedTuple

from herd.core.errors import RecoveryRequired


class Standing(NamedTuple):
    """The very file that an open mailbox is, to be looked for again where it was opened.

    SQLite goes on in a file that was removed or renamed, and what it stores there nobody finds any more.
    """

    path: str
    device: int
    inode: int

    @classmethod
    def of(cls, path: str) -> "Standing":
        """Note what stands at a path, as soon as it was opened.

        Raises:
            OSError: nothing does, or it cannot be looked at.
        """
        status = os.lstat(path)
        return cls(path, status.st_dev, status.st_ino)

    def require(self) -> None:
        """Let pass while that file is still there; one system call.

        Raises:
            RecoveryRequired: it is not.
        """
        try:
            status = os.lstat(self.path)
        except OSError as fault:
            raise self._gone(f": {fault.strerror}") from None
        if (status.st_dev, status.st_ino) != (self.device, self.inode):
            raise self._gone("")

    def _gone(self, why: str) -> RecoveryRequired:
        return RecoveryRequired(
            f"{self.path} is no longer the file that this process has open{why}",
            hint="Put back the file that was there, or end the session and start it again; "
            "until then nothing is accepted.",
            path=self.path,
        )
