"""Logs that a real RocksDB wrote come out as what it was asked to write, whatever they consist of."""

from __future__ import annotations

import pytest

from tailrace.sources.rocksdb.cursor import LogCursor
from tailrace.sources.rocksdb.files import list_logs, open_log
from tailrace.updates.position import Position
from tests.sources.rocksdb.conftest import ScenarioWriter
from tests.sources.rocksdb.reading import ERA, all_rows, read_through, rows_of, source_of

SCENARIOS = ["kinds", "wide", "spanning", "compressed", "prepared"]


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_everything_that_was_written_is_read_in_order(write_scenario: ScenarioWriter, scenario: str) -> None:
    folder, expected = write_scenario(scenario)
    assert all_rows(source_of(folder)) == expected


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_small_batches_hold_the_same(write_scenario: ScenarioWriter, scenario: str) -> None:
    folder, expected = write_scenario(scenario)
    assert all_rows(source_of(folder), max_batch_bytes=3000) == expected


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_reading_goes_on_from_every_place(write_scenario: ScenarioWriter, scenario: str) -> None:
    folder, expected = write_scenario(scenario)
    source = source_of(folder)
    for row in expected[:: max(len(expected) // 25, 1)]:
        rest = [later for later in expected if later.sequence > row.sequence]
        assert all_rows(source, Position(ERA, row.sequence)) == rest


def test_a_recycled_log_ends_where_what_it_held_before_begins(write_scenario: ScenarioWriter) -> None:
    folder, expected = write_scenario("recycled")
    after = Position(ERA, expected[0].sequence - 1)
    assert all_rows(source_of(folder), after) == expected
    assert source_of(folder).bounds().through.sequence == expected[-1].sequence
    newest = list_logs(folder)[-1]
    opened = open_log(folder, newest)
    assert opened is not None
    cursor = LogCursor(opened[0], newest, 0, 1 << 20)
    cursor.advance()
    assert cursor.recycled
    assert cursor.status().st_size > cursor.offset  # something older stands behind the head
    cursor.close()


def test_a_commit_finds_what_was_prepared_before_the_place_where_reading_began(write_scenario: ScenarioWriter) -> None:
    folder, expected = write_scenario("prepared")
    one = next(row for row in expected if row.key == b"one0")
    batches = read_through(source_of(folder), expected[-1].sequence, Position(ERA, one.sequence - 1))
    assert next(row for batch in batches for row in rows_of(batch.updates)) == one


def test_a_committed_transaction_comes_whole(write_scenario: ScenarioWriter) -> None:
    folder, expected = write_scenario("prepared")
    batches = read_through(source_of(folder), expected[-1].sequence, max_batch_bytes=1000)
    big = [row.sequence for row in expected if row.key.startswith(b"big") or row.key == b"gonebig"]
    held = [
        batch for batch in batches if batch.updates.num_rows and big[0] in batch.updates.column("sequence").to_pylist()
    ]
    assert [batch.through.sequence for batch in held] == [big[-1]]
