"""A subscription against a publisher that follows the test's script, over real Flight."""

from __future__ import annotations

import subprocess
import sys
import threading
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.subscriber.recorder import LIMIT_S, Recorder

import tailrace
from tailrace.errors import (
    AcknowledgementRefused,
    ApplicationDiffers,
    ApplicationFailed,
    CredentialRefused,
    Fenced,
    LogCorrupt,
    MarkersNotSaved,
    ProtocolMismatch,
    Unavailable,
    VersionTooNew,
)
from tailrace.runtime.backoff import Backoff
from tailrace.subscriber import ErrorPolicy, Subscription, SubscriptionEnded
from tailrace.testing.clock import ManualClock
from tailrace.testing.scripted_publisher import LINE, ScriptedPublisher, Session, updates
from tailrace.updates.batch import Update
from tailrace.updates.position import Checkpoint, Position
from tailrace.wire.callers import Scope
from tailrace.wire.credentials import Credentials, issue_credential
from tailrace.wire.messages import (
    Acknowledge,
    Alive,
    BuryDead,
    DataLoss,
    DeadDone,
    Goodbye,
    Hello,
    HelloReply,
    Leave,
    Redelivery,
    Revoked,
    Updates,
)

SOON = Backoff(first_s=0.001, limit_s=0.01)


@pytest.fixture
def publisher() -> Iterator[ScriptedPublisher]:
    with ScriptedPublisher() as running:
        yield running


@pytest.fixture
def application() -> Recorder:
    return Recorder()


@pytest.fixture
def subscription(publisher: ScriptedPublisher, application: Recorder) -> Iterator[Subscription]:
    with started(publisher, application) as running:
        yield running


def started(
    publisher: ScriptedPublisher, application: tailrace.Application, name: str = "cache", **options: Any
) -> Subscription:
    return tailrace.subscribe(publisher.url, application, application=name, **{"reconnect": SOON, **options})


@pytest.fixture
def session(publisher: ScriptedPublisher, subscription: Subscription) -> Session:
    """The first stream, opened for shards 0 and 1."""
    arrived = publisher.subscriber()
    arrived.open([0, 1])
    return arrived


# ---- delivery -----------------------------------------------------------------------------------------------------


def test_updates_arrive_in_order_after_the_notices_of_their_shards(session: Session, application: Recorder) -> None:
    session.send(updates((0, 1), (1, 2)))
    session.send(updates((0, 3)))
    application.until("processed", [3])
    assert application.calls == [
        ("notice", 0),
        ("notice", 1),
        ("updates", [1, 2]),
        ("processed", [1, 2]),
        ("updates", [3]),
        ("processed", [3]),
    ]


def test_a_batch_names_its_line_epoch_and_place(publisher: ScriptedPublisher, application: Recorder) -> None:
    with started(publisher, application):
        session = publisher.subscriber()
        session.open(epoch=7)
        session.send(updates((0, 1)), through=5)
        application.until("processed")
    batch = application.batches[0]
    assert (batch.line, batch.epoch, batch.through, batch.redelivered) == ("shop", 7, Position(0, 5), False)


def test_single_updates_arrive_through_the_simpler_callback(publisher: ScriptedPublisher) -> None:
    seen: list[tuple[bytes, bytes | None]] = []
    enough = threading.Event()

    class Simple(tailrace.Application):
        def on_update(self, update: Update) -> None:
            seen.append((update.key, update["value"]))
            if len(seen) == 3:
                enough.set()

    with started(publisher, Simple()):
        session = publisher.subscriber()
        session.open()
        session.send(updates((0, 1), (0, 2)))
        session.send(updates((0, 3)))
        assert enough.wait(LIMIT_S)
    assert seen == [(b"1", b"v"), (b"2", b"v"), (b"3", b"v")]


def test_repeats_within_a_session_are_dropped(session: Session, application: Recorder) -> None:
    session.send(updates((0, 1), (1, 2)))
    session.send(updates((0, 1), (1, 2)))
    session.send(updates((1, 2), (1, 3)))
    application.until("processed", [3])
    assert application.made("updates") == [[1, 2], [3]]


