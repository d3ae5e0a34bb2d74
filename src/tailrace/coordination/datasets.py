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


def require_shards(coordinator: Coordinator, dataset: str, shards: int) -> None:
    """`ConfigInvalid` if the dataset is recorded with another number of shards."""
    path = dataset_path(dataset)
    found = coordinator.get(path)
    recorded = DATASET_RECORDS.decode(path, found.value).shards if found else shards
    if recorded != shards:
        raise ConfigInvalid(
            path=f"dataset.{dataset}.shards",
            reason=f"{shards}, but the dataset was published with {recorded}, which is fixed for its life; "
            f"write shards = {recorded} again, or give the dataset another name",
        )


def fix_shards(coordinator: Coordinator, dataset: str, shards: int) -> None:
    """Records the number unless one is recorded; `ConfigInvalid` if that is another one."""
    coordinator.create(dataset_path(dataset), DATASET_RECORDS.encode(DatasetRecord(shards)))
    require_shards(coordinator, dataset, shards)
