"""What each method of the adapter API means: its purpose, its params, its results and its own refusals.

The page that shows it takes the types and bounds of params from the code, and refuses to be written where a
method or a param stands in one of the two alone. What results hold is compared with a running coordinator by
a test.
"""

from collections.abc import Mapping
from typing import NamedTuple


class Result(NamedTuple):
    """One field of a result; `path` leads to it, with `[]` for the entries of a list."""

    path: str
    meaning: str
    always: bool = True


class Method(NamedTuple):
    """What one method is for, field by field, and which refusals are its own."""

    meaning: str
    params: Mapping[str, str]
    results: tuple[Result, ...]
    errors: tuple[str, ...]


def _sometimes(path: str, meaning: str) -> Result:
    return Result(path, meaning, always=False)


_RECEIPT = (
    Result("message_id", "the message"),
    Result("to", "the target or peer id it was sent to"),
    _sometimes("custody_id", "the recipient's mailbox, once it is known"),
    Result("state", "one of [message states](message-states.md)"),
    Result("cursor", "the event of this mailbox that made it so"),
    _sometimes("accepted_at", "when the recipient's mailbox took it, in ISO 8601"),
    _sometimes("delivered_at", "when there was evidence that its host has it"),
    _sometimes("replied_at", "when the reply was accepted"),
    _sometimes("outcome", "the code of a refusal; of a pending message, of the last refusal that may pass"),
)

_RUN = "the run that asks, by its peer id; the session itself where it is left out"