def test_progress_is_told_even_where_nothing_matched(
    session: Session, publisher: ScriptedPublisher, subscription: Subscription
) -> None:
    session.heartbeat(through=40)
    publisher.heard(Alive, such=lambda alive: alive.progress == Position(0, 40))
    assert subscription.status.progress == Position(0, 40)


def test_progress_waits_for_the_application(
    session: Session, publisher: ScriptedPublisher, application: Recorder
) -> None:
    application.hold = threading.Event()
    session.send(updates((0, 1)))
    application.until("updates")
    session.heartbeat(through=9)
    publisher.heard(Alive)
    assert [alive.progress for alive in publisher.heard(Alive)] == [None]
    application.hold.set()
    publisher.heard(Alive, such=lambda alive: alive.progress == Position(0, 9))


def test_the_status_tells_where_it_stands(session: Session, application: Recorder, subscription: Subscription) -> None:
    session.send(updates((0, 1), (1, 2)))
    session.token(1, through=2)
    application.until("token")
    status = subscription.status
    assert (status.state, status.session, status.epoch, status.shards) == ("live", "session-1", 1, (0, 1))
    assert (status.line, status.updates, status.sessions) == ("shop", 2, 1)


# ---- tokens -------------------------------------------------------------------------------------------------------


def test_a_token_is_acknowledged_after_the_updates_before_it(
    session: Session, publisher: ScriptedPublisher, application: Recorder
) -> None:
    application.hold = threading.Event()
    session.send(updates((0, 1)))
    session.token(7, through=1)
    application.until("updates")
    assert not [each for each in publisher.heard_all if isinstance(each, Acknowledge)]
    application.hold.set()
    assert publisher.heard(Acknowledge) == [Acknowledge("session-1", 1, 7)]
    assert application.tokens[0].position == Position(0, 1)


def test_a_deferred_token_is_acknowledged_when_the_application_says_so(
    session: Session, publisher: ScriptedPublisher, application: Recorder, subscription: Subscription
) -> None:
    application.token_answer = False
    session.token(7, through=1)
    session.send(updates((0, 2)))
    application.until("processed", [2])
    assert not [each for each in publisher.heard_all if isinstance(each, Acknowledge)]
    subscription.acknowledge(application.tokens[0])
    assert publisher.heard(Acknowledge) == [Acknowledge("session-1", 1, 7)]


def test_a_deferring_application_is_not_acknowledged_for_on_close(
    session: Session, publisher: ScriptedPublisher, application: Recorder, subscription: Subscription
) -> None:
    application.token_answer = False
    session.send(updates((0, 1)))
    session.token(7, through=1)
    application.until("token")
    subscription.close()
    publisher.heard(Leave)
    assert not [each for each in publisher.heard_all if isinstance(each, Acknowledge)]


def test_closing_asks_the_application_for_a_last_token(
    session: Session, publisher: ScriptedPublisher, application: Recorder, subscription: Subscription
) -> None:
    application.token_answer = False  # and no token came before
    session.send(updates((0, 1)))
    application.until("processed")
    publisher.heard(Alive, such=lambda alive: alive.progress == Position(0, 1))
    subscription.close()
    publisher.heard(Leave)
    assert [(token.number, token.position) for token in application.tokens] == [(0, Position(0, 1))]
    assert not [each for each in publisher.heard_all if isinstance(each, Acknowledge)]


def test_a_last_token_that_fails_does_not_keep_it_from_leaving(
    session: Session, publisher: ScriptedPublisher, application: Recorder, subscription: Subscription
) -> None:
    def failing(token: tailrace.Token) -> bool:
        raise OSError("disk")

    application.on_token = failing  # type: ignore[method-assign]
    session.send(updates((0, 1)))
    publisher.heard(Alive, such=lambda alive: alive.progress == Position(0, 1))
    subscription.close()
    assert subscription.status.state == "closed"
    assert not [each for each in publisher.heard_all if isinstance(each, Acknowledge)]


def test_a_token_of_a_session_that_is_over_is_refused_here(
    session: Session, publisher: ScriptedPublisher, application: Recorder, subscription: Subscription
) -> None:
    application.token_answer = False
    session.token(7, through=1)
    application.until("token")
    session.end()
    publisher.subscriber().open([0, 1])
    application.until("notice", 1)
    publisher.heard(Alive, such=lambda alive: alive.session == "session-2")
    with pytest.raises(AcknowledgementRefused, match="session session-1, which is over"):
        subscription.acknowledge(application.tokens[0])


