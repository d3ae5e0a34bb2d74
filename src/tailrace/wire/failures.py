"""Errors cross a connection unchanged: what a server raises, its client raises too.

gRPC carries a status and a text; beside them Flight carries `extra_info`, in which a server puts msgpack of
[class name, fields]. The client rebuilds the very error from it. A failure without `extra_info` comes from the
transport itself: the other side is unreachable, too slow or gone, which is `Disconnected`.
"""

from __future__ import annotations

import logging
import re
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.flight as flight

from tailrace.errors import (
    CredentialRefused,
    Disconnected,
    ProtocolMismatch,
    RemoteFailed,
    TailraceError,
    Unavailable,
)

logger: Final = logging.getLogger(__name__)

MAX_EXTRA_BYTES: Final = 4096  # gRPC bounds all trailers of a call to 8 KiB, and an oversized one breaks the call
_GRPC_WORDS: Final = re.compile(
    r"Flight returned \w+ error, with message: |failed to connect to all addresses; last error: \w+: [^ ]*: "
)
MAX_TEXT: Final = 1024

_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(tuple[str, dict[str, Any]]).decode


def to_flight(error: BaseException, doing: str) -> Exception:
    """The Flight error that carries `error` to the client. What is not ours is logged here with its traceback."""
    if not isinstance(error, TailraceError):
        logger.error("unforeseen failure while %s", doing, exc_info=error)
        error = RemoteFailed(reason=f"the server failed while {doing}: {type(error).__name__}: {error}")
    text = str(error)[:MAX_TEXT]
    extra = _packed(error)
    if isinstance(error, CredentialRefused):
        return flight.FlightUnauthenticatedError(text, extra)
    if isinstance(error, Unavailable):
        return flight.FlightUnavailableError(text, extra)
    return flight.FlightServerError(text, extra)


def from_flight(error: BaseException, address: str) -> TailraceError:
    """What a failed Flight call means to its caller."""
    extra = getattr(error, "extra_info", b"")
    if extra:
        return _unpacked(extra)
    text = _first_line(error)
    if isinstance(error, flight.FlightTimedOutError):
        return Disconnected(address=address, reason=f"no answer in time ({text})")
    if isinstance(error, flight.FlightUnavailableError | flight.FlightCancelledError | pa.ArrowCancelled):
        return Disconnected(address=address, reason=text)
    if isinstance(error, flight.FlightInternalError | OSError):
        return Disconnected(address=address, reason=f"the connection broke: {text}")
    if isinstance(error, NotImplementedError):
        return ProtocolMismatch(reason=f"{address} does not know this request: {text}")
    return RemoteFailed(reason=f"{address}: {text}")


def plain(value: Any) -> Any:
    """`value` as msgpack can hold it; what it cannot hold becomes the text that a reader would have seen."""
    if value is None or isinstance(value, bool | float):
        return value
    if isinstance(value, int):
        return int(value) if -(2**63) <= value < 2**64 else str(value)
    if isinstance(value, str):
        return value if len(value) <= MAX_TEXT else value[:MAX_TEXT] + "…"
    if isinstance(value, bytes):
        return value[:MAX_TEXT]
    if isinstance(value, dict):
        return {str(key): plain(held) for key, held in value.items()}
    if type(value) in (list, tuple, set, frozenset):  # a NamedTuple such as a Position reads better as its text
        return [plain(held) for held in value]
    return str(value)


def _packed(error: TailraceError) -> bytes:
    packed = _encode((type(error).__name__, plain(error.fields)))
    if len(packed) <= MAX_EXTRA_BYTES:
        return packed
    shortened = {
        name: plain(value) if isinstance(value, int | float) else str(value)[:200]
        for name, value in list(error.fields.items())[:8]
    }
    return _encode((type(error).__name__, shortened))


def _unpacked(extra: bytes) -> TailraceError:
    try:
        name, fields = _decode(extra)
        return TailraceError.rebuild(name, fields)
    except (msgspec.MsgspecError, TypeError) as error:
        return RemoteFailed(reason=f"the other side failed and its error cannot be read: {error}")


def _first_line(error: BaseException) -> str:
    """What happened, without what gRPC says around it."""
    line = str(error).split("\n", 1)[0].split(". gRPC client debug context", 1)[0]
    return _GRPC_WORDS.sub("", line)[:MAX_TEXT]
