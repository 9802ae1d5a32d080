"""Every bound in force, each a name with its unit.

`Limits` holds the bounds that a person may override in `config.toml` under `[limits]`; the constants
below it are fixed, since changing one of them would change a protocol or a file format.
"""

from typing import NamedTuple


class Limits(NamedTuple):
    """The bounds a person may override; every value is a positive integer."""

    frame_bytes: int = 65_536
    """Bytes of one frame that is read, without its newline; from 65,536 on. None larger than that is sent."""
    inbox_messages: int = 32
    """Messages accepted and not yet delivered, for each recipient."""
    pending_requests: int = 32
    """Requests in flight on one connection, each direction."""
    connections: int = 16
    """Outgoing connections kept open to other sessions."""
    handshake_ms: int = 2_000
    """Milliseconds until an unfinished handshake is closed, on each side."""
    acknowledgement_ms: int = 2_000
    """Milliseconds until an unanswered request counts as `DELIVERY_UNKNOWN`."""
    automatic_replies: int = 8
    """Greatest depth of what a session that an adapter drives sends without a person's prompt since it was
    handed a message."""
    wakes_per_hour: int = 20
    """Times in an hour that mail may wake an idle session."""
    message_bytes: int = 8_000
    """UTF-8 bytes of a text that may travel in its envelope; at most `frame_bytes`."""
    inline_attachment_bytes: int = 131_072
    """Bytes of one attached file that this session sends or takes, from 1,024 to 1,048,576."""
    mailbox_payload_bytes: int = 131_072
    """Bytes of one message's text and attached files together that this session sends or takes, from 1,024 to
    1,048,576."""
    storage_bytes: int = 10_485_760
    """Bytes that a session's mailbox may take up, with all that lies outside its rows."""
    rate_per_second: int = 10
    """Messages a second that are taken from one sender in the long run."""
    rate_burst: int = 20
    """Messages that are taken from one sender at once, after it was quiet."""
    expiry_ms: int = 600_000
    """Milliseconds a message is good for where an expiry is asked for without a number; at most
    `max_expiry_ms`."""
    max_expiry_ms: int = 3_600_000
    """Greatest number of milliseconds that a message may be good for."""
    retention_ms: int = 86_400_000
    """Milliseconds for which what is resolved is kept."""
    published_runs: int = 64
    """Number of runs of one session that are listed at once."""

    @property
    def sent_frame_bytes(self) -> int:
        """Bytes of the largest frame that is sent: what the other side reads, whatever its settings are."""
        return min(self.frame_bytes, FRAME_LEAST_BYTES)


DEFAULT_LIMITS = Limits()

RUNS_IN_A_LIFE = 4_096
"""Number of runs bound in one life of a coordinator, those included that have ended."""

RUN_ID_CHARACTERS = 256
"""Characters of a run's id."""

DIRECTORY_ENTRIES = 256
"""Number of runs in one answer to `peer.directory`; what stands behind them is not looked at."""

DIRECTORIES_AT_ONCE = 4
"""Number of coordinators asked at once for their runs by one listing."""

DIRECTORY_MS = 1_000
"""Milliseconds that one coordinator has to tell a listing its runs."""

DIRECTORIES_MS = 5_000
"""Milliseconds that a listing waits for all of them."""

DIRECTORY_FRESH_MS = 1_000
"""Milliseconds for which a run that its coordinator named is believed to be there without asking again."""

HANDED_DOWN_S = 30
"""Seconds a run has to confirm what was handed down to it, before it is given again."""

PROTOCOL_VERSION = 1
"""Version of the peer protocol and of the envelope."""

RECORD_VERSION = 3
"""Version of an instance record in `peers/`."""

SESSION_VERSION = 3
"""Version of `session.json`."""

ASSIGNMENT_VERSION = 1
"""Version of an assignment record in `assignments/`."""

MAILBOX_VERSION = 3
"""Version of the tables in `mailbox.sqlite3` (SQLite's `user_version`)."""

MAILBOX_APPLICATION_ID = 0x48455244
"""SQLite's `application_id` of a mailbox: `HERD` in ASCII."""

