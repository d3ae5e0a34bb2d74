"""What is fixed for a dataset's life: how many shards it has.

Markers are kept for each shard. With another number of shards keys lie in other shards, and a marker would speak of
updates that its shard never had. So whoever publishes a dataset first records the number, and nobody publishes it with
another one.
"""

from __future__ import annotations

from typing import Final

import msgspec

from tailrace.coordination.interface import Coordinator, path_of
from tailrace.coordination.records import RecordKind
from tailrace.errors import ConfigInvalid

_DATASETS: Final = "datasets"


class DatasetRecord(msgspec.Struct, frozen=True):
    shards: int


DATASET_RECORDS: Final = RecordKind("dataset", DatasetRecord)


def dataset_path(dataset: str) -> str:
    return path_of(_DATASETS, dataset)


def read_shards(coordinator: Coordinator, dataset: str) -> int | None:
    """What is recorded; None if the dataset was never published."""
    path = dataset_path(dataset)
    found = coordinator.get(path)
    return DATASET_RECORDS.decode(path, found.value).shards if found else None


def fix_shards(coordinator: Coordinator, dataset: str, shards: int) -> None:
    """Records the number unless one is recorded; `ConfigInvalid` if that is another one."""
    coordinator.create(dataset_path(dataset), DATASET_RECORDS.encode(DatasetRecord(shards)))
    refuse_other_shards(dataset, read_shards(coordinator, dataset), shards)


def refuse_other_shards(dataset: str, fixed: int | None, shards: int, where: str = "the coordinator's record") -> None:
    """`ConfigInvalid` if the dataset has `fixed` shards, as told by `where`, and the configuration says otherwise."""
    if fixed is not None and fixed != shards:
        reason = f"{shards}, but by {where} the dataset has {fixed}, for life"
        remedy = f"write shards = {fixed}, or give another name to a dataset with {shards}"
        raise ConfigInvalid(path=f"dataset.{dataset}.shards", reason=f"{reason}; {remedy}")
