"""How many shards a dataset has is decided once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tailrace.coordination.datasets import fix_shards, read_shards, refuse_other_shards
from tailrace.coordination.embedded import EmbeddedCoordinator
from tailrace.errors import ConfigInvalid, VersionTooNew


@pytest.fixture
def coordinator(tmp_path: Path) -> Iterator[EmbeddedCoordinator]:
    with EmbeddedCoordinator(tmp_path) as opened:
        yield opened


def test_whoever_publishes_a_dataset_first_fixes_its_shards(coordinator: EmbeddedCoordinator) -> None:
    assert read_shards(coordinator, "shop") is None
    fix_shards(coordinator, "shop", 64)
    fix_shards(coordinator, "shop", 64)
    assert read_shards(coordinator, "shop") == 64
    assert read_shards(coordinator, "other") is None


def test_another_number_is_refused_with_key_numbers_and_remedy(coordinator: EmbeddedCoordinator) -> None:
    fix_shards(coordinator, "shop", 64)
    with pytest.raises(ConfigInvalid, match=r"^dataset\.shop\.shards: 32, but .* has 64, for life; write shards = 64,"):
        fix_shards(coordinator, "shop", 32)
    assert read_shards(coordinator, "shop") == 64


def test_a_dataset_that_nobody_published_may_have_any_number() -> None:
    refuse_other_shards("shop", None, 32)


def test_a_record_in_a_newer_format_is_refused(coordinator: EmbeddedCoordinator) -> None:
    coordinator.create("datasets/shop", b'{"format":2,"value":{"shards":64}}')
    with pytest.raises(VersionTooNew, match="datasets/shop"):
        fix_shards(coordinator, "shop", 64)
