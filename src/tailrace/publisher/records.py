"""Applications' records: where every publisher of a dataset finds who subscribes to it, and how."""

from __future__ import annotations

from typing import Final, Protocol

import msgspec

from tailrace.publisher.applications import ApplicationRecord

RECORD_VERSION: Final = 1

_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(ApplicationRecord).decode


class ApplicationRecords(Protocol):
    def of(self, dataset: str) -> list[ApplicationRecord]: ...

    def create(self, record: ApplicationRecord) -> ApplicationRecord:
        """Makes the record durable; returns the one that is there, if another publisher was first."""