def test_the_application_may_choose_its_own_place(
    session: Session, publisher: ScriptedPublisher, application: Recorder, subscription: Subscription
) -> None:
    session.send(updates((0, 1), (0, 2)))
    session.token(1, through=2)
    application.until("token")
    subscription.acknowledge_through(Position(0, 1))
    asked = publisher.heard(Acknowledge, such=lambda each: each.checkpoint is not None)
    assert asked == [Acknowledge("session-1", 1, 0, Checkpoint(Position(0, 1), None))]


def test_a_place_that_was_not_reached_is_refused_here(
    session: Session, application: Recorder, subscription: Subscription
) -> None:
    session.send(updates((0, 1)))
    session.token(1, through=1)
    application.until("token")
    with pytest.raises(AcknowledgementRefused, match="position 0:5:0"):
        subscription.acknowledge_through(Position(0, 5))


def test_without_a_connection_an_acknowledgement_is_refused(application: Recorder) -> None:
    token = tailrace.Token(1, "s", "shop", (0,), Position(0, 1))
    refused = pytest.raises(AcknowledgementRefused, match="no connection")
    with tailrace.subscribe("tailrace://127.0.0.1:1/shop", application, application="cache") as subscription, refused:
        subscription.acknowledge(token)


def test_delivery_goes_on_when_markers_cannot_be_saved(
    session: Session, publisher: ScriptedPublisher, application: Recorder
) -> None:
    publisher.answers["Acknowledge"] = MarkersNotSaved(path="/data", reason="no space left")
    session.send(updates((0, 1)))
    session.token(1, through=1)
    session.send(updates((0, 2)))
    application.until("processed", [2])
    publisher.answers.clear()
    session.token(2, through=2)
    publisher.heard(Acknowledge, such=lambda each: each.token == 2)


def test_closing_acknowledges_what_was_processed_and_leaves(
    session: Session, publisher: ScriptedPublisher, application: Recorder, subscription: Subscription
) -> None:
    session.send(updates((0, 1)), through=3)
    application.until("processed")
    publisher.heard(Alive, such=lambda alive: alive.progress == Position(0, 3))
    subscription.close()
    assert publisher.heard(Acknowledge) == [Acknowledge("session-1", 1, 0, Checkpoint(Position(0, 3), None))]
    assert publisher.heard(Leave) == [Leave("session-1")]
    assert subscription.wait(0)
    assert subscription.failed is None
    assert subscription.status.state == "closed"


def test_closing_lets_a_callback_finish_and_calls_no_other(
    session: Session, publisher: ScriptedPublisher, application: Recorder, subscription: Subscription
) -> None:
    application.hold = threading.Event()
    session.send(updates((0, 1)))
    session.send(updates((0, 2)))
    application.until("updates")
    subscription.stop()
    application.hold.set()
    subscription.close()
    assert application.made("updates") == [[1]]
    assert publisher.heard(Acknowledge)[0].checkpoint == Checkpoint(Position(0, 1), None)


def test_a_callback_may_close_its_own_subscription(publisher: ScriptedPublisher) -> None:
    class Once(Recorder):
        def on_updates(self, batch: tailrace.UpdateBatch) -> None:
            super().on_updates(batch)
            running[0].close()

    application = Once()
    running = [started(publisher, application)]
    session = publisher.subscriber()
    session.open()
    session.send(updates((0, 1)))
    session.send(updates((0, 2)))
    assert running[0].wait(LIMIT_S)
    assert application.made("processed") == [[1]]


def test_closing_does_not_wait_for_a_stream_that_does_not_open(
    publisher: ScriptedPublisher, application: Recorder
) -> None:
    opening, released = threading.Event(), threading.Event()

    def stuck(caller: object, ticket: bytes) -> Any:
        opening.set()
        assert released.wait(LIMIT_S)
        raise Unavailable(reason="too late")

    publisher.get = stuck  # type: ignore[method-assign]
    with started(publisher, application) as subscription:
        assert opening.wait(LIMIT_S)
        subscription.close()
        assert subscription.wait(0)
        released.set()