RECORD_BYTES = 8_192
"""Bytes of one instance record."""

SESSION_FILE_BYTES = 16_384
"""Bytes of `session.json`."""

CONFIG_BYTES = 65_536
"""Bytes of `config.toml`."""

ASSIGNMENT_PAYLOAD_BYTES = 1_048_576
"""UTF-8 bytes of what an assignment hands over: its text, attached texts and references to results."""

ASSIGNMENTS_LOOKED_AT_S = 2
"""Seconds after which each assignment record is looked at again, where nothing tells that any has changed."""

ASSIGNMENT_FILE_BYTES = 2_097_152
"""Bytes of one assignment record."""

ASSIGNMENT_REASON_CHARACTERS = 256
"""Characters in which is said what is wrong with an assignment record."""

GIT_BRANCH_CHARACTERS = 1_024
"""Characters of the name of a branch of git's in an assignment."""

ASSIGNMENT_LOCK_WAIT_MS = 5_000
"""Milliseconds for which the lock of one assignment is waited for."""

OWNER_RECORD_BYTES = 256
"""Bytes of a lock file's owner record; it is padded to this length so that rewriting needs no new block."""

ENVELOPE_BYTES = 8_192
"""Bytes of one message's envelope, on disk and on the wire."""

TOPIC_CHARACTERS = 256
"""Characters of a topic."""

MESSAGE_ID_CHARACTERS = 128
"""Characters of a message, correlation or conversation id."""

CALL_ID_CHARACTERS = 512
"""Characters of the id of a tool call that makes a retried call the same message."""

CONVERSATION_DEPTH = 64
"""Greatest depth an envelope can name; deeper replies stay at it."""

SESSION_ID_CHARACTERS = 512
"""Characters of a host's session id."""

HOST_CHARACTERS = 64
"""Characters of a host's name."""

LABEL_CHARACTERS = 512
"""Characters of a published label (name, repository, branch, workspace label) and of a working directory
name part."""

SHOWN_CHARACTERS = 80
"""Characters of a label when it is shown."""

CWD_CHARACTERS = 4_096
"""Characters of a published working directory."""

METHOD_CHARACTERS = 128
"""Characters of a method name."""

RPC_ID_CHARACTERS = 256
"""Characters of a JSON-RPC id that is a string."""

ENDPOINT_PATH_CHARACTERS = 512
"""Characters of a socket path in a record."""

SOCKET_PATH_BYTES = 103
"""Bytes of a Unix socket's path that every supported system accepts."""

RECORD_CAPABILITIES = 16
"""Capabilities in one record."""

NONCES_REMEMBERED = 8_192
"""Handshake nonces remembered by one coordinator."""

NONCE_LIFETIME_S = 3_600
"""Seconds for which a nonce is remembered."""

ACCEPTED_CONNECTIONS_FLOOR = 32
"""Accepted connections open at once, at least; four times `connections` where that is more."""

QUEUED_WRITES_FACTOR = 2
"""Frames waiting to be written on one connection, as a multiple of `pending_requests`."""

VISIT_S = 2
"""Seconds a visit may hold a sleeping session's mailbox lock."""

VISITOR_WAIT_S = 5
"""Seconds a starting coordinator waits for a visitor."""

LOCK_BUSY_MS = 200
"""Milliseconds for which a busy lock is tried again, since a probe may hold it for an instant."""

AUTHORITY_WAIT_S = 5
"""Seconds a verdict or a change waits for the authority lock."""

SEND_WAIT_MS = 250
"""Milliseconds a sending call waits for what its message reaches at once."""

READ_WAIT_MS = 30_000
"""Greatest `wait_ms` of a read, in milliseconds."""

READ_BYTES = 24_576
"""UTF-8 bytes of the messages in one read, with what stands around their texts."""

HANDOVERS = 2
"""Hand-overs without evidence, after which a message waits for a person."""

DRAIN_CHARACTERS = 8_000
"""Characters of what one `session.drain` renders for a model, where the adapter asks for no other bound."""

DRAIN_BYTES = 49_152
"""Bytes that the text of one `session.drain` takes in a frame."""

