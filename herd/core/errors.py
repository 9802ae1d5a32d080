"""Every refusal a caller can meet: one class for each decision, in one table.

A class carries its wire code, its JSON-RPC number, the exit status of a command that ends with it and
a hint that says what to do next. `may_pass` tells a sender's route whether to keep the message and try
again (True) or to call it rejected (False). Codes are part of the protocol: a name never changes.
"""

from typing import Any, ClassVar

from herd.core.limits import RETRY_BELIEVED_MS

DONE = 0
INTERNAL = 1
USAGE = 2
NOT_FOUND = 3
REFUSED = 4
MAY_PASS = 5
CONFLICT = 6
FULL = 7
RECOVERY = 8
UNSUPPORTED = 9

EXIT_STATUSES: dict[int, str] = {
    DONE: "done",
    INTERNAL: "internal fault",
    USAGE: "usage",
    NOT_FOUND: "not found or ambiguous",
    REFUSED: "refused (scope, capability, eligibility)",
    MAY_PASS: "offline or unverified, may pass",
    CONFLICT: "conflict or held",
    FULL: "too large or full",
    RECOVERY: "recovery required",
    UNSUPPORTED: "unsupported",
}

_LIST_AGAIN = "Call `list_peers` (or `herd peers`) again and use a target from that list."
_ASK_STATUS = "Ask for the message's status (`herd status MESSAGE`) before sending it again."


class HerdError(Exception):
    """A refusal with a stable code.

    Args:
        message: What was wrong, naming the thing; shown to people and models.
        hint: What to do next; the class's own hint where none is given.
        details: JSON values that travel beside the code, such as `retry_after_ms`.
    """

    code: ClassVar[str] = "INVALID_RPC"
    exit_status: ClassVar[int] = INTERNAL
    hint: ClassVar[str] = "Look at the log of the session; the message itself is kept."
    may_pass: ClassVar[bool] = False
    rpc_number: ClassVar[int] = -32000

    def __init__(self, message: str, *, hint: str | None = None, **details: Any) -> None:
        super().__init__(message)
        self.message = message
        self.next_step = hint or self.hint
        self.details = details

    def to_wire(self) -> dict[str, Any]:
        """Give the JSON-RPC error object: number, `CODE: text`, and the code again in `data`."""
        data = {**self.details, "code": self.code, "hint": self.next_step}
        return {"code": self.rpc_number, "message": f"{self.code}: {self.message}", "data": data}

    def to_tool(self) -> dict[str, Any]:
        """Give what a tool or a command's standard error shows: code, message, hint and details."""
        return {**self.details, "code": self.code, "message": self.message, "hint": self.next_step}


class PeerOffline(HerdError):
    """There is no socket and no mailbox to visit for the named peer now."""

    code = "PEER_OFFLINE"
    exit_status = MAY_PASS
    may_pass = True
    hint = (
        "List the peers again, choose the current instance on purpose, and ask for the status of the old "
        "message before sending it again."
    )


class TargetEnded(HerdError):
    """The run ended, or another instance replaced the one named by a `peer-` id."""

    code = "TARGET_ENDED"
    exit_status = MAY_PASS
    hint = PeerOffline.hint


class UnknownTarget(HerdError):
    """A target, message id or request id matches nothing, or was never shown to this session."""

    code = "UNKNOWN_TARGET"
    exit_status = NOT_FOUND
    hint = _LIST_AGAIN


class AmbiguousTarget(HerdError):
    """A name, target or process fits several sessions; `candidates` lists their exact targets."""

    code = "AMBIGUOUS_TARGET"
    exit_status = NOT_FOUND
    hint = "Use an exact target, peer id or request id. " + _LIST_AGAIN


class ScopeDenied(HerdError):
    """The recipient, message or mailbox lies outside what either side allows or owns."""

    code = "SCOPE_DENIED"
    exit_status = REFUSED
    hint = (
        "Compare the scopes of both sessions, a run's delegation, the canonical workspace and the data root. "
        + _LIST_AGAIN
    )