# ---- notices ------------------------------------------------------------------------------------------------------


def test_data_loss_is_told_per_shard_and_then_acknowledged(
    session: Session, publisher: ScriptedPublisher, application: Recorder
) -> None:
    session.say(DataLoss(3, LINE, [0, 1], Position(0, 1), Position(0, 9), "truncated"))
    assert publisher.heard(Acknowledge) == [Acknowledge("session-1", 1, 3)]
    assert application.made("loss") == [(0, 1, 9, "truncated"), (1, 1, 9, "truncated")]


def test_data_loss_that_the_application_does_not_take_is_not_acknowledged(publisher: ScriptedPublisher) -> None:
    class Careful(Recorder):
        def on_data_loss(self, shard: int, after: Position, until: Position, reason: str) -> None:
            raise tailrace.StopSubscription("rebuild me first")

    with started(publisher, Careful()) as subscription:
        session = publisher.subscriber()
        session.open()
        session.say(DataLoss(3, LINE, [0], Position(0, 1), Position(0, 9), "truncated"))
        with pytest.raises(ApplicationFailed, match="rebuild me first"):
            subscription.wait(LIMIT_S)
    assert not [each for each in publisher.heard_all if isinstance(each, Acknowledge)]


def test_after_a_loss_another_history_may_begin_at_positions_that_came_before(
    session: Session, application: Recorder
) -> None:
    session.send(updates((0, 1), (0, 9)))
    session.say(DataLoss(3, LINE, [0], Position(0, 0), Position(0, 9), "another history; everything comes again"))
    session.send(updates((0, 1), (0, 2)))
    session.send(updates((0, 10)))
    application.until("processed", [10])
    assert application.made("updates") == [[1, 9], [1, 2], [10]]


def test_a_revoked_shard_is_finished_told_and_acknowledged(
    session: Session, publisher: ScriptedPublisher, application: Recorder, subscription: Subscription
) -> None:
    session.send(updates((0, 1), (1, 2)))
    session.say(Revoked(5, LINE, [1], Checkpoint(Position(0, 2), None)))
    assert publisher.heard(Acknowledge) == [Acknowledge("session-1", 1, 5)]
    assert application.calls[2:] == [("updates", [1, 2]), ("processed", [1, 2]), ("revoked", 1)]
    assert subscription.status.shards == (0,)


def test_a_standby_waits_and_then_receives(publisher: ScriptedPublisher, application: Recorder) -> None:
    with started(publisher, application) as subscription:
        session = publisher.subscriber()
        session.open([], standby=True)
        publisher.heard(Alive)
        assert subscription.status.state == "standby"
        session.heartbeat(through=0)
        session.open([0, 1], after=4)
        session.send(updates((0, 5)))
        application.until("processed", [5])
        assert subscription.status.state == "live"
    assert application.calls[:2] == [("notice", 0), ("notice", 1)]


def test_coming_back_as_a_standby_revokes_what_was_held(
    session: Session, publisher: ScriptedPublisher, application: Recorder
) -> None:
    session.heartbeat(1)
    application.until("notice", 1)
    session.end()
    publisher.subscriber().open([], standby=True)
    application.until("revoked", 1)
    assert application.made("revoked") == [0, 1]


def test_dead_letters_come_again_and_their_outcome_is_told(
    session: Session, publisher: ScriptedPublisher, application: Recorder
) -> None:
    session.send(updates((0, 50)))
    application.fails = lambda sequence: sequence == 3
    session.say(Redelivery([11, 12]), updates((0, 2), (0, 3)))
    (told,) = publisher.heard(DeadDone)
    assert (told.done, list(told.failed)) == ([11], [12])
    assert told.failed[12].startswith("ValueError: cannot take 3\n")
    assert application.batches[-1].redelivered


# ---- sessions one after another -----------------------------------------------------------------------------------


