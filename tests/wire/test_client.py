"""What a client shows of an error: what the other side said, and gRPC's account only of what nobody said."""

from __future__ import annotations

import traceback
from collections.abc import Callable

import pytest
from tests.wire.services import Batches, SmallService

from tailrace.errors import Disconnected, LogTruncated, ProtocolMismatch, TailraceError
from tailrace.wire.client import Connection
from tailrace.wire.messages import Done, ReadRange, Status, Subscribe, decode_reply
from tailrace.wire.server import Server


def refused(doing: Callable[[], object], kind: type[TailraceError]) -> str:
    """The traceback that a user sees."""
    with pytest.raises(kind) as caught:
        doing()
    return "".join(traceback.format_exception(caught.value))


def failing() -> Batches:
    raise LogTruncated(line="shop", after="0:1:0", oldest="0:5:0")
    yield


def test_what_the_other_side_said_is_shown_without_how_it_came() -> None:
    with Server("127.0.0.1:0", [SmallService(failing)]) as server, Connection(server.address) as connection:
        by_action = refused(lambda: connection.call(Status(), decode_reply), LogTruncated)
        by_ticket = refused(lambda: connection.get(ReadRange("shop")), ProtocolMismatch)
        with connection.get(Subscribe("shop", "cache", "c1")) as reader:
            in_stream = refused(lambda: next(reader), LogTruncated)
    for shown in (by_action, by_ticket, in_stream):
        assert shown.count("Traceback") == 1
        assert "gRPC" not in shown


def test_what_nobody_said_is_shown_with_its_cause() -> None:
    with Connection("127.0.0.1:1") as connection:
        shown = refused(lambda: connection.call(Done(), decode_reply), Disconnected)
    assert "FlightUnavailableError" in shown