class CapabilityDenied(HerdError):
    """The caller lacks the capability that the operation needs."""

    code = "CAPABILITY_DENIED"
    exit_status = REFUSED
    hint = "Let a session that holds this capability do it; no message can confer one. " + _LIST_AGAIN


class UnsupportedProtocol(HerdError):
    """The other side speaks a protocol version other than 1; its socket is not dialled."""

    code = "UNSUPPORTED_PROTOCOL"
    exit_status = UNSUPPORTED
    hint = "Update Herd on both sides and restart the older session."


class QueueFull(HerdError):
    """A bound on inbox, storage, pending work or connections is reached; nothing accepted is dropped.

    `retry_after_ms` says how long the sender's next try of that message waits at least.
    """

    code = "QUEUE_FULL"
    exit_status = FULL
    may_pass = True
    hint = (
        "Let present work be read or finished, and look at the limits (`herd doctor`); "
        "nothing that was accepted is dropped to make room."
    )


class MessageTooLarge(HerdError):
    """Text and files, or the envelope with its other fields, are over a bound; nothing was stored."""

    code = "MESSAGE_TOO_LARGE"
    exit_status = FULL
    hint = "Shorten the text or send it in parts; a path to a file on this machine is often enough."


class BodyMissing(HerdError):
    """A message came before all of its bodies did, or they are lost since; its sender hands them in again."""

    code = "BODY_MISSING"
    exit_status = MAY_PASS
    may_pass = True
    hint = "Nothing to do: the message stays queued, and its text and files are handed in again with it."


class DeliveryUnknown(HerdError):
    """A request was not answered in time or its connection broke; the message stays pending."""

    code = "DELIVERY_UNKNOWN"
    exit_status = MAY_PASS
    may_pass = True
    hint = _ASK_STATUS


class MessageExpired(HerdError):
    """The lifetime that a message's sender set is over; it goes to no mailbox any more."""

    code = "MESSAGE_EXPIRED"
    exit_status = MAY_PASS
    may_pass = True
    hint = "Look at its status; if it is `expired` and still matters, send it anew."


class ControllerUnavailable(HerdError):
    """The resource's controller is proven gone, and its decision is needed."""

    code = "CONTROLLER_UNAVAILABLE"
    exit_status = MAY_PASS
    hint = "Let a person set a controller for this resource."


class ResourceBusy(HerdError):
    """A holder, blocker or another reader is using what was asked for."""

    code = "RESOURCE_BUSY"
    exit_status = CONFLICT
    hint = "Wait until the present holder has ended; nothing is taken from it."


class RecoveryRequired(HerdError):
    """State is corrupt or missing, or a process's or session's identity cannot be proven."""

    code = "RECOVERY_REQUIRED"
    exit_status = RECOVERY
    may_pass = True
    hint = (
        "Keep the files as they are, verify the original message or process identity, and then recover "
        "explicitly; `herd doctor` names what is damaged."
    )


class SystemWant(RecoveryRequired):
    """The disk or the kernel refuses for want of something, and that passes once it is mended.

    On the wire it is `RECOVERY_REQUIRED`, as its parent is; here it says that trying again later can help.
    """


class InvalidParams(HerdError):
    """A parameter or setting is missing, extra, mistyped or out of range; the message names it."""

    code = "INVALID_PARAMS"
    exit_status = USAGE
    rpc_number = -32602
    hint = "Correct the named field and call again."


class InvalidRpc(HerdError):
    """JSON that is no valid JSON-RPC frame, or a fault inside the other side, told without its cause."""

    code = "INVALID_RPC"
    exit_status = INTERNAL
    may_pass = True


class ParseError(HerdError):
    """A frame that is not strict UTF-8 or not JSON."""

    code = "PARSE_ERROR"
    exit_status = USAGE
    rpc_number = -32700
    hint = "Send one UTF-8 JSON object a line."


