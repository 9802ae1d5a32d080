"""The pieces of a text too long for one frame, from `session.draft` to the send that they stand in front of.

A text never goes without its front: where a piece was refused, or none is there, a send that counts on them
is refused, too.
"""

from herd.core.errors import InvalidParams, MessageTooLarge

_ALL_AGAIN = "Give all pieces again by session.draft, the first one with `first`, and then send."


class Pieces:
    """What one adapter has drafted, and not sent yet."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._broken = False

    def begin(self) -> None:
        """Forget what there is: the next piece is the first one of a text."""
        self._pieces, self._broken = [], False

    def add(self, text: str, most: int) -> int:
        """Take the next piece and give the bytes that there are now.

        Args:
            text: The piece.
            most: Bytes of all of them.

        Raises:
            MessageTooLarge: they are more; what there was is forgotten.
        """
        size = sum(len(piece.encode()) for piece in (*self._pieces, text))
        if size > most:
            raise MessageTooLarge(f"the text has more than {most} bytes, mailbox_payload_bytes")
        self._pieces.append(text)
        return size

    def refused(self) -> None:
        """Note that a piece was not taken, so that nothing that comes behind it goes without it."""
        self._pieces, self._broken = [], True

    def taken(self, *, needed: bool) -> list[str]:
        """Take out what there is, in its order: what is drafted meanwhile belongs to another text.

        Args:
            needed: Whether the send says that it is `drafted`.

        Raises:
            InvalidParams: it says so, and there is nothing, or a piece was refused; nothing is kept then.
        """
        pieces, broken = self._pieces, self._broken
        self.begin()
        if needed and broken:
            raise InvalidParams(
                "drafted: a piece of this text was refused; nothing was sent",
                field="drafted",
                hint=_ALL_AGAIN,
            )
        if needed and not pieces:
            raise InvalidParams(
                "drafted: no piece was given before; nothing was sent", field="drafted", hint=_ALL_AGAIN
            )
        return pieces

    def give_back(self, pieces: list[str]) -> None:
        """Keep pieces for the send to be made again, unless another text was begun meanwhile."""
        if not self._pieces and not self._broken:
            self._pieces = pieces
