"""Applications' records: where every publisher of a dataset finds who subscribes to it, and how."""

from __future__ import annotations

from typing import Final, Protocol
from urllib.parse import unquote

from tailrace.coordination.interface import Coordinator, path_of
from tailrace.coordination.records import RecordKind
from tailrace.publisher.applications import ApplicationRecord

APPLICATION_RECORDS: Final = RecordKind("application", ApplicationRecord)
_APPLICATIONS: Final = "applications"


class ApplicationRecords(Protocol):
    def of(self, dataset: str) -> list[ApplicationRecord]: ...

    def create(self, record: ApplicationRecord) -> ApplicationRecord:
        """Makes the record durable; returns the one that is there, if another publisher was first."""


class CoordinatorRecords:
    """Implements `ApplicationRecords` on a coordinator: one record for each application, below its dataset."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator

    def of(self, dataset: str) -> list[ApplicationRecord]:
        below = self._coordinator.children(path_of(_APPLICATIONS, dataset))
        found = [self._read(record_path(dataset, unquote(name))) for name in below]
        return [record for record in found if record is not None]

    def create(self, record: ApplicationRecord) -> ApplicationRecord:
        path = record_path(record.dataset, record.application)
        while not self._coordinator.create(path, APPLICATION_RECORDS.encode(record)):
            there = self._read(path)
            if there is not None:  # else it was deleted between the two calls: create it again
                return there
        return record

    def _read(self, path: str) -> ApplicationRecord | None:
        found = self._coordinator.get(path)
        return APPLICATION_RECORDS.decode(path, found.value) if found else None


def record_path(dataset: str, application: str) -> str:
    return path_of(_APPLICATIONS, dataset, application)