DRAIN_LEAST_CHARACTERS = 1_000
"""Smallest bound an adapter may ask of `session.drain`, in characters."""

DRAIN_GREATEST_CHARACTERS = 24_000
"""Greatest bound an adapter may ask of `session.drain`, in characters."""

WAKE_OPEN_S = 60
"""Seconds after which a wake whose turn has not begun counts as failed."""

WAKES_COUNTED_S = 3_600
"""Seconds over which wakes are counted against `wakes_per_hour`."""

LIFETIME_LOOK_S = 60
"""Seconds after which a running lifetime is looked at again, since a sleep stands still while the machine is
suspended."""

EVENTS_IN_ONE_LOOK = 32
"""Number of events read from the journal at once, to be told one by one."""

UNDRAINED_S = 300
"""Seconds an accepted message waits for its host before the session is shown as undrained."""

RETRY_FIRST_MS = 50
"""Milliseconds before a message that may pass is tried the second time."""

RETRY_GREATEST_MS = 60_000
"""Greatest pause between two tries of one message, in milliseconds."""

RETRY_WHEN_FULL_MS = 250
"""`retry_after_ms` of a full inbox, in milliseconds."""

HEALTH_SOONEST_MS = 100
"""Least milliseconds between two tries of an unhealthy coordinator, whatever hastens them."""

HEALTH_RETRY_MS = 1_000
"""Milliseconds before an unhealthy coordinator first tries to write its state again."""

OBJECTS_BEFORE_COLLECTION = 10_000
"""Objects made and not freed again after which a coordinator's process looks for garbage in cycles."""

SENT_TOGETHER = 64
"""Messages to one recipient that travel in one request, at most; fewer where a frame holds fewer."""

RECEIPT_ROOM_BYTES = 2_048
"""Bytes of a mailbox set aside for what will be written about one message whose last receipt is to come."""

RATE_SENDERS = 4_096
"""Number of senders whose rate one coordinator remembers; of another the inbox tells what it sent last."""

RATE_ROWS = 1_024
"""Newest messages of an inbox from which the rate of a sender is told that is not remembered."""

SETTLED_TOGETHER_MS = 10
"""Milliseconds for which a receipt may wait to be written down with those of the messages behind it."""

CHECKPOINT_TRANSACTIONS = 100
"""Transactions after which the mailbox's log is folded back, once no more wait: a commit into a log that need
not grow takes half the time."""

PLACE_ID_BYTES = 2_048
"""UTF-8 bytes of the path that is a workspace's or a repository's id; a longer one is no id."""

GIT_FILE_BYTES = 65_536
"""Bytes of a file of git's that is read to find the repository of a checkout."""

SUBPROCESS_S = 2
"""Seconds a git command, or a question to Herdr, may take."""

TOPOLOGY_WAIT_S = 3
"""Seconds a verdict waits for its worktree groups to be read: longer than git or Herdr may take, so that they
are what is named where they hang."""

TOPOLOGY_BYTES = 1_048_576
"""Bytes of one answer about worktrees, from git or from Herdr; a longer one proves nothing."""

TOPOLOGY_FRESH_S = 2
"""Seconds for which a verdict may rest on what was read about a worktree group."""

TOPOLOGY_REUSED_S = 1
"""Seconds for which what was read about a worktree group is not read anew; the rest is for the verdict."""

TOPOLOGY_KEPT = 1_024
"""Number of folders of which a session remembers the worktree group at once."""

LOOKUPS_AT_ONCE = 8
"""Number of folders whose worktree group a session looks up at once."""

SHOWN_PEERS = 4_096
"""Peers remembered as shown to one session; the one seen longest ago without mail is forgotten first."""

MACHINE_ID_BYTES = 256
"""Bytes read of a file that holds the machine id."""

SETTING_GREATEST = 2_147_483_647
"""Greatest value of a setting that is a number."""

FRAME_LEAST_BYTES = 65_536
"""Smallest value of the setting `frame_bytes`, and largest frame that is sent, in bytes."""

PAYLOAD_LEAST_BYTES = 1_024
"""Smallest value of the settings `inline_attachment_bytes` and `mailbox_payload_bytes`, in bytes."""