def test_it_comes_back_after_a_broken_stream_and_takes_repeats(
    session: Session, publisher: ScriptedPublisher, application: Recorder, subscription: Subscription
) -> None:
    session.send(updates((0, 1), (0, 2)))
    application.until("processed", [1, 2])
    session.end()
    again = publisher.subscriber()
    assert again.ask.subscriber == session.ask.subscriber
    again.open([0, 1])
    again.send(updates((0, 2), (0, 3)))
    again.send(updates((0, 4)))
    application.until("processed", [4])
    assert application.made("updates") == [[1, 2], [2, 3], [4]]
    assert [batch.redelivered for batch in application.batches] == [False, True, False]
    assert application.made("notice") == [0, 1]
    assert subscription.status.sessions == 2


def test_what_another_process_was_sent_before_is_marked_as_redelivered(
    publisher: ScriptedPublisher, application: Recorder, subscription: Subscription
) -> None:
    session = publisher.subscriber()
    session.open([0], sent_before=2)
    session.send(updates((0, 1), (0, 2)))
    session.send(updates((0, 3)))
    application.until("processed", [3])
    assert [batch.redelivered for batch in application.batches] == [True, False]


def test_sessions_that_soon_fail_are_ever_further_apart(publisher: ScriptedPublisher, application: Recorder) -> None:
    clock = ManualClock()
    patient = Backoff(first_s=1.0, limit_s=64.0)
    came_at: list[float] = []
    with started(publisher, application, clock=clock, reconnect=patient) as subscription:
        for number in range(4):
            session = until_back(publisher, clock)
            came_at.append(clock.monotonic())
            session.open()
            session.send(updates((0, 1)))  # each of them brings something
            session.fail(Unavailable(reason=f"failed {number}"))
            while subscription.status.last_error != f"failed {number}":
                assert not subscription.wait(0.005)
    assert came_at[3] - came_at[2] > came_at[1] - came_at[0]


@pytest.mark.parametrize("ending", [Unavailable(reason="starting"), Fenced(what="x", reason="y"), Goodbye("moving")])
def test_it_comes_back_after_an_end_that_may_mend(
    session: Session, publisher: ScriptedPublisher, application: Recorder, ending: Any
) -> None:
    session.say(ending) if isinstance(ending, Goodbye) else session.fail(ending)
    again = publisher.subscriber()
    again.open()
    again.send(updates((0, 1)))
    application.until("processed", [1])


def test_it_goes_to_a_peer_that_it_learnt_of(application: Recorder) -> None:
    with (
        ScriptedPublisher() as peer,
        ScriptedPublisher(peers=[peer.server.address]) as first,
        started(first, application) as subscription,
    ):
        session = first.subscriber()
        session.open()
        session.send(updates((0, 1)))
        application.until("processed", [1])
        first.server.shutdown()
        there = peer.subscriber()
        there.open(epoch=2)
        there.send(updates((0, 2)))
        application.until("processed", [2])
        assert subscription.status.address == peer.server.address


@pytest.mark.parametrize("peer", ["nonsense", "127.0.0.1:nonsense", "db1.example:7400"])
def test_a_peer_that_cannot_be_used_is_passed_over(tmp_path: Path, application: Recorder, peer: str) -> None:
    path = tmp_path / "credentials.json"
    token = issue_credential(path, "web", [Scope(("subscribe",))])
    with (
        ScriptedPublisher(credentials=Credentials(path), peers=[peer]) as publisher,
        started(publisher, application, credential=token),
    ):
        publisher.subscriber().end()
        again = publisher.subscriber()
        again.open()
        again.send(updates((0, 1)))
        application.until("processed", [1])


def test_it_keeps_trying_while_nobody_is_there(application: Recorder) -> None:
    with ScriptedPublisher() as publisher:
        url = publisher.url
    with tailrace.subscribe(url, application, application="cache", reconnect=SOON) as subscription:
        assert not subscription.wait(0.05)
        assert subscription.failed is None
        assert subscription.status.state == "connecting"


def test_an_older_owner_is_not_believed_after_a_newer_one(publisher: ScriptedPublisher, application: Recorder) -> None:
    with started(publisher, application):
        session = publisher.subscriber()
        session.open(epoch=5)
        session.send(updates((0, 1)))
        application.until("processed", [1])
        session.end()
        stale = publisher.subscriber()
        stale.open(epoch=4)
        stale.send(updates((0, 2)))
        current = publisher.subscriber()
        current.open(epoch=5)
        current.send(updates((0, 3)))
        application.until("processed", [3])
    assert application.made("updates") == [[1], [3]]