METHODS: dict[str, Method] = {
    "session.bind": Method(
        "Names the session that this process coordinates from now on, and ends the one before in order. The "
        "session that is bound already changes nothing. Where another process holds the session, this one "
        "takes over by itself as soon as it is free. Behind a session's socket it is refused.",
        {
            "host": "the host's word, lower case, such as `pi`; not `terminal`",
            "session_id": "the host's own id of the session, 1 to 512 characters",
            "created": "the session's creation time, for a host that uses ids again",
            "cwd": "where the session works",
            "name": "what people call it; where it is missing, the alias, or what is made from the folder "
            "and the session key",
            "scope": "how far it reaches and is reached: [scopes](../explanation/scopes.md); the user's "
            "where it is missing",
            "alias": "its alias, in place of the user's",
            "capabilities": "what it may do; everything that sessions may where it is missing",
        },
        (
            Result("target", "under which others write to it"),
            Result("role", "`lead`"),
            Result("kind", "`ordinary` or `managed`"),
            Result("instance_id", "this life of its coordinator"),
        ),
        (
            "SESSION_HELD",
            "CAPABILITY_DENIED",
            "LOCK_TIMEOUT",
            "RECOVERY_REQUIRED",
            "NEWER_STATE",
            "UNSAFE_ENDPOINT",
        ),
    ),
    "session.bind_run": Method(
        "Binds a child run: from now on it has a peer id, is listed and can be written to. This connection "
        "alone speaks for it, by the param `run` of other methods, and the run ends with it. See "
        "[Let child runs correspond](../how-to/let-child-runs-correspond.md).",
        {
            "run_id": "the execution's own id, 1 to 256 characters; one never bound in this instance before",
            "name": "what people call it; made from its id where it is missing",
            "parent": "the run that it is below, by its peer id; none right below the session",
            "capabilities": (
                "what is delegated to it, cut down to what its parent has; all of that, but never "
                "`resource.control`, where it is left out"
            ),
            "scope": "how far it reaches; as far as its parent where it is left out, and never further",
            "external": "whether it is only shown: then it may do nothing and gets no mail",
        },
        (
            Result("target", "the run's peer id, which others write to and `run` takes"),
            Result("name", "what people call it"),
            Result("capabilities[]", "what it may do"),
        ),
        ("TARGET_ENDED", "RECOVERY_REQUIRED"),
    ),
    "session.end_run": Method(
        "Ends a run and all below it. No request is admitted from the first moment on, whoever waits is "
        "refused, what else is open has 2 seconds to finish. What it has not read stays accepted, and the "
        "senders are told `TARGET_ENDED`. What it sent and no mailbox has is rejected with the same code.",
        {"run": "the run, by its peer id; one that this connection bound"},
        (),
        ("TARGET_ENDED", "RECOVERY_REQUIRED"),
    ),
    "session.update": Method(
        "Tells labels that have changed. It changes no right but those that scopes give to a folder, and "
        "begins no new generation of the presence.",
        {
            "cwd": "where the session works now; to scopes it is in its former folder until the new one is "
            "looked up",
            "name": "what people call it now",
            "activity": "what the host does now",
            "person_prompted": "a person has written in the session: what it sends begins afresh",
            "turn_ended": "a turn of the session has ended, however it went",
        },
        (),
        (),
    ),
    "session.whoami": Method(
        "Tells who this session is.",
        {},
        (
            Result("target", "under which others write to it"),
            Result("name", "what people call it"),
            Result("role", "`lead`"),
            Result("kind", "`ordinary` or `managed`"),
            Result("scope", "how far it reaches, and from how far it is reached"),
            Result("socket", "the Herdr socket it lives on, or `none`"),
            Result("group", "the key of the worktree group that it is proven to be in", always=False),
            Result("build.version", "of the running code"),
            Result("build.sha256", "over every Python file of the running code"),
        ),
        (),
    ),
    "session.list": Method(
        "Lists the sessions that this one may write to, in the order of their targets, at most 50 a page. "
        "What is listed counts as shown to this session, unless a command line asks. Whatever waits is tried "
        "again at once.",
        {
            "scope": "only peers within this scope, none wider than the session's own, which holds where it "
            "is missing",
            "query": "only peers with this text in a label or target, whatever its case",
            "cursor": "`next_cursor` of the page before, with the same scope and query",
            "run": _RUN,
        },
        (
            Result("self.target", "this session's own target"),
            Result("self.name", "what people call it"),
            Result("self.role", "`lead`"),
            Result("self.kind", "`ordinary` or `managed`"),
            _sometimes("self.run_of", "of a run: the target of its session"),
            Result("peers[].target", "what `session.send` takes"),
            _sometimes("peers[].name", "as people call it, cut at 80 characters"),
            _sometimes("peers[].run_of", "of a run: the target of its session"),
            _sometimes("peers[].read_only", "`true` for a run that is only shown"),
            _sometimes("peers[].cwd", "where it works"),
            _sometimes("peers[].repo", "the repository's name, where it works in one"),
            _sometimes("peers[].branch", "the branch, where there is one"),
            _sometimes("peers[].workspace_label", "the workspace's label, where there is one"),
            _sometimes("peers[].activity", "as its host told it last"),
            _sometimes("peers[].since", "when that activity began, in ISO 8601"),
            _sometimes("next_cursor", "where there is another page"),
        ),
        ("INVALID_PARAMS", "LOCK_TIMEOUT", "UNSAFE_ENDPOINT", "RECOVERY_REQUIRED"),
    ),
    "session.send": Method(
        "Sends a message. The answer comes as soon as the message is accepted or refused, and after 250 ms "
        "in any case. A refusal means that nothing was queued, or that what was queued is rejected.",
        {
            "target": "an exact target or peer id that was shown to this session",
            "message": (
                "the text; where it does not fit into the envelope, it and the `files` have at most "
                "`mailbox_payload_bytes` together"
            ),
            "reply_to": "the message of that same target which this one answers",
            "topic": "a few words on what it is about",
            "no_reply_needed": "whether the recipient is told that no answer is expected",
            "expires_in_ms": (
                "milliseconds for which the message is good, at most `max_expiry_ms`: where it is not "
                "delivered by then it is given up; without it, it is good for ever"
            ),
            "call_id": (
                "an id of this call that is unique in the session's life: sent again with it, the same text "
                "is the same message"
            ),
            "files": (
                "what to attach, at most 32 entries: paths of UTF-8 text files, relative ones from the "
                "session's working directory, and references to results, `result:<agent>#<n>` or "
                "`result:<request-id>`; one that cannot be attached as it is refuses the call"
            ),
            "branches": (
                "the branches of the conversation up to where it is now, for `result:<agent>#<n>`; without "
                "it results of every branch are found"
            ),
            "drafted": (
                "whether what `session.draft` was given here stands in front of `message`; `INVALID_PARAMS` "
                "where nothing was, or a piece was refused"
            ),
            "run": _RUN,
        },
        (
            Result("message_id", "the message's id, the same at every attempt"),
            Result("target", "whom it goes to"),
            Result("status", "`queued` while it is pending, else its [state](message-states.md)"),
            _sometimes("peer_running", "`false` where nobody runs that session and its mailbox took it"),
            _sometimes("undrained_minutes", "how long the host there has left earlier mail lying"),
        ),
        (
            "UNKNOWN_TARGET",
            "AMBIGUOUS_TARGET",
            "INVALID_REPLY",
            "MESSAGE_TOO_LARGE",
            "MESSAGE_ID_CONFLICT",
            "ELIGIBILITY_DENIED",
            "ELIGIBILITY_UNVERIFIED",
            "LOCK_TIMEOUT",
            "RECOVERY_REQUIRED",
        ),
    ),
    "session.compose": Method(
        "Takes what a person wrote for this session, with the peers that were "
        "[selected in it](references.md). One line that begins with a selected peer and goes on is a "
        "message: what stands behind the name is sent to that peer at once, also while a turn runs, and no "
        "model is called. Any other text is for the session's own turn: nothing is sent, and the peers "
        "selected in it are told as metadata, which give no access and no right. Every selection is "
        "verified at each call. A refusal names it in `field` and means that nothing was sent; the caller "
        "keeps the draft until the answer is there. A message that is sent so begins a conversation, as a "
        "person's word does; for what the agent sends, it is no prompt.",
        {
            "text": "the whole text, as it was written",
            "references": (
                "the peers selected in it, each with `start` and `end`, the characters of its `:name` from "
                "the colon on, and `to`, an exact target or peer id. A target was shown to this session, and "
                "goes to whatever instance runs its session; a peer id is of one instance, whose session was "
                "shown"
            ),
            "call_id": "as in `session.send`, of this submission",
        },
        (
            _sometimes("sent.message_id", "the message's id, where the text was a message"),
            _sometimes("sent.target", "the target or peer id it goes to"),
            _sometimes("sent.status", "as in `session.send`"),
            _sometimes("sent.peer_running", "as in `session.send`"),
            _sometimes("sent.undrained_minutes", "as in `session.send`"),
            _sometimes("references[].name", "what stands behind the colon, where the text was none"),
            _sometimes("references[].start", "as it was given"),
            _sometimes("references[].end", "as it was given"),
            _sometimes("references[].to", "as it was given"),
            _sometimes(
                "references[].peer", "what `session.list` shows of that peer; `offline` where it does not run"
            ),
        ),
        (
            "INVALID_PARAMS",
            "PEER_OFFLINE",
            "TARGET_ENDED",
            "UNKNOWN_TARGET",
            "AMBIGUOUS_TARGET",
            "CAPABILITY_DENIED",
            "ELIGIBILITY_DENIED",
            "ELIGIBILITY_UNVERIFIED",
            "MESSAGE_TOO_LARGE",
            "MESSAGE_ID_CONFLICT",
            "LOCK_TIMEOUT",
            "RECOVERY_REQUIRED",
        ),
    ),
    "session.references": Method(
        "Finds the [`:name` references](references.md) of a text, for a host that marks them or offers peers "
        "to select. It looks nobody up: a name that nobody bears is found as well.",
        {"text": "what a person is writing"},
        (
            _sometimes("references[].name", "what stands behind the colon"),
            _sometimes("references[].start", "the character at which the colon stands"),
            _sometimes("references[].end", "the character behind the name"),
        ),
        (),
    ),
    "session.draft": Method(
        "Takes the next piece of a text that is too long for one frame. What was taken goes in front of the "
        "next `session.send` of this connection that says `drafted`, and is forgotten by any other one that "
        "is queued. A send that is refused before anything is queued leaves it, so that the send alone is "
        "made again. After a piece that is refused, such a send is `INVALID_PARAMS`, and all pieces are "
        "given again. Together they are bounded by `mailbox_payload_bytes`.",
        {"text": "the piece", "first": "whether a text begins with it: what was drafted before is forgotten"},
        (Result("bytes", "how many there are now"),),
        ("MESSAGE_TOO_LARGE",),
    ),
    "session.result": Method(
        "Registers what an agent of this session made as a result that can be attached by reference. The "
        "text is stored at once, at most `inline_attachment_bytes`. The newest 256 results, and of them "
        "2 MiB, are kept. Its number is given once in a data root and never again.",
        {
            "agent": "the agent's name: letters, digits, `_`, `.` and `-`, at most 64",
            "text": "the result; either this or `file`",
            "file": "the path of a UTF-8 text file that holds it, read now",
            "request_id": (
                "the host's id of the call that made it, of one agent and one text; one is made where it is "
                "left out"
            ),
            "branch": "the branch of the conversation on which it was made, where the host has branches",
        },
        (
            Result("ref", "`result:<agent>#<n>`, for people and models"),
            Result("canonical", "`result:<request-id>`, the very call"),
        ),
        ("MESSAGE_TOO_LARGE", "REQUEST_ID_CONFLICT", "LOCK_TIMEOUT", "RECOVERY_REQUIRED"),
    ),
    "session.read": Method(
        "Hands over the messages that wait, in the order of acceptance, at most 24,576 bytes of them, and "
        "the receipts that have changed. Each hand-over is counted before the answer is written; where "
        "the answer fits into no frame (`FRAME_TOO_LARGE`) it is taken back as if never made. What was "
        "handed over stays with this caller until it is confirmed or the connection ends. Receipts count as "
        "told at this caller's next read or confirmation.",
        {
            "after": (
                "receipts changed after this cursor, which may not lie past the last event; without it those "
                "not told yet"
            ),
            "from": "only messages of this target",
            "reply_to": "only answers to this message, and its receipt, which then does not count as told",
            "message_id": "this one message, read before or not, and no receipts",
            "offset": "with `message_id`: go on from this character of the text",
            "attachment": (
                "with `message_id`: the text of this attached file in place of the message's, by its name or "
                "its number from 1 (digits alone are always the number); the message must have been handed "
                "over before, and nothing is by this"
            ),
            "wait_ms": "milliseconds to wait for something to come",
            "run": _RUN,
        },
        (
            Result("messages[].message_id", "what `session.confirm` and `reply_to` take"),
            Result("messages[].from.target", "the verified sender; it counts as shown"),
            Result("messages[].from.name", "its name, or its host's word"),
            Result("messages[].from.role", "its role; `terminal` for a terminal session"),
            _sometimes("messages[].from.run_of", "of a run: the target of its session"),
            Result("messages[].text", "as it was sent"),
            Result("messages[].received_at", "when it was accepted, in ISO 8601"),
            _sometimes("messages[].topic", "as its sender gave it"),
            _sometimes("messages[].reply_to", "the message that this one answers"),
            _sometimes("messages[].correlation_id", "the message that its exchange began with"),
            _sometimes("messages[].no_reply_needed", "`true` where its sender expects no answer"),
            _sometimes("messages[].again", "`true` where an earlier hand-over was not confirmed"),
            _sometimes("messages[].next_offset", "where the text goes on, where it was cut"),
            _sometimes("messages[].attachments[].name", "under which an attached file is shown"),
            _sometimes("messages[].attachments[].bytes", "its length"),
            _sometimes("messages[].attachment.name", "the file whose text this is, where one was asked for"),
            _sometimes("messages[].attachment.bytes", "its length"),
            Result("receipts[].message_id", "a message that this session sent"),
            Result("receipts[].target", "whom it was sent to"),
            Result("receipts[].status", "its state"),
            _sometimes("receipts[].at", "when its newest step was made, in ISO 8601"),
            _sometimes("receipts[].outcome", "the code of a refusal"),
            Result("cursor", "digits; what `after` takes"),
            Result("timed_out", "whether it waited in vain"),
            _sometimes("more", "`true` where more messages or receipts wait than one answer holds"),
            _sometimes(
                "set_aside[]",
                "the first 64 messages handed over twice in vain, which come only by `message_id`",
            ),
            _sometimes(
                "unreadable[]", "the first 64 messages whose text or files are damaged where they are stored"
            ),
            _sometimes("expired[].message_id", "a message that came and was not delivered in time"),
            _sometimes("expired[].from", "the target of its sender"),
            _sometimes("expired[].at", "when it expired, in ISO 8601"),
        ),
        (
            "UNKNOWN_TARGET",
            "RESOURCE_BUSY",
            "ELIGIBILITY_DENIED",
            "ELIGIBILITY_UNVERIFIED",
            "LOCK_TIMEOUT",
            "RECOVERY_REQUIRED",
        ),
    ),
    "session.waiting": Method(
        "Shows what waits and changes nothing: no message is handed over, none becomes delivered.",
        {
            "review": 'whether a person asks, who is also shown what is held back by `on_restart = "review"`',
            "run": _RUN,
        },
        (
            Result("messages[].message_id", "what `reply_to` takes"),
            Result("messages[].from.target", "the verified sender"),
            Result("messages[].from.name", "its name, or its host's word"),
            Result("messages[].from.role", "its role; `terminal` for a terminal session"),
            _sometimes("messages[].from.run_of", "of a run: the target of its session"),
            Result("messages[].text", "as it was sent, at most what fits into one answer"),
            Result("messages[].received_at", "when it was accepted, in ISO 8601"),
            _sometimes("messages[].topic", "as its sender gave it"),
            _sometimes("messages[].reply_to", "the message that this one answers"),
            _sometimes("messages[].correlation_id", "the message that its exchange began with"),
            _sometimes("messages[].no_reply_needed", "`true` where its sender expects no answer"),
            _sometimes("messages[].again", "`true` where an earlier hand-over was not confirmed"),
            _sometimes("messages[].next_offset", "where the text goes on, where it was cut"),
            _sometimes("messages[].characters", "how many characters the whole text has, where it was cut"),
            _sometimes("messages[].attachments[].name", "under which an attached file is shown"),
            _sometimes("messages[].attachments[].bytes", "its length"),
            Result("unreadable[]", "the ids of messages whose stored record, text or files are damaged"),
            Result("more", "whether more waits than is shown"),
            _sometimes("set_aside[]", "the ids of those given twice in vain, which wait for a person"),
            _sometimes("held_back", "how many wait until a person lets them through"),
        ),
        ("RECOVERY_REQUIRED",),
    ),
    "session.let_through": Method(
        'A person has looked at the mail that `on_restart = "review"` holds back, and it is handed over from '
        "now on like any other. `herd inbox --session TARGET --accept` calls it, and no host does.",
        {},
        (Result("let_through", "how many were held back"),),
        ("RECOVERY_REQUIRED",),
    ),
    "session.drain": Method(
        "Hands over the messages that wait as one text for a model, each under its header, and waits for "
        "nothing. Each hand-over is counted before the answer is written; the messages stay with this caller "
        "as those of `session.read` do. A message that alone is longer than `most` stays where it is, and "
        "the text says so once.",
        {
            "most": "characters of the text",
            "run": _RUN,
        },
        (
            Result("text", "what to put into the turn as it is; empty where there is nothing to say"),
            Result("message_ids[]", "the messages in it"),
            Result("more", "whether something still waits"),
        ),
        ("LOCK_TIMEOUT", "RECOVERY_REQUIRED"),
    ),
    "session.subscribe": Method(
        "Tells this connection from now on whenever a message waits for the host, by the notification "
        "`peer_update` with `unread`, a count, and `wake`: whether an idle session may be woken now. "
        "`held_back` is there where some wait until a person lets them through, and counts those. What "
        "waits already is told at once. A count of the session's own mail that was told while no turn was to "
        "begin is told anew, down to 0, when it falls before the next turn: others took it, or it expired. "
        "It is begun again after `session.bind`. With `events` the connection "
        "is told the entries of the journal as well, each in a `peer_update` of its own with `event` alone: "
        "`cursor`, `kind` (`message` for mail that came, or that was rejected or expired undelivered; "
        "`receipt` for a message that this session sent), `message_id`, `target` (its sender, or whom it was "
        "sent to), `state`, `correlation_id`, `at` and, after a refusal, `outcome`. They come in order, each "
        "once; an adapter that was cut off names the last cursor it was told, also after a restart. A cursor "
        "older than what retention keeps goes on with the oldest event that is kept. Where a notification "
        "cannot be sent no later one is.",
        {
            "events": "whether to be told of events as well",
            "after": (
                "with `events`: the cursor to go on from, which may not lie past the last event; without it "
                "from now on"
            ),
            "run": _RUN,
        },
        (
            Result("notice", "the fixed words by which an idle session is woken"),
            _sometimes("cursor", "with `events`: the cursor behind which they begin"),
        ),
        ("INVALID_PARAMS",),
    ),
    "session.release": Method(
        "Says that the host does not have these messages: they are given again, marked `again`. Ids that are "
        "unknown or held by another reader change nothing.",
        {
            "message_ids": "the messages, at most 1,024",
            "counted": "`false` where they never reached the session: as if they had not been handed over",
            "run": _RUN,
        },
        (),
        (),
    ),
    "session.confirm": Method(
        "Says that the host has these messages: they become delivered. Ids that are unknown, settled or held "
        "by another reader change nothing. The receipts that this caller read count as told.",
        {
            "message_ids": "what the host has now; none where only receipts were read",
            "evidence": "what proves it, in a word or two; it is stored",
            "run": _RUN,
        },
        (),
        ("RECOVERY_REQUIRED",),
    ),
    "session.history": Method(
        "Tells what became of the newest messages, received and sent, the oldest of them first, and no text.",
        {
            "most": "how many at most",
            "skip": "how many of the newest to leave out: those that earlier answers gave",
            "left": "only what former instances, and runs that have ended, left unresolved",
            "wait_ms": "milliseconds to wait for the next change before looking; 0 looks at once",
        },
        (
            Result("messages[].direction", "`in` or `out`"),
            Result("messages[].message_id", "the message"),
            Result("messages[].peer", "the target of the other side"),
            _sometimes("messages[].name", "what a sender was called"),
            Result("messages[].state", "as this mailbox has it"),
            _sometimes("messages[].outcome", "why it was rejected"),
            _sometimes("messages[].topic", "what it is about"),
            _sometimes("messages[].reply_to", "the message that it answers"),
            _sometimes(
                "messages[].instance", "the peer id of the instance that took or sent it; none for a visit"
            ),
            _sometimes("messages[].run", "the peer id of the run that it came for or from"),
            Result("messages[].stored_at", "when this mailbox had it"),
            _sometimes("messages[].accepted_at", "when the recipient's mailbox had what was sent"),
            _sometimes("messages[].handed_over", "how often"),
            _sometimes("messages[].handed_over_at", "the last time"),
            _sometimes("messages[].seen_at", "when evidence came that the host has it"),
            _sometimes("messages[].evidence", "what proved it"),
            _sometimes("messages[].replied_at", "when its reply was accepted"),
            _sometimes("messages[].text_removed", "true after retention"),
            _sometimes("more", "true where the answer had no room for all: ask again with `skip`"),
        ),
        ("RECOVERY_REQUIRED",),
    ),
    "session.purge": Method(
        "Removes the texts of all resolved mail; or one message that was not delivered, which becomes "
        "rejected with the outcome `PURGED`. `herd purge` asks a person before the second.",
        {"message_id": "the undelivered message; left out for all that is resolved"},
        (
            Result(
                "removed", "how many messages; of resolved ones there may be more, where it is 500 or more"
            ),
        ),
        ("UNKNOWN_TARGET", "MESSAGE_ID_CONFLICT", "RESOURCE_BUSY", "RECOVERY_REQUIRED"),
    ),
    "session.status": Method(
        "Tells what is known of a message that this session sent. Where more may be known to the recipient's "
        "mailbox it is asked first.",
        {
            "message_id": "as `session.send` gave it",
            "run": _RUN,
        },
        (*_RECEIPT, _sometimes("hint", "what follows from the last refusal, while it is pending")),
        ("UNKNOWN_TARGET", "RECOVERY_REQUIRED"),
    ),
    "session.cancel": Method(
        "Takes back a message that no mailbox has: it becomes rejected, with the outcome `CANCELLED`.",
        {
            "message_id": "as `session.send` gave it",
            "run": _RUN,
        },
        _RECEIPT,
        ("UNKNOWN_TARGET", "DELIVERY_UNKNOWN", "MESSAGE_ID_CONFLICT", "RECOVERY_REQUIRED"),
    ),
    "session.tools": Method(
        "Gives the tools that an extension shows its agent, as `herd mcp` lists them. Served on the stdio of "
        "`herd session` only.",
        {},
        (
            Result("tools[].name", "what `session.tool` takes"),
            Result("tools[].description", "for the model"),
            Result("tools[].inputSchema", "the JSON schema of its arguments"),
        ),
        (),
    ),
    "session.tool": Method(
        "Carries one call of a tool out, exactly as `herd mcp` does; a refusal is a result as well. Served "
        "on the stdio of `herd session` only.",
        {
            "name": "the tool",
            "arguments": "as its schema says",
            "call_id": "the host's id of this call, unique in the session's life",
            "branches": "as `session.send` takes them, for a call of `message_peer`",
        },
        (
            Result("text", "for the model, with everything in it"),
            Result("is_error", "whether the tool refused"),
            Result("message_ids[]", "the messages that this result handed over"),
        ),
        ("INVALID_PARAMS",),
    ),
}
"""Every method of the adapter API but the one that opens it on a socket, in the order of the page."""
