"""Has this write reached that application?"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import tailrace
from tailrace.errors import Disconnected, NotFound, PositionInvalid, Unavailable
from tailrace.testing.scripted_publisher import ScriptedPublisher
from tailrace.updates.position import LinePosition, Position
from tailrace.wire.messages import Message, Reached, ReachedReply

NO, YES = ReachedReply(False, Position(0, 1)), ReachedReply(True, Position(0, 9))


@pytest.fixture
def publisher() -> Iterator[ScriptedPublisher]:
    with ScriptedPublisher() as running:
        yield running


@pytest.mark.parametrize("position", [Position(0, 5), "0:5:0", "shop@0:5:0", LinePosition("shop", Position(0, 5))])
def test_a_position_may_be_written_in_any_form(publisher: ScriptedPublisher, position: str) -> None:
    publisher.answers["Reached"] = YES
    assert tailrace.reached(publisher.url, position, by="cache")
    assert publisher.heard(Reached) == [Reached("shop", "cache", Position(0, 5))]


def test_it_asks_until_the_application_has_got_there(publisher: ScriptedPublisher) -> None:
    replies: list[Message] = [NO, Unavailable(reason="starting"), NO, YES]  # type: ignore[list-item]
    publisher.answers["Reached"] = lambda _: replies.pop(0)
    assert tailrace.reached(publisher.url, Position(0, 5), by="cache")
    assert len(publisher.heard(Reached, 4)) == 4


def test_it_is_false_when_time_is_up(publisher: ScriptedPublisher) -> None:
    publisher.answers["Reached"] = NO
    assert not tailrace.reached(publisher.url, Position(0, 5), by="cache", timeout_s=0.05)


def test_an_unknown_application_is_not_waited_for(publisher: ScriptedPublisher) -> None:
    publisher.answers["Reached"] = NotFound(what="application", name="cache", remedy="subscribe first")
    with pytest.raises(NotFound, match="application 'cache'"):
        tailrace.reached(publisher.url, Position(0, 5), by="cache")


def test_nobody_there_until_the_end_is_disconnected() -> None:
    with pytest.raises(Disconnected):
        tailrace.reached("tailrace://127.0.0.1:1/shop", Position(0, 5), by="cache", timeout_s=0.05)


def test_a_malformed_position_is_refused() -> None:
    with pytest.raises(PositionInvalid):
        tailrace.reached("tailrace://127.0.0.1:1/shop", "soon", by="cache")