PAYLOAD_GREATEST_BYTES = 1_048_576
"""Greatest value of the settings `inline_attachment_bytes` and `mailbox_payload_bytes`, in bytes."""

LOCK_PROBED_MS = 5_000
"""Milliseconds for which a lock that is busy with probes alone, and has no holder, is tried again."""

FRAME_DEPTH = 64
"""Levels of objects and arrays inside one another in one frame."""

SAFE_INTEGER = 9_007_199_254_740_991
"""Greatest magnitude of a JSON-RPC id that is an integer: what every JSON reader keeps exactly."""

INSTANCE_ID_CHARACTERS = 128
"""Characters of an instance id."""

ACCEPT_PAUSE_MS = 100
"""Milliseconds for which a socket accepts nothing after the process ran out of descriptors or memory."""

CONNECT_PAUSE_MS = 5
"""Milliseconds before a socket whose queue of waiting callers is full is tried again."""

ANCESTORS = 1_024
"""Ancestors of a process that are looked at."""

SETTLE_S = 2
"""Seconds a coordinator that ends waits for receipts to be written down and told."""

LIST_PAGE = 50
"""Peers in one page of a listing."""

QUERY_CHARACTERS = 256
"""Characters of a listing's query."""

CURSOR_CHARACTERS = 2_048
"""Characters of a listing's cursor."""

CLIENT_S = 10
"""Seconds a command line waits for its session's coordinator."""

TOKEN_BYTES = 256
"""Bytes of an instance's token file."""

TERMINAL_NAME_CHARACTERS = 64
"""Characters of a terminal session's name, as in `--as NAME`."""

STDIN_BYTES = 1_048_576
"""Bytes of a text that a command reads from its standard input before refusing it."""

RETRY_BELIEVED_MS = 3_600_000
"""Greatest `retry_after_ms` that the other side is believed, in milliseconds."""

MCP_FRAME_BYTES = 1_048_576
"""Bytes of one line on the stdio of `herd mcp`."""

CUSTODY_ID_CHARACTERS = 64
"""Characters of a mailbox's custody id."""

CODE_CHARACTERS = 64
"""Characters of an error code where it stands in a receipt as the outcome."""

LOOK_AGAIN_MS = 20
"""Milliseconds before a command looks again who coordinates the terminal session."""

CONFIRM_MESSAGES = 64
"""Messages that `herd inbox` confirms by one call: it names what it has shown in parts of this size."""

LINE_CHARACTERS = 4_096
"""Characters of one line in which a command shows a refusal or a finding."""

MOMENT_MS = 253_402_300_799_999
"""Greatest time that can be shown, in milliseconds since the epoch: the last one of the year 9999."""

ANSWER_BYTES = 32_768
"""Bytes that the messages, or the peers, of one answer take as JSON: with all else it fits into a frame."""

RECEIPTS_IN_ONE_READ = 50
"""Changed receipts in one answer of a read."""

NAMED_IN_ONE_READ = 64
"""Messages that one answer of a read names as set aside, and as unreadable; the first ones."""

CARRY_S = 5
"""Seconds `herd send` gives a terminal's message to be accepted, since nobody carries it afterwards."""

CONFIRMED_AT_ONCE = 1_024
"""Messages that one `session.confirm` or `session.release` may name; more are refused."""

REFERENCES_AT_ONCE = 32
"""Peers that one `session.compose` may have selected in its text; more are refused."""

RECEIPTS_SEEN = 1_024
"""Messages of which a session's narrowed reads remember the receipt that they gave last."""

HOST_FILE_BYTES = 16_777_216
"""Bytes of a host's configuration file that the installer edits; a larger one is refused."""

HOST_FILE_DEPTH = 200
"""Levels of objects and arrays inside one another in a host's configuration file."""

HOST_ANSWER_S = 30
"""Seconds the installer waits for a host's program to say whether it sees Herd."""

HOST_ANSWER_BYTES = 1_048_576
"""Bytes read of what a host's program says; the rest is cut off."""

LEDGER_BYTES = 1_048_576
"""Bytes of the installer's record of what it changed in one host."""

BACKUPS_KEPT = 10
"""Number of copies of one host's file that the installer keeps, the newest."""

