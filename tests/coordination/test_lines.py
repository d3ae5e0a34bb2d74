from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.coordination.embedded import EmbeddedCoordinator
from tailrace.coordination.lines import (
    MAX_EARLIER,
    LineRecord,
    decide_line,
    line_path,
    raise_era,
    read_line,
    register_line,
)
from tailrace.errors import ProtocolMismatch, VersionTooNew
from tailrace.updates.position import Position


@pytest.fixture
def coordinator(tmp_path: Path) -> Iterator[EmbeddedCoordinator]:
    with EmbeddedCoordinator(tmp_path) as opened:
        yield opened


def test_a_line_begins_in_era_0_and_stays_there(coordinator: EmbeddedCoordinator) -> None:
    assert read_line(coordinator, "shop") is None
    assert register_line(coordinator, "shop", "A") == 0
    assert register_line(coordinator, "shop", "A") == 0
    assert read_line(coordinator, "shop") == LineRecord("A", 0)


def test_a_changed_identity_is_a_fork(coordinator: EmbeddedCoordinator) -> None:
    register_line(coordinator, "shop", "A")
    assert register_line(coordinator, "shop", "B") == 1
    assert register_line(coordinator, "shop", "B") == 1
    assert register_line(coordinator, "shop", "A") == 2
    record = read_line(coordinator, "shop")
    assert record is not None
    assert [(ended.era, ended.identity) for ended in record.earlier] == [(1, "B"), (0, "A")]


def test_lines_are_apart_whatever_they_are_called(coordinator: EmbeddedCoordinator) -> None:
    for line in ("a", "a/b", "a b", "..", "ü"):
        assert register_line(coordinator, line, line) == 0
    assert len(coordinator.children("lines")) == 5


def test_an_only_copy_that_ends_before_a_marker_is_a_fork(coordinator: EmbeddedCoordinator) -> None:
    register_line(coordinator, "shop", "A")
    marker = Position(0, 100)
    assert register_line(coordinator, "shop", "A", head=Position(0, 100), acknowledged=marker) == 0
    assert register_line(coordinator, "shop", "A", head=Position(0, 99), acknowledged=marker) == 1
    # The marker still is in era 0 when it opens again, and that fork is known.
    assert register_line(coordinator, "shop", "A", head=Position(0, 99), acknowledged=marker) == 1


def test_a_replica_that_ends_before_a_marker_is_late(coordinator: EmbeddedCoordinator) -> None:
    register_line(coordinator, "shop", "A")
    assert register_line(coordinator, "shop", "A", acknowledged=Position(0, 100)) == 0


def test_markers_keep_the_era_when_the_coordinator_lost_it(coordinator: EmbeddedCoordinator) -> None:
    assert register_line(coordinator, "shop", "A", acknowledged=Position(7, 100)) == 7


def test_of_many_that_find_one_fork_one_raises_the_era(coordinator: EmbeddedCoordinator) -> None:
    register_line(coordinator, "shop", "A")
    with ThreadPoolExecutor(4) as pool:
        eras = set(pool.map(lambda _: raise_era(coordinator, "shop", beyond=0, reason="diverged"), range(8)))
    assert eras == {1}
    assert raise_era(coordinator, "shop", beyond=1, reason="diverged again") == 2
    assert register_line(coordinator, "shop", "A") == 2


def test_raising_the_era_of_an_unknown_line_is_remembered(coordinator: EmbeddedCoordinator) -> None:
    assert raise_era(coordinator, "shop", beyond=4, reason="diverged") == 5
    assert register_line(coordinator, "shop", "A") == 5


def test_many_that_register_at_once_agree(coordinator: EmbeddedCoordinator) -> None:
    register_line(coordinator, "shop", "A")
    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(lambda _: register_line(coordinator, "shop", "B"), range(8))) == {1}


def test_a_newer_record_is_refused(coordinator: EmbeddedCoordinator) -> None:
    coordinator.create(line_path("shop"), b'{"format": 2, "value": {"anything": 1}}')
    with pytest.raises(VersionTooNew, match="lines/shop"):
        register_line(coordinator, "shop", "A")
    assert coordinator.get(line_path("shop")) == (b'{"format": 2, "value": {"anything": 1}}', 1)


@pytest.mark.parametrize("value", [b"", b"{}", b'{"format": 1, "value": {"era": "x"}}', b'{"format": 1}'])
def test_a_record_that_is_none_is_refused(coordinator: EmbeddedCoordinator, value: bytes) -> None:
    coordinator.create(line_path("shop"), value)
    with pytest.raises(ProtocolMismatch, match="lines/shop holds no line"):
        register_line(coordinator, "shop", "A")


positions = st.none() | st.builds(Position, st.integers(0, 3), st.integers(0, 5))


@given(st.lists(st.tuples(st.sampled_from("AB"), positions, positions), max_size=60))
def test_eras_never_fall_and_rise_with_every_change_of_identity(
    registrations: list[tuple[str, Position | None, Position | None]],
) -> None:
    record: LineRecord | None = None
    for identity, head, acknowledged in registrations:
        decided = decide_line(record, identity, head, acknowledged)
        assert decided.identity == identity
        assert decided.era >= (acknowledged.era if acknowledged else 0)
        assert len(decided.earlier) <= MAX_EARLIER
        if record is not None:
            assert decided.era >= record.era
            assert decided.era > record.era or record.identity == identity
        assert decide_line(decided, identity, None, None) == decided
        record = decided
    assert msgspec.json.decode(msgspec.json.encode(record), type=LineRecord | None) == record
