"""Errors that cross a connection."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pyarrow.flight as flight
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.errors import (
    CredentialRefused,
    Disconnected,
    FilterInvalid,
    LogCorrupt,
    LogTruncated,
    RemoteFailed,
    StoreFailed,
    TailraceError,
    Unavailable,
)
from tailrace.updates.position import Position
from tailrace.wire.failures import MAX_EXTRA_BYTES, from_flight, plain, to_flight


def crossed(error: TailraceError) -> TailraceError:
    return from_flight(to_flight(error, "testing"), "here:1")


@pytest.mark.parametrize(
    "error",
    [
        FilterInvalid(text="a =", at=3, reason="a value is missing"),
        LogTruncated(line="shop", after=Position(0, 1, 0), oldest=Position(0, 5, 0)),
        LogCorrupt(path=Path("/x/000004.log"), offset=2**40, reason="checksum"),
        CredentialRefused(reason="no"),
        Unavailable(reason="starting"),
    ],
)
def test_an_error_arrives_as_the_class_and_text_that_it_was(error: TailraceError) -> None:
    arrived = crossed(error)
    assert type(arrived) is type(error)
    assert str(arrived) == str(error)


def test_numbers_arrive_as_numbers() -> None:
    assert crossed(LogCorrupt(path="p", offset=17, reason="r")).offset == 17


def test_an_error_too_large_for_a_trailer_is_shortened() -> None:
    error = StoreFailed(path="p", reason="x" * 100_000)
    sent: Any = to_flight(error, "testing")
    assert len(sent.extra_info) <= MAX_EXTRA_BYTES
    assert isinstance(crossed(error), StoreFailed)


def test_what_is_not_ours_becomes_remote_failed_and_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    arrived = from_flight(to_flight(ZeroDivisionError("division"), "answering Hello"), "here:1")
    assert isinstance(arrived, RemoteFailed)
    assert "answering Hello" in str(arrived)
    assert "ZeroDivisionError" in caplog.text


def test_a_class_unknown_here_becomes_remote_failed_that_names_it() -> None:
    extra = msgspec.msgpack.encode(("FutureError", {"reason": "x"}))
    arrived = from_flight(flight.FlightServerError("x", extra), "here:1")
    assert isinstance(arrived, RemoteFailed)
    assert "FutureError" in str(arrived)


@pytest.mark.parametrize("extra", [b"\xc1", msgspec.msgpack.encode(("FilterInvalid", {"unexpected": 1}))])
def test_an_error_that_cannot_be_read_becomes_remote_failed(extra: bytes) -> None:
    assert isinstance(from_flight(flight.FlightServerError("x", extra), "here:1"), RemoteFailed)


def test_a_failure_of_the_transport_names_the_address() -> None:
    for failure in (flight.FlightUnavailableError("gone"), flight.FlightTimedOutError("late")):
        arrived = from_flight(failure, "here:1")
        assert isinstance(arrived, Disconnected)
        assert arrived.address == "here:1"


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(),
        lambda held: st.lists(held, max_size=4) | st.dictionaries(st.text(), held, max_size=4) | st.tuples(held, held),
        max_leaves=10,
    )
)
def test_every_plain_value_fits_msgpack(value: Any) -> None:
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(plain(value)), strict=False) == plain(value)