@pytest.mark.parametrize(
    "error",
    [
        ApplicationDiffers(application="cache", difference="filter", remedy="rename it"),
        LogCorrupt(path="000004.log", offset=17, reason="checksum"),
    ],
)
def test_a_permanent_error_ends_it_and_is_raised_by_wait(
    publisher: ScriptedPublisher, application: Recorder, error: Exception
) -> None:
    publisher.refusal = error  # type: ignore[assignment]
    with started(publisher, application) as subscription, pytest.raises(type(error)) as caught:
        subscription.wait(LIMIT_S)
    assert str(caught.value) == str(error)
    assert subscription.failed is caught.value
    assert subscription.status.state == "failed"
    assert "gRPC" not in "".join(traceback.format_exception(caught.value))


def test_a_permanent_error_in_mid_stream_ends_it_after_what_came_before(
    session: Session, application: Recorder, subscription: Subscription
) -> None:
    session.send(updates((0, 1)))
    session.fail(LogCorrupt(path="000004.log", offset=17, reason="checksum"))
    with pytest.raises(LogCorrupt, match="offset 17"):
        subscription.wait(LIMIT_S)
    assert application.made("processed") == [[1]]


def test_a_goodbye_for_good_ends_it(session: Session, subscription: Subscription) -> None:
    session.say(Goodbye("the application was dropped", retry=False))
    with pytest.raises(SubscriptionEnded, match="the application was dropped"):
        subscription.wait(LIMIT_S)


def test_a_message_of_an_unknown_kind_ends_it(
    session: Session, application: Recorder, subscription: Subscription
) -> None:
    session.say_raw(b"\x81\xa4kind\xa7Newborn", updates((0, 1)))
    with pytest.raises(ProtocolMismatch, match="Newborn"):
        subscription.wait(LIMIT_S)
    assert application.made("updates") == []


def test_updates_before_the_stream_was_opened_end_it(publisher: ScriptedPublisher, application: Recorder) -> None:
    with started(publisher, application) as subscription:
        publisher.subscriber().send(updates((0, 1)))
        with pytest.raises(ProtocolMismatch, match="not opened"):
            subscription.wait(LIMIT_S)


def test_updates_out_of_order_end_it(session: Session, subscription: Subscription) -> None:
    session.say(Updates(LINE, Position(0, 9)), updates((0, 5), (0, 4)))
    with pytest.raises(ProtocolMismatch, match="out of order"):
        subscription.wait(LIMIT_S)


def test_a_publisher_that_speaks_only_newer_protocols_ends_it(
    publisher: ScriptedPublisher, application: Recorder
) -> None:
    publisher.answers["Hello"] = HelloReply(9, 8, "tailrace 9", [], [])
    with started(publisher, application) as subscription, pytest.raises(VersionTooNew, match="format version 8"):
        subscription.wait(LIMIT_S)


# ---- credentials --------------------------------------------------------------------------------------------------


def test_a_credential_opens_what_its_scope_names(tmp_path: Path, application: Recorder) -> None:
    path = tmp_path / "credentials.json"
    token = issue_credential(path, "web", [Scope(("subscribe",), ("shop",), ("cache",))])
    with ScriptedPublisher(credentials=Credentials(path)) as publisher:
        with started(publisher, application, credential=token):
            session = publisher.subscriber()
            assert session.caller.name == "web"
            session.open()
            session.send(updates((0, 1)))
            application.until("processed", [1])
        lacking = pytest.raises(CredentialRefused, match="'subscribe' on dataset 'shop' for application 'lake'")
        with started(publisher, application, "lake", credential=token) as refused, lacking:
            refused.wait(LIMIT_S)


@pytest.mark.parametrize("wrong", [None, "web.wrong"])
def test_a_wrong_credential_ends_it(tmp_path: Path, application: Recorder, wrong: str | None) -> None:
    path = tmp_path / "credentials.json"
    issue_credential(path, "web", [Scope(("subscribe",))])
    with (
        ScriptedPublisher(credentials=Credentials(path)) as publisher,
        started(publisher, application, credential=wrong) as subscription,
        pytest.raises(CredentialRefused),
    ):
        subscription.wait(LIMIT_S)