CONFIG_LOCK_WAIT_S = 12
"""Seconds the installer waits for a host that is writing its own configuration file."""

HOOK_INPUT_BYTES = 8_388_608
"""Bytes of a hook's input that it passes on; of a longer one only this much, marked so."""

HOOK_S = 2
"""Seconds a session's server gives one hook, which itself gives up after 200 ms."""

HOOK_TEXT_UNITS = 9_500
"""Characters, as UTF-16 counts them, of a text that a hook prints; Claude Code cuts what is over 10,000."""

HOOKS_AT_ONCE = 32
"""Requests of hooks of one host process that are answered at once."""

HOST_STATE_BYTES = 65_536
"""Bytes of the file in which a host tells the state of one of its processes."""

TRANSCRIPT_TAIL_BYTES = 4_194_304
"""Bytes at the end of a host's transcript in which an entry is looked for."""

INBOX_PUSH_S = 1
"""Seconds a host's inbox has to take the notice that wakes its session."""

HOST_SETTINGS_BYTES = 1_048_576
"""Bytes read of a host's settings; what is behind them makes the file count as unreadable."""

DISK_FREE_BYTES = 16_777_216
"""Bytes free to this user on the data root's disk, below which `herd doctor` says that it is nearly full."""

SWEEP_MS = 3_600_000
"""Milliseconds between two looks for mail whose retention is over, at most."""

KEPT_AT_ONCE = 500
"""Messages of each direction that one transaction of retention is about, at most."""

IDENTITY_MS = 34_560_000_000
"""Milliseconds for which what identifies a resolved message is kept: 400 days."""

HISTORY_MESSAGES = 500
"""Messages in one answer of `session.history`."""

OLD_SESSION_S = 2_592_000
"""Seconds without a start after which an empty session folder may be purged: 30 days."""

DOCTOR_ANSWER_S = 5
"""Seconds `herd doctor` gives a running session to say what waits in it."""

DOCTOR_LOCK_S = 1
"""Seconds for which `herd doctor` looks for a moment at which nobody holds the authority lock."""

ATTACHMENTS = 32
"""Files attached to one message."""

ATTACHMENT_NAME_CHARACTERS = 255
"""Characters of the name under which an attached file is shown."""

FILE_CHARACTERS = 4_096
"""Characters of one entry of `files`, or of the path of a result's file."""

CHUNK_BYTES = 65_536
"""Bytes of one row of a body in a mailbox."""

BODY_FIELDS_BYTES = 1_024
"""Bytes of a frame with a piece of a body, apart from that piece, at most."""

BODY_REQUESTS = 16
"""Pieces of one body on their way at once; half of `pending_requests` where that is less."""

BODY_TRIES = 3
"""Times that one attempt begins again with a body of which the other side has not what it was sent."""

UPLOADS = 16
"""Messages whose bodies one coordinator is taking in at once."""

UPLOADS_OF_ONE = 4
"""Messages of one sender whose bodies one coordinator takes in at once; the oldest gives way."""

UPLOAD_IDLE_S = 60
"""Seconds after its last piece at which an interrupted upload is given up."""

RESULTS_KEPT = 256
"""Results of one session that can be attached by reference; the oldest is given up first."""

RESULTS_BYTES = 2_097_152
"""Bytes of the results of one session that can be attached by reference; the oldest is given up first."""

AGENT_CHARACTERS = 64
"""Characters of the name of an agent in a reference to its result."""

BRANCH_CHARACTERS = 256
"""Characters of a host's name of a branch of a conversation."""

BRANCHES = 1_024
"""Branches that one call may name, from the first to the present one."""

RESULT_NUMBER_BYTES = 1_024
"""Bytes of the file that remembers the last number given to an agent's result."""

RESULT_NUMBER_WAIT_MS = 5_000
"""Milliseconds for which the lock of the results' numbers is waited for."""

DRAFT_CHARACTERS = 5_000
"""Characters of a piece in which a command hands a long text to its session's coordinator."""

SAVED_NAMES = 1_000
"""Names that are tried for a file that `herd inbox` saves, where others stand there already."""
