"""Messages between the store and those who write to it, read it or follow how far its log is safe.

Writes go up one `DoPut` stream, many at a time. A few small writes travel as `Writes`, msgpack alone: seen here,
building and sending a one-row record batch costs ten times as much. Many operations travel as `WriteTable`, beside a
record batch of `OPERATIONS_SCHEMA`. Answers come back as `Answers`, for whatever became durable meanwhile, told apart
by write number.
"""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec
import pyarrow as pa

from tailrace.updates.schema import PAIRS_TYPE
from tailrace.wire.messages import PROTOCOL_VERSION, Decoder, Message

Durability = Literal["fsync", "grouped", "none"]

PUT: Final = 0
DELETE: Final = 1
DELETE_RANGE: Final = 2
OPERATION_NAMES: Final = ("put", "delete", "delete_range")

# Rows of equal `write` are one atomic write; rows of one write stand together, and the column rises. `value` is the raw
# or encoded value, or the end key of a range; where it is null, `pairs` are encoded. A null `shard` is the key's hash.
_OPERATION_FIELDS: Final[list[pa.Field[Any]]] = [
    pa.field("write", pa.int64(), nullable=False),
    pa.field("table", pa.string(), nullable=False),
    pa.field("operation", pa.string(), nullable=False),
    pa.field("key", pa.binary(), nullable=False),
    pa.field("pairs", PAIRS_TYPE),
    pa.field("value", pa.binary()),
    pa.field("shard", pa.int32()),
]
OPERATIONS_SCHEMA: Final = pa.schema(_OPERATION_FIELDS)

ROWS_SCHEMA: Final = pa.schema([pa.field("key", pa.binary(), nullable=False), pa.field("value", pa.binary())])
NO_OPERATIONS: Final = pa.RecordBatch.from_pylist([], schema=OPERATIONS_SCHEMA)
NO_ROWS: Final = pa.RecordBatch.from_pylist([], schema=ROWS_SCHEMA)


class Operation(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """One change of one key, or of a range of keys.

    `value` is what is stored (pairs are encoded already), and of a range the end key, exclusive.
    """

    operation: int
    table: str
    key: bytes
    value: bytes | None = None
    shard: int | None = None


# ---- a write stream ---------------------------------------------------------------------------------------------


class OpenWrites(Message, frozen=True):
    """The command that opens a write stream."""

    dataset: str
    version: int = PROTOCOL_VERSION


class Writes(Message, frozen=True):
    """Atomic writes numbered `first`, `first + 1`, ...; `durability` None is the store's own setting."""

    first: int
    writes: list[list[Operation]]
    durability: Durability | None = None


class WriteTable(Message, frozen=True):
    """The record batch beside it holds writes; their numbers stand in its column `write`."""

    durability: Durability | None = None


WriteUp = Writes | WriteTable


class Answer(msgspec.Struct, frozen=True, array_like=True):
    """Of write number `write`: its sequences, or the error's class name and fields."""

    write: int
    first: int
    last: int
    error: str | None = None
    fields: dict[str, Any] | None = None


class Answers(Message, frozen=True):
    """What became durable since the last message. Without answers it is a heartbeat, sent when a second was silent."""

    era: int
    answers: list[Answer]


class StoreGoodbye(Message, frozen=True):
    """The store stops: what is unanswered will be answered, write no more on this stream."""

    reason: str


WriteDown = Answers | StoreGoodbye


# ---- tickets and stream contents -----------------------------------------------------------------------------------


class FollowHorizon(Message, frozen=True):
    """Ticket: `Safe` at every change of how far the log is safe, and every second."""

    dataset: str
    version: int = PROTOCOL_VERSION


class ScanRows(Message, frozen=True):
    """Ticket: the rows of [begin, end) in key order as `ROWS_SCHEMA`; None is the table's own bound."""

    dataset: str
    table: str
    begin: bytes | None = None
    end: bytes | None = None
    limit: int | None = None
    version: int = PROTOCOL_VERSION


StoreTicket = FollowHorizon | ScanRows


class Safe(Message, frozen=True):
    era: int
    safe_through: int


class Rows(Message, frozen=True):
    """The record batch beside it holds rows."""


StoreDown = Safe | Rows


# ---- actions -------------------------------------------------------------------------------------------------------


class DescribeStore(Message, frozen=True):
    """The reply is a `StoreDescription`."""

    dataset: str
    version: int = PROTOCOL_VERSION


class StoreDescription(Message, frozen=True):
    """What a log reader on the same machine needs, and what `check` and `status` show."""

    path: str
    identity: str
    line: str
    era: int
    shards: int
    durability: Durability
    safe_through: int
    head: int
    tables: list[str]
    failure: str = ""


class GetRows(Message, frozen=True):
    """The reply is a `GetRowsReply` with one value per key, None where there is none."""

    dataset: str
    table: str
    keys: list[bytes]


class GetRowsReply(Message, frozen=True):
    values: list[bytes | None]


StoreUp = DescribeStore | GetRows
StoreReply = StoreDescription | GetRowsReply

decode_open_writes: Final[Decoder[OpenWrites]] = Decoder(OpenWrites)
decode_write_up: Final[Decoder[WriteUp]] = Decoder(WriteUp)
decode_write_down: Final[Decoder[WriteDown]] = Decoder(WriteDown)
decode_store_ticket: Final[Decoder[StoreTicket]] = Decoder(StoreTicket)
decode_store_down: Final[Decoder[StoreDown]] = Decoder(StoreDown)
decode_store_up: Final[Decoder[StoreUp]] = Decoder(StoreUp)
decode_store_reply: Final[Decoder[StoreReply]] = Decoder(StoreReply)