# ---- error policies -----------------------------------------------------------------------------------------------


def test_an_application_that_fails_stops_its_subscription_by_default(
    session: Session, publisher: ScriptedPublisher, application: Recorder, subscription: Subscription
) -> None:
    application.fails = lambda sequence: sequence == 2
    session.send(updates((0, 1), (0, 2), (0, 3)))
    session.token(1, through=3)
    with pytest.raises(ApplicationFailed, match="shop@0:2:0: ValueError"):
        subscription.wait(LIMIT_S)
    assert publisher.heard(Leave) == [Leave("session-1")]
    assert not [each for each in publisher.heard_all if isinstance(each, Acknowledge)]


def test_a_session_that_ends_under_a_callback_is_no_failure_of_the_application(publisher: ScriptedPublisher) -> None:
    class AcknowledgesItself(Recorder):
        def on_updates(self, batch: tailrace.UpdateBatch) -> None:
            super().on_updates(batch)
            running[0].acknowledge_through(Position(0, 0))

    publisher.answers["Acknowledge"] = Fenced(what="session session-1", reason="its flows are elsewhere")
    application = AcknowledgesItself()
    running = [started(publisher, application)]
    with running[0]:
        session = publisher.subscriber()
        session.open()
        session.send(updates((0, 1)))
        publisher.heard(Acknowledge)
        publisher.answers.clear()
        again = publisher.subscriber()
        again.open()
        again.send(updates((0, 1)))
        application.until("processed", [1], count=2)


def test_dead_letters_are_buried_before_anything_later_is_acknowledged(
    publisher: ScriptedPublisher, application: Recorder
) -> None:
    application.fails = lambda sequence: sequence in (2, 3)
    policy = ErrorPolicy(retries=1, then="dead-letter", backoff=SOON)
    with started(publisher, application, error_policy=policy):
        session = publisher.subscriber()
        session.open()
        session.send(updates((0, 1), (0, 2), (0, 3), (0, 4)))
        session.token(1, through=4)
        publisher.heard(Acknowledge)
    ups = [each for each in publisher.heard_all if isinstance(each, BuryDead | Acknowledge)]
    assert [type(each) for each in ups][:2] == [BuryDead, Acknowledge]
    buried = ups[0]
    assert isinstance(buried, BuryDead)
    with pa.ipc.open_stream(buried.updates) as reader:
        assert reader.read_all()["sequence"].to_pylist() == [2, 3]
    assert [error.splitlines()[0] for error in buried.errors] == [
        "ValueError: cannot take 2",
        "ValueError: cannot take 3",
    ]
    assert buried.attempts == 2
    assert application.made("processed") == [[1], [4]]


def test_a_batch_whose_dead_letters_are_not_safe_comes_again(
    publisher: ScriptedPublisher, application: Recorder
) -> None:
    application.fails = lambda sequence: sequence == 1
    publisher.answers["BuryDead"] = Unavailable(reason="the disk is full")
    with started(publisher, application, error_policy=ErrorPolicy(then="dead-letter")):
        session = publisher.subscriber()
        session.open()
        session.send(updates((0, 1)))
        session.token(1, through=1)
        again = publisher.subscriber()
        assert not [each for each in publisher.heard_all if isinstance(each, Acknowledge)]
        publisher.answers.clear()
        again.open()
        again.send(updates((0, 1)))
        again.token(1, through=1)
        publisher.heard(Acknowledge)
        assert len(publisher.heard(BuryDead, 2)) == 2


def test_retries_wait_and_close_ends_their_waiting(publisher: ScriptedPublisher, application: Recorder) -> None:
    application.fails = lambda sequence: True
    patient = ErrorPolicy(retries=None, backoff=Backoff(first_s=3600.0, limit_s=3600.0))
    with started(publisher, application, error_policy=patient) as subscription:
        session = publisher.subscriber()
        session.open()
        session.send(updates((0, 1)))
        application.until("updates", [1])
    assert subscription.status.state == "closed"
    assert application.made("processed") == []


