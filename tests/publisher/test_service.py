"""Who is answered what, apart from what a dataset's publisher decides."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest

from tailrace.errors import CredentialRefused, Fenced, NotFound, Unavailable
from tailrace.publisher.dataset import DatasetPublisher
from tailrace.publisher.dead import DeadLetters, to_ipc
from tailrace.publisher.markers import MarkerStore
from tailrace.publisher.service import PublisherService
from tailrace.testing.memory_source import MemorySource
from tailrace.updates.position import Position
from tailrace.wire.callers import ANYONE, Caller, Scope
from tailrace.wire.messages import (
    Acknowledge,
    Alive,
    BuryDead,
    DatasetInfo,
    DeadDone,
    DeadList,
    DeadListReply,
    DeadRetry,
    DeadRetryReply,
    DeadShow,
    DeadShowReply,
    Hello,
    HelloReply,
    Leave,
    Reached,
    ReachedReply,
    ReadRange,
    Redelivery,
    Reply,
    Status,
    StatusReply,
    Subscribe,
    Up,
    Updates,
    decode_reply,
    encode,
)
from tests.publisher.conftest import MemoryRecords, Rig

NARROW = Caller("web", (Scope(("subscribe", "read", "admin"), ("shop",), ("app",)),), "127.0.0.1")
READER = Caller("reader", (Scope(("read",), ("shop",)),), "127.0.0.1")


def ask(service: PublisherService, caller: Caller, message: Up) -> Reply:
    return decode_reply(service.actions()[type(message).__name__](caller, encode(message)))


def with_accounts(rig: Rig) -> PublisherService:
    accounts = DatasetPublisher(
        "accounts",
        1,
        MemorySource("accounts"),
        epoch=1,
        records=MemoryRecords(),
        markers=MarkerStore(rig.ledger),
        dead=DeadLetters(rig.ledger, rig.clock),
        settings=rig.settings,
        clock=rig.clock,
    )
    return PublisherService([accounts, rig.publisher], address="127.0.0.1:7400")


def test_a_session_that_is_over_is_fenced_whichever_dataset_the_caller_may_use(rig: Rig) -> None:
    service = with_accounts(rig)
    caller = Caller("web", (Scope(("subscribe",), ("shop",), ("app",)),), "127.0.0.1")
    with pytest.raises(Fenced, match="it is over"):
        ask(service, caller, Alive(session="gone"))


def test_letters_that_were_tried_again_are_settled_though_there_is_no_room_for_another(rig: Rig) -> None:
    rig.settings = msgspec.structs.replace(rig.settings, max_dead_letters=1)
    rig.restart()
    service = PublisherService([rig.publisher], address="127.0.0.1:7400")
    rig.source.append(3)
    listener = rig.subscribe()
    batch, _ = listener.seen(Updates)
    session = listener.stream.session
    ask(service, ANYONE, BuryDead(session, to_ipc(batch.slice(0, 1)), ["no"], 1))
    with pytest.raises(Unavailable, match="1 dead letters already"):
        ask(service, ANYONE, BuryDead(session, to_ipc(batch.slice(1, 1)), ["no"], 1))
    rig.publisher.retry_dead("app", None)
    _, message = listener.seen(Redelivery)
    assert isinstance(message, Redelivery)
    ask(service, ANYONE, DeadDone(session, message.letters, {}))
    assert rig.publisher.application("app").dead_letters == 0


# ---- what a scope grants --------------------------------------------------------------------------------------------


@pytest.fixture
def service(rig: Rig) -> Iterator[PublisherService]:
    """With two applications that have a subscriber, a marker at the start and a dead letter each; "other" is first."""
    service = PublisherService([rig.publisher], address="127.0.0.1:7400")
    streams = []
    rig.source.append(1)
    for application in ("other", "app"):
        ticket = Subscribe(dataset="shop", application=application, subscriber="one", start="earliest")
        streams.append(service.get(ANYONE, encode(ticket)))
        batch = next(item[0] for item in streams[-1].batches if isinstance(item, tuple) and item[0].num_rows)
        ask(service, ANYONE, BuryDead(session_of(rig, application), to_ipc(batch), ["no"], 1))
    yield service
    for stream in streams:
        stream.batches.close()  # type: ignore[attr-defined]


def session_of(rig: Rig, application: str) -> str:
    active = rig.publisher.application(application).active
    assert active is not None
    return active.stream.session


def about(application: str, letter: int) -> list[tuple[Up, type[Reply]]]:
    return [
        (Reached("shop", application, Position(0, 1)), ReachedReply),
        (DeadList("shop", application), DeadListReply),
        (DeadShow("shop", application, letter), DeadShowReply),
        (DeadRetry("shop", application), DeadRetryReply),
    ]


def test_a_scope_for_one_application_opens_what_concerns_that_one(service: PublisherService) -> None:
    for message, reply in about("app", 2):
        assert isinstance(ask(service, NARROW, message), reply)


@pytest.mark.parametrize("message", [message for message, _ in about("other", 1)], ids=lambda one: type(one).__name__)
def test_a_scope_for_one_application_opens_nothing_of_another(service: PublisherService, message: Up) -> None:
    with pytest.raises(CredentialRefused, match="on dataset 'shop' for application 'other'"):
        ask(service, NARROW, message)


def test_a_session_is_spoken_for_by_those_who_may_subscribe_to_its_application(
    rig: Rig, service: PublisherService
) -> None:
    other = session_of(rig, "other")
    for message in (
        Alive(other),
        Acknowledge(other, rig.epoch, 1),
        BuryDead(other, b"", [], 1),
        DeadDone(other, [1], {}),
        Leave(other),
    ):
        with pytest.raises(CredentialRefused, match="'subscribe' on dataset 'shop' for application 'other'"):
            ask(service, NARROW, message)
    assert session_of(rig, "other") == other
    ask(service, NARROW, Alive(session_of(rig, "app")))
    ask(service, NARROW, Leave(session_of(rig, "app")))
    assert rig.publisher.application("app").active is None


def test_a_status_shows_the_applications_that_the_caller_may_read_and_names_no_other(service: PublisherService) -> None:
    shown = ask(service, NARROW, Status())
    assert isinstance(shown, StatusReply)
    assert [one.application for one in shown.applications] == ["app"]
    assert [(one.dataset, one.pinned_by) for one in shown.datasets] == [("shop", "")]
    whole = ask(service, READER, Status())
    assert isinstance(whole, StatusReply)
    assert [one.application for one in whole.applications] == ["other", "app"]
    assert [one.pinned_by for one in whole.datasets] == ["other"]


def test_a_range_of_the_log_needs_a_scope_for_the_whole_dataset(service: PublisherService) -> None:
    ticket = encode(ReadRange(dataset="shop"))
    with pytest.raises(CredentialRefused, match="'read' on dataset 'shop' as a whole: its scope is narrowed"):
        service.get(NARROW, ticket)
    assert list(service.flights(NARROW)) == []
    assert len(list(service.get(READER, ticket).batches)) == 1
    assert len(list(service.flights(READER))) == 1


def test_a_greeting_lists_the_datasets_on_which_the_caller_may_do_something(rig: Rig) -> None:
    service = with_accounts(rig)

    def listed(caller: Caller) -> list[DatasetInfo]:
        reply = ask(service, caller, Hello())
        assert isinstance(reply, HelloReply)
        return reply.datasets

    assert [one.name for one in listed(ANYONE)] == ["accounts", "shop"]
    assert [one.name for one in listed(NARROW)] == ["shop"]
    assert listed(Caller("nobody", ())) == []


def test_a_dataset_that_is_not_there_is_refused_without_naming_others_than_the_callers(rig: Rig) -> None:
    caller = Caller("web", (Scope(("read",), ("shop", "gone")),), "127.0.0.1")
    with pytest.raises(NotFound, match=r"dataset 'gone' does not exist; this publisher serves: shop$"):
        with_accounts(rig).get(caller, encode(ReadRange(dataset="gone")))
