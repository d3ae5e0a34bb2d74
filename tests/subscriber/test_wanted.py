"""What is wrong with a subscription is said before anything is connected."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.subscriber.recorder import Recorder

import tailrace
from tailrace.errors import ConfigInvalid, FilterInvalid, PositionInvalid, TailraceError, UrlInvalid
from tailrace.subscriber.wanted import wanted
from tailrace.updates.position import LinePosition, Position

URL = "tailrace://127.0.0.1:1/shop"


def test_the_ticket_says_what_was_asked_for() -> None:
    asked = wanted(URL, application="cache", filter="table  =  't'", start=LinePosition("shop", Position(1, 2, 3)))
    ticket = asked.ticket()
    assert (ticket.dataset, ticket.application, ticket.start) == ("shop", "cache", "shop@1:2:3")
    assert ticket.filter == "table = 't'"


def test_each_subscriber_has_a_name_of_its_own() -> None:
    assert wanted(URL, application="cache").subscriber != wanted(URL, application="cache").subscriber
    assert wanted(URL, application="cache", subscriber="mine").subscriber == "mine"


def test_the_token_may_lie_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("web.secret\n")
    assert wanted(URL, application="cache", credential_file=file).credential == "web.secret"


def test_a_bad_start_is_told_what_a_start_may_be() -> None:
    with pytest.raises(PositionInvalid, match=r"'earliest' or 'latest'.*; a position reads line@era:sequence:index"):
        wanted(URL, application="cache", start="sometime")


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"url": "localhost"}, UrlInvalid),
        ({"application": "two words"}, ConfigInvalid),
        ({"application": ""}, ConfigInvalid),
        ({"filter": "topic ="}, FilterInvalid),
        ({"mode": "sometimes"}, ConfigInvalid),
        ({"start": "yesterday"}, PositionInvalid),
        ({"start": Position(0, 5)}, PositionInvalid),  # it names no line
        ({"error_policy": "explode"}, ConfigInvalid),
        ({"credential": "a.b", "credential_file": "c"}, ConfigInvalid),
        ({"credential_file": "/nowhere/token"}, ConfigInvalid),
        ({"application_object": tailrace.Application()}, ConfigInvalid),
    ],
)
def test_a_mistake_is_raised_by_subscribe_itself(arguments: dict[str, object], error: type[TailraceError]) -> None:
    given = {"url": URL, "application_object": Recorder(), "application": "cache", **arguments}
    with pytest.raises(error):
        tailrace.subscribe(given.pop("url"), given.pop("application_object"), **given)  # type: ignore[arg-type]