def test_the_status_names_an_update_that_is_tried_again(publisher: ScriptedPublisher, application: Recorder) -> None:
    application.fails = lambda sequence: True
    with started(publisher, application, error_policy=ErrorPolicy(retries=None, backoff=SOON)) as subscription:
        session = publisher.subscriber()
        session.open()
        session.send(updates((0, 7)))
        application.until("updates", [7], count=3)
        said = subscription.status.last_error
    attempt, failed = said.split(": ", 1)
    assert attempt in ("attempt 2", "attempt 3")
    assert failed == "application 'cache' failed on shop@0:7:0: ValueError: cannot take 7"


# ---- leases -------------------------------------------------------------------------------------------------------


def test_what_is_held_when_the_lease_runs_out_is_discarded(publisher: ScriptedPublisher, application: Recorder) -> None:
    clock = ManualClock()
    application.hold = threading.Event()
    with started(publisher, application, clock=clock):
        session = publisher.subscriber()
        session.open(lease_s=5.0)
        session.send(updates((0, 1)))
        session.send(updates((0, 2)))
        application.until("updates", [1])
        publisher.answers["Alive"] = Unavailable(reason="partitioned")
        clock.advance(5.5)
        application.hold.set()
        again = until_back(publisher, clock)
        publisher.answers.clear()
        again.open(lease_s=5.0)
        again.send(updates((0, 3)))
        application.until("processed", [3])
    assert application.made("updates") == [[1], [3]]


def until_back(publisher: ScriptedPublisher, clock: ManualClock) -> Session:
    """The reconnect's pause is waited for on the manual clock."""
    arrived: list[Session] = []
    waiter = threading.Thread(target=lambda: arrived.append(publisher.subscriber()))
    waiter.start()
    while waiter.is_alive():
        clock.advance(0.05)
        waiter.join(0.01)
    return arrived[0]


def test_a_refused_sign_of_life_ends_the_session(publisher: ScriptedPublisher, application: Recorder) -> None:
    publisher.answers["Alive"] = Fenced(what="session session-1", reason="its flows are elsewhere")
    with started(publisher, application) as subscription:
        session = publisher.subscriber()
        session.open()
        publisher.heard(Alive)
        publisher.answers.clear()
        publisher.subscriber().open()
        application.until("notice", 0)
        assert "its flows are elsewhere" in subscription.status.last_error


def test_a_sign_of_life_that_is_refused_for_good_ends_it_without_a_word_of_the_cancelled_stream(
    publisher: ScriptedPublisher, application: Recorder
) -> None:
    publisher.answers["Alive"] = CredentialRefused(reason="revoked")
    with started(publisher, application) as subscription:
        publisher.subscriber().open()
        with pytest.raises(CredentialRefused, match="revoked") as caught:
            subscription.wait(LIMIT_S)
    assert "gRPC" not in "".join(traceback.format_exception(caught.value))


def test_a_stream_on_which_nothing_comes_is_given_up(publisher: ScriptedPublisher, application: Recorder) -> None:
    clock = ManualClock()
    with started(publisher, application, clock=clock):
        session = publisher.subscriber()
        session.open(lease_s=5.0)
        publisher.heard(Alive)
        again = until_back(publisher, clock)  # signs of life are answered all along; the stream alone is dead
        again.open()
        application.until("notice", 0)


def test_a_process_that_forgets_to_close_ends_all_the_same(publisher: ScriptedPublisher) -> None:
    program = (
        "import sys, threading, tailrace\n"
        "got = threading.Event()\n"
        "class Printer(tailrace.Application):\n"
        "    def on_updates(self, batch): got.set()\n"
        "subscription = tailrace.subscribe(sys.argv[1], Printer(), application='cache')\n"
        "assert got.wait(15)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", program, publisher.url])
    try:
        session = publisher.subscriber()
        session.open()
        session.send(updates((0, 1)))
        assert process.wait(15) == 0
    finally:
        process.kill()
        process.wait()
    assert publisher.heard(Leave) == [Leave("session-1")]


def test_hello_comes_first(publisher: ScriptedPublisher, session: Session) -> None:
    assert isinstance(publisher.heard_all[0], Hello)
