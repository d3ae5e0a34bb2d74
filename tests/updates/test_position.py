"""Positions as text and in order; markers never fall."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.errors import PositionInvalid
from tailrace.updates import Checkpoint, LinePosition, Marker, Position, Witness
from tailrace.updates.position import INDEX_END, MAX_EARLIER, START

positions = st.builds(Position, st.integers(0, 2**15 - 1), st.integers(0, 2**63 - 1), st.integers(0, 2**31 - 1))


@given(positions, st.text(min_size=1))
def test_the_text_of_a_position_reads_back(position: Position, line: str) -> None:
    assert Position.parse(str(position)) == position
    assert LinePosition.parse(f"{line}@{position}") == LinePosition(line, position)


@pytest.mark.parametrize(
    "text", ["", "1:2", "1:2:3:4", "a:1:0", "-1:2:0", "40000:1:0", "0:9223372036854775808:0", "1:2:3\n"]
)
def test_what_is_no_position_is_refused(text: str) -> None:
    with pytest.raises(PositionInvalid, match="era:sequence:index"):
        Position.parse(text)


@pytest.mark.parametrize("text", ["0:1:0", "@0:1:0"])
def test_a_line_position_names_its_line(text: str) -> None:
    with pytest.raises(PositionInvalid, match="line"):
        LinePosition.parse(text)


def test_what_names_no_line_is_told_what_else_may_be_a_start() -> None:
    with pytest.raises(PositionInvalid, match="'earliest' or 'latest', and with `tailrace tail` an age such as -5m"):
        LinePosition.parse("5m")


def test_a_newer_era_is_greater_than_any_position_of_the_older_one() -> None:
    assert START < Position(0, 2**63 - 1, 2**31 - 1) < Position(1, 0, 0)


def test_a_marker_never_falls() -> None:
    marker = Marker(Checkpoint(Position(0, 5), Witness("", 1)))
    assert marker.advanced(Checkpoint(Position(0, 4), Witness("", 2))) is marker
    assert marker.advanced(Checkpoint(Position(0, 5), Witness("", 2))) is marker


def test_a_marker_keeps_the_checkpoints_before_it_newest_first() -> None:
    marker = Marker(Checkpoint(START, None))
    for sequence in range(1, 21):
        marker = marker.advanced(Checkpoint(Position(0, sequence), Witness("", sequence)))
    assert marker.position == Position(0, 20)
    assert [checkpoint.position.sequence for checkpoint in marker.earlier] == list(range(19, 3, -1))
    assert len(marker.earlier) == MAX_EARLIER


def test_a_position_that_covers_a_whole_transaction_reads_back() -> None:
    position = Position(1, 1042, INDEX_END)
    assert str(position) == "1:1042:2147483647"
    assert Position.parse("1:1042:2147483647") == position
