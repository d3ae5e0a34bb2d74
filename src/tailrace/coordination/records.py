"""What stands in a record: a Struct as JSON, under the version of its format.

`{"format": 1, "value": {...}}` is readable in any coordinator's shell. A record in a newer format than this binary
knows is refused before its value is looked at.
"""

from __future__ import annotations

from typing import Generic, TypeVar

import msgspec

from tailrace.coordination.interface import MAX_RECORD_BYTES
from tailrace.errors import ProtocolMismatch, RecordTooLarge, VersionTooNew

V = TypeVar("V")


class _Envelope(msgspec.Struct, forbid_unknown_fields=True):
    format: int
    value: msgspec.Raw


class RecordKind(Generic[V]):
    """One kind of record: how its values are written and read. `known_format` rises when the Struct changes."""

    def __init__(self, name: str, kind: type[V], known_format: int = 1) -> None:
        self.name = name
        self.known_format = known_format
        self._decoder = msgspec.json.Decoder(kind)
        self._envelope = msgspec.json.Decoder(_Envelope)

    def encode(self, value: V) -> bytes:
        encoded = msgspec.json.encode(_Envelope(self.known_format, msgspec.Raw(msgspec.json.encode(value))))
        if len(encoded) > MAX_RECORD_BYTES:
            raise RecordTooLarge(what=self.name, size=len(encoded), limit=MAX_RECORD_BYTES)
        return encoded

    def decode(self, path: str, data: bytes) -> V:
        """The value of the record at `path`."""
        try:
            envelope = self._envelope.decode(data)
            if envelope.format > self.known_format:
                raise VersionTooNew(what=f"record {path} ({self.name})", found=envelope.format, known=self.known_format)
            return self._decoder.decode(envelope.value)
        except msgspec.MsgspecError as error:
            raise ProtocolMismatch(reason=f"record {path} holds no {self.name}: {error}") from error