class FrameTooLarge(HerdError):
    """A frame is larger than `frame_bytes`, or than 65,536 bytes when sending: no byte of it left then."""

    code = "FRAME_TOO_LARGE"
    exit_status = FULL
    hint = "Send or ask for less at once; `frame_bytes` bounds only what is read."


class AuthenticationFailed(HerdError):
    """An identity proof failed, was replayed, late or out of order, or its instance left the record."""

    code = "AUTHENTICATION_FAILED"
    exit_status = MAY_PASS
    may_pass = True
    hint = _LIST_AGAIN


class UnsafeEndpoint(HerdError):
    """A socket, directory or file has the wrong owner, mode or type, is a link, or its path is too long."""

    code = "UNSAFE_ENDPOINT"
    exit_status = REFUSED
    hint = "Look at the named path: it must be yours alone, no link, 0700 for a folder and 0600 for a file."


class CommunicationDisabled(HerdError):
    """Herd is switched off for this session."""

    code = "COMMUNICATION_DISABLED"
    exit_status = REFUSED
    hint = "Enable Herd for every session concerned and restart them."


class MessageIdConflict(HerdError):
    """A known message id of the same sender and recipient came with other content; the first one stands."""

    code = "MESSAGE_ID_CONFLICT"
    exit_status = CONFLICT
    hint = "Send the new text as a new message; the first message with this id is untouched."


class InvalidReply(HerdError):
    """`reply_to` names no message of this exact conversation."""

    code = "INVALID_REPLY"
    exit_status = REFUSED
    hint = "Answer a message that you received from this very target, and give its original message id."


class RateLimited(HerdError):
    """The sender is above its rate; the message stays queued."""

    code = "RATE_LIMITED"
    exit_status = FULL
    may_pass = True
    hint = "Nothing to do: the message stays queued and is tried again after `retry_after_ms`."

    def until(self, next_try: str) -> "RateLimited":
        """Give the same with the time of the next try, as it is shown, in its hint."""
        hint = f"Nothing to do: the message stays queued and is tried again at {next_try}."
        return RateLimited(self.message, hint=hint, **self.details)


class StalePolicy(HerdError):
    """A ticket, grant or launch belongs to an earlier policy epoch."""

    code = "STALE_POLICY"
    exit_status = CONFLICT
    hint = "Read the resource's status again and request under the current epoch."


class RequestIdConflict(HerdError):
    """A request id already belongs to another owner, reason, command or resource."""

    code = "REQUEST_ID_CONFLICT"
    exit_status = CONFLICT
    hint = "Use a new request id for a new request."


class ReservationExpired(HerdError):
    """A reservation was not used in time."""

    code = "RESERVATION_EXPIRED"
    exit_status = CONFLICT
    hint = "Request the resource again."


class ResourceWaitTimeout(HerdError):
    """A wait for a resource reached its limit; its ticket is cancelled and no process was started."""

    code = "RESOURCE_WAIT_TIMEOUT"
    exit_status = MAY_PASS
    hint = "Look at the resource's controller and queue; no process was allowed to start."


class MethodNotFound(HerdError):
    """An authenticated caller named a method that does not exist."""

    code = "METHOD_NOT_FOUND"
    exit_status = UNSUPPORTED
    rpc_number = -32601
    hint = "Update the older side, or call a method of this version."


class AutomaticReplyLimit(HerdError):
    """A message sent without a person would exceed its depth or budget."""

    code = "AUTOMATIC_REPLY_LIMIT"
    exit_status = REFUSED
    hint = "A message that a person starts begins a fresh conversation."


class UnsupportedPlatform(HerdError):
    """This platform cannot prove who owns a socket; nothing else was opened in its place."""

    code = "UNSUPPORTED_PLATFORM"
    exit_status = UNSUPPORTED
    hint = "Keep Herd disabled here; it runs on Linux and macOS, and in WSL 2."


class SessionHeld(HerdError):
    """Another process coordinates this session; `holder` is its owner record."""

    code = "SESSION_HELD"
    exit_status = CONFLICT
    hint = "End the other process of this session first, or use that one."


