"""Every message that crosses a connection: msgpack of tagged structs.

Down a stream, each Flight message carries one `Down` in its `app_metadata`, beside a record batch that is empty unless
the message is `Updates` or `Redelivery`. Up, each message is the body of a `DoAction` of the same name. An unknown kind
or field fails: it comes from a newer version, and guessing would lose something. `PROTOCOL_VERSION` rises when a
message changes; `Hello` is the one message that every version understands.
"""

from __future__ import annotations

from typing import Any, Final, Generic, Literal, TypeVar

import msgspec

from tailrace.errors import ConfigInvalid, ProtocolMismatch, VersionTooNew
from tailrace.updates.position import Checkpoint, Position

PROTOCOL_VERSION: Final = 1
OLDEST_PROTOCOL: Final = 1

Mode = Literal["reliable", "realtime"]


class Message(msgspec.Struct, tag_field="kind", tag=str, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Base of all messages; the tag is the class's name."""


# ---- down a subscription's stream ---------------------------------------------------------------------------------


class Opened(Message, frozen=True):
    """First on every stream: the session, the shards it carries and where each line starts.

    `standby` says that another subscriber of the application holds the flows; updates come once it has gone. Updates up
    to `sent_before` may have been sent to the application in an earlier session.
    """

    session: str
    epoch: int
    shards: list[int]
    lease_s: float
    line: str
    after: Position
    standby: bool = False
    sent_before: Position | None = None


class Updates(Message, frozen=True):
    """The record batch beside it holds updates; the log has been read up to `through`."""

    line: str
    through: Position


class Token(Message, frozen=True):
    """Everything up to `checkpoint` on `shards` was sent before this; acknowledging it moves their markers."""

    token: int
    line: str
    shards: list[int]
    checkpoint: Checkpoint


class Heartbeat(Message, frozen=True):
    """Down every second, so that each side learns of the other's death; `through` as in `Updates`."""

    line: str
    through: Position


class DataLoss(Message, frozen=True):
    """What lay in (after, until] on these shards will not come. Acknowledged with `token` like a token."""

    token: int
    line: str
    shards: list[int]
    after: Position
    until: Position
    reason: str


class Revoked(Message, frozen=True):
    """These shards go to another subscriber: finish, acknowledge `token`, and expect nothing more of them."""

    token: int
    line: str
    shards: list[int]
    checkpoint: Checkpoint


class Redelivery(Message, frozen=True):
    """The record batch beside it holds dead letters that an operator asked to try again, one per row."""

    letters: list[int]


class Goodbye(Message, frozen=True):
    """The publisher ends the stream. `retry` says whether to come back."""

    reason: str
    retry: bool = True


Down = Opened | Updates | Token | Heartbeat | DataLoss | Revoked | Redelivery | Goodbye


# ---- tickets ------------------------------------------------------------------------------------------------------


class Subscribe(Message, frozen=True):
    """Asks for an application's flows. `start` is 'earliest', 'latest' or a line@position, used when it is new."""

    dataset: str
    application: str
    subscriber: str
    filter: str | None = None
    mode: Mode = "reliable"
    start: str = "latest"
    version: int = PROTOCOL_VERSION


class ReadRange(Message, frozen=True):
    """Asks for a bounded range (after, until] of a dataset's log, filtered. `follow` goes on past the head instead.

    `after` None means the start of the log, `until` None the head at the time of asking.
    """

    dataset: str
    after: Position | None = None
    until: Position | None = None
    filter: str | None = None
    follow: bool = False
    since_us: int | None = None
    version: int = PROTOCOL_VERSION


Ticket = Subscribe | ReadRange


# ---- up, as actions ----------------------------------------------------------------------------------------------


class Hello(Message, frozen=True):
    version: int = PROTOCOL_VERSION


class DatasetInfo(msgspec.Struct, frozen=True):
    name: str
    line: str
    shards: int


class HelloReply(Message, frozen=True):
    """`peers` are the addresses of every publisher that serves these datasets, this one first."""

    version: int
    oldest_version: int
    software: str
    peers: list[str]
    datasets: list[DatasetInfo]


class Acknowledge(Message, frozen=True):
    """Answered once the markers are fsynced. `checkpoint` is set when the subscriber chose the place itself."""

    session: str
    epoch: int
    token: int
    checkpoint: Checkpoint | None = None


class Alive(Message, frozen=True):
    """The subscriber lives; `progress` is up to where it has processed, soft. At least three per lease."""

    session: str
    progress: Position | None = None


class Leave(Message, frozen=True):
    """The subscriber stops on purpose: its flows may go elsewhere at once."""

    session: str


class BuryDead(Message, frozen=True):
    """Dead letters: `updates` is an Arrow IPC stream of rows in the update schema, `errors` one text per row."""

    session: str
    updates: bytes
    errors: list[str]
    attempts: int


class DeadDone(Message, frozen=True):
    """Redelivered letters: those in `done` were processed, those in `failed` were not (letter -> error)."""

    session: str
    done: list[int]
    failed: dict[int, str]


class Done(Message, frozen=True):
    """The empty reply."""


class Status(Message, frozen=True):
    """The publisher's whole state. The reply is one `StatusReply`."""


class ApplicationStatus(msgspec.Struct, frozen=True):
    dataset: str
    application: str
    state: str  # 'live' | 'catching up' | 'blocked' | 'waiting' | 'failed'
    reason: str  # why it is not live, empty if it is
    subscriber: str
    standbys: int
    sent: Position
    acknowledged: Position
    progress: Position | None
    lag_positions: int  # the log's sequence numbers from what it has processed to the head; not each is an update
    lag_s: float | None  # how long ago the oldest update was committed that it lacks; None if the log cannot tell
    queued_bytes: int
    updates_s: float
    bytes_s: float
    dead_letters: int
    filter: str | None


class DatasetStatus(msgspec.Struct, frozen=True):
    dataset: str
    line: str
    era: int
    oldest: Position
    head: Position
    log_bytes: int
    caravans: int
    pinned_by: str
    error: str


class StatusReply(Message, frozen=True):
    address: str
    started_at: float
    datasets: list[DatasetStatus]
    applications: list[ApplicationStatus]


class Reached(Message, frozen=True):
    """Has this application processed this position? The reply is a `ReachedReply`."""

    dataset: str
    application: str
    position: Position


class ReachedReply(Message, frozen=True):
    reached: bool
    progress: Position | None


class DeadList(Message, frozen=True):
    """Dead letters of an application, oldest first."""

    dataset: str
    application: str
    limit: int = 100


class DeadLetter(msgspec.Struct, frozen=True):
    letter: int
    dataset: str
    application: str
    shard: int
    position: Position
    table: str
    operation: str
    key: bytes
    error: str
    attempts: int
    buried_at: float
    state: str  # 'dead' | 'retrying'


class DeadListReply(Message, frozen=True):
    letters: list[DeadLetter]
    total: int


class DeadShow(Message, frozen=True):
    """One letter whole. The reply is a `DeadShowReply`."""

    dataset: str
    application: str
    letter: int


class DeadShowReply(Message, frozen=True):
    letter: DeadLetter
    update: bytes  # Arrow IPC stream of one row


class DeadRetry(Message, frozen=True):
    """Hand letters to the application again; None means all of them. The reply is a `DeadRetryReply`."""

    dataset: str
    application: str
    letters: list[int] | None = None


class DeadRetryReply(Message, frozen=True):
    retrying: int


Up = Hello | Acknowledge | Alive | Leave | BuryDead | DeadDone | Status | Reached | DeadList | DeadShow | DeadRetry
Reply = HelloReply | Done | StatusReply | ReachedReply | DeadListReply | DeadShowReply | DeadRetryReply

_encoder = msgspec.msgpack.Encoder()
M = TypeVar("M")


def encode(message: Message) -> bytes:
    """`ConfigInvalid` names a value that no message can carry: text that is not UTF-8, an int over 64 bits."""
    try:
        return _encoder.encode(message)
    except (OverflowError, TypeError, UnicodeEncodeError) as error:
        raise ConfigInvalid(path=type(message).__name__, reason=f"a value cannot be sent: {error}") from error


class Decoder(Generic[M]):
    """Decodes one family of messages: `Down`, `Ticket`, `Up`, `Reply`, or another service's own union."""

    def __init__(self, family: Any) -> None:
        self._decoder: msgspec.msgpack.Decoder[M] = msgspec.msgpack.Decoder(family)

    def __call__(self, data: bytes | memoryview) -> M:
        try:
            return self._decoder.decode(data)
        except msgspec.MsgspecError as error:
            raise ProtocolMismatch(reason=f"a message cannot be understood: {error}") from error


decode_down: Final[Decoder[Down]] = Decoder(Down)
decode_ticket: Final[Decoder[Ticket]] = Decoder(Ticket)
decode_up: Final[Decoder[Up]] = Decoder(Up)
decode_reply: Final[Decoder[Reply]] = Decoder(Reply)


def require_version(version: int) -> None:
    """Refuses a peer that speaks a version which this one does not."""
    if version > PROTOCOL_VERSION:
        raise VersionTooNew(what="the protocol", found=version, known=PROTOCOL_VERSION)
    if version < OLDEST_PROTOCOL:
        raise ProtocolMismatch(reason=f"version {version} is older than {OLDEST_PROTOCOL}, the oldest still spoken")