class NoSession(HerdError):
    """No session is proven for this caller, or the process has not been bound to one yet."""

    code = "NO_SESSION"
    exit_status = NOT_FOUND
    hint = "Run it inside an agent's session or in a terminal, or name a terminal session: `--as NAME`."


class NewerState(HerdError):
    """State was written by a newer Herd and is left alone."""

    code = "NEWER_STATE"
    exit_status = UNSUPPORTED
    may_pass = True
    hint = "Update Herd to the version that wrote it; nothing was changed."


class LockTimeout(HerdError):
    """A lock was not free within its bound; `holder` is its owner record where it has one."""

    code = "LOCK_TIMEOUT"
    exit_status = MAY_PASS
    may_pass = True
    hint = "Try again; if it stays so, look at the process that holds it."


class CustodyChanged(HerdError):
    """The message may have reached another mailbox of this session, so this one does not take it."""

    code = "CUSTODY_CHANGED"
    exit_status = CONFLICT
    may_pass = True
    hint = "The mailbox that first answered is gone or was replaced; cancel the message and send it anew."


class RestartRequired(HerdError):
    """Code of Herd was replaced after this process started; old and new code are never mixed."""

    code = "RESTART_REQUIRED"
    exit_status = UNSUPPORTED
    may_pass = True
    hint = "Restart this session; its mail is kept."


class PackageShadowed(HerdError):
    """Another installed package hides one of Herd's own."""

    code = "PACKAGE_SHADOWED"
    exit_status = UNSUPPORTED
    hint = "Install Herd alone, for example with `pipx install herd-coordinator`."


class AssignmentConflict(HerdError):
    """An assignment stands in the way of the change, or is not the one that the change is about."""

    code = "ASSIGNMENT_CONFLICT"
    exit_status = CONFLICT
    hint = (
        "Look at the assignments as they are now (`herd assignments`), and decide anew; nothing was changed."
    )


class EligibilityDenied(HerdError):
    """Verified evidence says that these two sessions may not exchange mail."""

    code = "ELIGIBILITY_DENIED"
    exit_status = REFUSED
    hint = _LIST_AGAIN


class EligibilityUnverified(HerdError):
    """The evidence that would allow the exchange is missing, unreadable or ambiguous; nothing was queued."""

    code = "ELIGIBILITY_UNVERIFIED"
    exit_status = MAY_PASS
    may_pass = True
    hint = "`herd doctor` names the evidence that is missing. " + _LIST_AGAIN


BY_CODE: dict[str, type[HerdError]] = {kind.code: kind for kind in HerdError.__subclasses__()}


def from_wire(error: dict[str, Any], *, own: bool = False) -> HerdError:
    """Read a JSON-RPC error object.

    A code that this version does not know is read as `INVALID_RPC`, whatever its number says.

    Args:
        error: The object.
        own: Whether this session's own coordinator said it: only then its hint and details are taken. What a
            peer would have us do next is a peer's text, and a model reads hints as advice.
    """
    data = error.get("data")
    details = dict(data) if isinstance(data, dict) else {}
    code = details.pop("code", None)
    hint = details.pop("hint", None)
    kind = BY_CODE.get(code, InvalidRpc) if isinstance(code, str) else InvalidRpc
    text = error.get("message")
    message = text if isinstance(text, str) else "the other side gave no reason"
    retry_after = details.get("retry_after_ms")
    kept: dict[str, Any] = {}
    if own:
        kept = {name: value for name, value in details.items() if name not in {"message", "own"}}
    if type(retry_after) is int and retry_after >= 0:
        # It paces a clock of ours, which a number of any length would break or stop for good.
        kept["retry_after_ms"] = min(retry_after, RETRY_BELIEVED_MS)
    return kind(
        message.removeprefix(f"{kind.code}: "), hint=hint if own and isinstance(hint, str) else None, **kept
    )
