"""What one application may rely on: order, no hole, durable markers, one subscriber at a time, losses said aloud."""

from __future__ import annotations

import sqlite3
import threading

import msgspec
import pytest

from tailrace.errors import (
    AcknowledgementRefused,
    ApplicationDiffers,
    Fenced,
    FilterInvalid,
    LogCorrupt,
    MarkersNotSaved,
    PositionInvalid,
    Unavailable,
)
from tailrace.publisher.dead import to_ipc
from tailrace.publisher.ledger import open_ledger
from tailrace.publisher.markers import MarkerStore
from tailrace.publisher.status import application_status
from tailrace.sources.interface import Bounds
from tailrace.testing.memory_source import MemorySource, rows
from tailrace.updates.position import START, Checkpoint, Position
from tailrace.wire.messages import Acknowledge, Alive, DataLoss, Goodbye, Leave, Opened, Redelivery, Token, Updates
from tests.publisher.conftest import DEADLINE_S, Listener, Rig, append_behind_gap


def acknowledge(rig: Rig, listener: Listener, token: int, **more: object) -> None:
    ask = Acknowledge(session=listener.stream.session, epoch=rig.epoch, token=token, **more)  # type: ignore[arg-type]
    rig.publisher.acknowledge(ask)


def test_updates_come_in_log_order(rig: Rig) -> None:
    rig.source.append(5)
    rig.source.append(5)
    assert rig.subscribe().sequences(10) == list(range(1, 11))


def test_an_application_that_starts_at_latest_gets_only_what_is_new(rig: Rig) -> None:
    rig.source.append(5)
    listener = rig.subscribe(start="latest")
    listener.next(Opened)
    rig.source.append(2)
    assert listener.sequences(7) == [6, 7]


def test_an_application_that_starts_at_latest_keeps_that_place_until_its_first_acknowledgement(rig: Rig) -> None:
    rig.source.append(5)
    rig.subscribe(start="latest").next(Opened)
    rig.source.append(2)
    rig.restart()
    assert rig.subscribe(start="latest").sequences(7) == [6, 7]


def test_a_start_may_be_a_position_of_the_line(rig: Rig) -> None:
    rig.source.append(3)
    rig.source.append(3)
    assert rig.subscribe(start="memory@0:3:0").sequences(6) == [4, 5, 6]
    with pytest.raises(PositionInvalid, match="line is 'memory'"):
        rig.subscribe("other", start="elsewhere@0:3:0")
    with pytest.raises(PositionInvalid, match="past the head"):
        rig.subscribe("other", start="memory@0:7:0")


def test_an_acknowledged_token_is_where_the_next_session_starts(rig: Rig) -> None:
    rig.source.append(3)
    first = rig.subscribe()
    _, token = first.seen(Token)
    assert isinstance(token, Token)
    acknowledge(rig, first, token.token)
    rig.source.append(2)
    rig.restart()
    assert rig.subscribe().sequences(5) == [4, 5]


def test_what_was_not_acknowledged_comes_again(rig: Rig) -> None:
    rig.source.append(3)
    rig.subscribe().seen(Token)
    rig.restart()
    assert rig.subscribe().sequences(3) == [1, 2, 3]


def test_a_session_is_told_how_far_those_before_it_got(rig: Rig) -> None:
    def new_session() -> tuple[Listener, Position | None]:
        listener = rig.subscribe()
        _, opened = listener.next(Opened)
        assert isinstance(opened, Opened)
        return listener, opened.sent_before

    rig.source.append(3)
    first, before = new_session()
    assert before == START
    first.sequences(3)
    rig.source.append(2)
    assert new_session()[1] == Position(0, 3, 0)
    rig.restart()
    assert new_session()[1] == Position(0, 5, 0)  # the publisher before may have sent all that the log held
    rig.source.append(1)
    assert new_session()[1] == Position(0, 5, 0)


def test_an_acknowledgement_is_answered_only_once_the_marker_is_durable(rig: Rig) -> None:
    rig.source.append(3)
    listener = rig.subscribe()
    _, token = listener.seen(Token)
    held, answered = threading.Event(), threading.Event()
    rig.before_commit = lambda: held.wait(10) and None

    def send() -> None:
        assert isinstance(token, Token)
        acknowledge(rig, listener, token.token)
        answered.set()

    thread = threading.Thread(target=send)
    thread.start()
    assert not answered.wait(0.2)
    rig.publisher.alive(Alive(session=listener.stream.session))  # a slow disk costs nobody's lease
    rig.publisher.tick()
    held.set()
    assert answered.wait(10)
    thread.join(10)


def test_a_full_disk_stops_markers_and_not_delivery(rig: Rig) -> None:
    rig.source.append(3)
    listener = rig.subscribe()
    _, token = listener.seen(Token)
    assert isinstance(token, Token)

    def full() -> None:
        raise sqlite3.OperationalError("database or disk is full")

    rig.before_commit = full
    with pytest.raises(MarkersNotSaved, match="full"):
        acknowledge(rig, listener, token.token)
    rig.source.append(2)
    assert listener.sequences(5) == [4, 5]
    assert rig.publisher.application("app").acknowledged == Position(0, 0)
    rig.before_commit = None
    acknowledge(rig, listener, token.token)
    assert rig.publisher.application("app").acknowledged == Position(0, 3)
    _, later = listener.seen(Token)
    assert isinstance(later, Token)
    acknowledge(rig, listener, later.token)
    assert rig.publisher.application("app").acknowledged == Position(0, 5)


def test_an_acknowledgement_of_something_never_sent_is_refused_and_named(rig: Rig) -> None:
    rig.source.append(3)
    listener = rig.subscribe()
    listener.sequences(3)
    with pytest.raises(AcknowledgementRefused, match="token 99"):
        acknowledge(rig, listener, 99)
    with pytest.raises(AcknowledgementRefused, match="0:4:0"):
        acknowledge(rig, listener, 0, checkpoint=Checkpoint(Position(0, 4), None))


def test_a_subscriber_may_choose_what_it_acknowledges(rig: Rig) -> None:
    rig.source.append(3)
    rig.source.append(3)
    listener = rig.subscribe()
    listener.next(Opened)
    listener.sequences(6)
    acknowledge(rig, listener, 0, checkpoint=Checkpoint(Position(0, 6), None))
    rig.restart()
    rig.source.append(1)
    assert rig.subscribe().sequences(7) == [7]


def test_an_acknowledgement_with_another_epoch_is_refused(rig: Rig) -> None:
    rig.source.append(3)
    listener = rig.subscribe()
    _, token = listener.seen(Token)
    assert isinstance(token, Token)
    with pytest.raises(AcknowledgementRefused, match="epoch"):
        rig.publisher.acknowledge(Acknowledge(session=listener.stream.session, epoch=7, token=token.token))


def test_a_second_subscriber_stands_by_until_the_first_leaves(rig: Rig) -> None:
    rig.source.append(3)
    first, second = rig.subscribe(subscriber="one"), rig.subscribe(subscriber="two")
    assert first.sequences(3) == [1, 2, 3]
    _, opened = second.next(Opened)
    assert isinstance(opened, Opened)
    assert opened.standby
    rig.publisher.leave(Leave(session=first.stream.session))
    assert second.sequences(3) == [1, 2, 3]


def test_a_subscriber_that_stands_by_can_acknowledge_nothing(rig: Rig) -> None:
    rig.source.append(3)
    rig.subscribe(subscriber="one").sequences(3)
    second = rig.subscribe(subscriber="two")
    with pytest.raises(AcknowledgementRefused, match="does not have the flows"):
        acknowledge(rig, second, 0, checkpoint=Checkpoint(Position(0, 0), None))


def test_a_publisher_that_another_one_superseded_moves_no_marker(rig: Rig) -> None:
    rig.source.append(3)
    listener = rig.subscribe()
    _, token = listener.seen(Token)
    assert isinstance(token, Token)
    with open_ledger(rig.folder) as of_successor:
        assert MarkerStore(of_successor).own("shop", rig.epoch + 1) == rig.epoch + 1
    with pytest.raises(Fenced, match="its owner's epoch is 2"):
        acknowledge(rig, listener, token.token)
    assert MarkerStore(rig.ledger).load("shop", "app") == {}
    with pytest.raises(Fenced):
        rig.publisher.dead.bury("shop", "app", to_ipc(rows(range(1, 2))), ["boom"], 1)
    assert rig.publisher.dead.count("shop", "app") == 0


def test_an_owner_is_newer_than_all_before_it_even_if_claims_are_counted_from_one_again(rig: Rig) -> None:
    assert MarkerStore(rig.ledger).own("shop", 7) == 7
    assert MarkerStore(rig.ledger).own("shop", 1) == 8
    assert MarkerStore(rig.ledger).own("other", 1) == 1


def test_the_others_go_on_while_a_new_application_waits_for_the_log(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig.source.append(3)
    listener = rig.subscribe()
    listener.sequences(3)
    asked, answered = threading.Event(), threading.Event()
    bounds = rig.source.bounds

    def slow_bounds() -> Bounds:
        asked.set()
        assert answered.wait(DEADLINE_S)
        return bounds()

    monkeypatch.setattr(rig.source, "bounds", slow_bounds)
    newcomer = threading.Thread(target=rig.subscribe, args=("newcomer",))
    newcomer.start()
    try:
        assert asked.wait(DEADLINE_S)
        rig.publisher.tick()
        assert [one.name for one in rig.publisher.applications()] == ["app"]
        assert rig.subscribe(subscriber="another").stream.standby
    finally:
        answered.set()
        newcomer.join()
    assert [one.name for one in rig.publisher.applications()] == ["app", "newcomer"]


def test_a_letter_of_another_history_replaces_the_one_at_its_position(rig: Rig) -> None:
    dead = rig.publisher.dead
    assert dead.bury("shop", "app", to_ipc(rows(range(1, 2))), ["boom"], 1) == 1
    assert dead.bury("shop", "app", to_ipc(rows(range(1, 2), size_bytes=99)), ["bang"], 2) == 0
    ((letter,), count) = dead.list("shop", "app", 10)
    _, update = dead.show("shop", "app", letter.letter)
    assert (count, letter.error, letter.attempts) == (1, "bang", 2)
    assert update == to_ipc(rows(range(1, 2), size_bytes=99))


def test_flows_of_a_silent_subscriber_move_only_after_its_lease(rig: Rig) -> None:
    rig.source.append(3)
    first, second = rig.subscribe(subscriber="one"), rig.subscribe(subscriber="two")
    first.sequences(3)
    rig.publisher.disconnected(first.stream)
    rig.clock.advance(rig.settings.lease_s + rig.settings.lease_margin_s - 0.1)
    rig.publisher.alive(Alive(session=second.stream.session))
    rig.publisher.tick()
    assert second.stream.standby
    rig.clock.advance(0.2)
    rig.publisher.tick()
    assert not second.stream.standby
    with pytest.raises(Fenced):
        rig.publisher.alive(Alive(session=first.stream.session))
    with pytest.raises(AcknowledgementRefused, match="over"):
        acknowledge(rig, first, 1)


def test_a_restarted_publisher_waits_out_the_lease_that_the_one_before_it_granted(rig: Rig) -> None:
    rig.source.append(3)
    rig.subscribe(subscriber="one").sequences(3)
    rig.restart()
    other = rig.subscribe(subscriber="two")
    assert other.stream.standby
    found = application_status(rig.publisher, rig.publisher.application("app"))
    assert (found.state, found.standbys) == ("waiting", 1)
    assert "for the lease of one" in found.reason
    rig.clock.advance(rig.settings.lease_s + rig.settings.lease_margin_s - 0.1)
    rig.publisher.alive(Alive(session=other.stream.session))
    rig.publisher.tick()
    assert other.stream.standby
    rig.clock.advance(0.2)
    rig.publisher.tick()
    assert other.sequences(3) == [1, 2, 3]


def test_after_a_restart_the_subscriber_that_had_the_flows_gets_them_at_once(rig: Rig) -> None:
    rig.source.append(3)
    rig.subscribe(subscriber="one").sequences(3)
    rig.restart()
    other = rig.subscribe(subscriber="two")
    assert rig.subscribe(subscriber="one").sequences(3) == [1, 2, 3]
    assert other.stream.standby


def test_flows_that_were_given_back_before_a_restart_are_anyones(rig: Rig) -> None:
    rig.source.append(3)
    first = rig.subscribe(subscriber="one")
    first.sequences(3)
    rig.publisher.leave(Leave(session=first.stream.session))
    rig.restart()
    assert rig.subscribe(subscriber="two").sequences(3) == [1, 2, 3]


def test_an_acknowledgement_is_a_sign_of_life(rig: Rig) -> None:
    rig.source.append(3)
    listener = rig.subscribe()
    _, token = listener.seen(Token)
    assert isinstance(token, Token)
    rig.clock.advance(0.9 * rig.settings.lease_s)
    acknowledge(rig, listener, token.token)
    rig.clock.advance(0.9 * rig.settings.lease_s)
    rig.publisher.tick()
    rig.publisher.alive(Alive(session=listener.stream.session))


def test_more_applications_than_are_allowed_are_refused(rig: Rig) -> None:
    rig.settings = msgspec.structs.replace(rig.settings, max_applications=1)
    rig.restart()
    rig.subscribe("first")
    with pytest.raises(Unavailable, match="max_applications"):
        rig.subscribe("second")


def test_the_oldest_of_too_many_open_tokens_is_forgotten(rig: Rig) -> None:
    rig.settings = msgspec.structs.replace(rig.settings, max_open_tokens=2)
    rig.restart()
    listener = rig.subscribe()
    for _ in range(3):
        rig.source.append(1)
        listener.seen(Token)
    assert listener.stream.open_tokens == 2
    with pytest.raises(AcknowledgementRefused, match="no such token"):
        acknowledge(rig, listener, 1)
    acknowledge(rig, listener, 3)


def test_loss_notices_are_never_forgotten_and_too_many_open_ones_end_the_session(rig: Rig) -> None:
    rig.settings = msgspec.structs.replace(rig.settings, max_open_tokens=2, marker_interval_s=3600.0)
    rig.restart()
    listener = rig.subscribe()
    for _ in range(5):
        append_behind_gap(rig.source, 2, 1)
    _, goodbye = listener.seen(Goodbye)
    assert isinstance(goodbye, Goodbye)
    assert "3 loss notices are not acknowledged" in goodbye.reason
    _, loss = rig.subscribe().seen(DataLoss)
    assert isinstance(loss, DataLoss)
    assert (loss.after, loss.until) == (Position(0, 0), Position(0, 2))


def test_a_subscriber_that_comes_back_under_its_name_need_not_wait(rig: Rig) -> None:
    rig.source.append(3)
    old = rig.subscribe(subscriber="one")
    old.sequences(3)
    new = rig.subscribe(subscriber="one")
    assert new.sequences(3) == [1, 2, 3]
    _, goodbye = old.seen(Goodbye)
    assert isinstance(goodbye, Goodbye)
    assert goodbye.retry


def test_what_fails_for_one_application_does_not_end_the_others_leases(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, other = rig.subscribe("broken"), rig.subscribe("sound")
    standby = rig.subscribe("broken", subscriber="two")

    def resume(*_: object) -> None:
        raise OSError("no such device")

    monkeypatch.setattr("tailrace.publisher.dataset.resume", resume)
    rig.clock.advance(rig.settings.lease_s + rig.settings.lease_margin_s - 0.5)
    rig.publisher.alive(Alive(session=standby.stream.session))
    rig.clock.advance(1)
    rig.publisher.tick()
    assert first.stream.ended
    assert other.stream.ended
    assert "no such device" in rig.publisher.application("broken").problem


def test_too_many_standbys_are_refused(rig: Rig) -> None:
    for number in range(rig.settings.max_standbys + 1):
        rig.subscribe(subscriber=f"s{number}")
    with pytest.raises(Unavailable, match="max_standbys"):
        rig.subscribe(subscriber="one more")


def test_an_application_recorded_otherwise_is_refused_with_the_difference(rig: Rig) -> None:
    rig.subscribe(filter="n = '1'")
    with pytest.raises(ApplicationDiffers, match="asked for n = '2'"):
        rig.subscribe(filter="n = '2'")
    with pytest.raises(FilterInvalid):
        rig.subscribe("other", filter="n = ")


def test_a_flow_whose_filter_matches_nothing_still_moves_on(rig: Rig) -> None:
    rig.source.append(3)
    listener = rig.subscribe(filter="n = 'none'")
    _, token = listener.seen(Token)
    assert isinstance(token, Token)
    assert token.checkpoint.position == Position(0, 3)


def test_only_what_passes_the_filter_is_sent(rig: Rig) -> None:
    rig.source.append(9)
    assert rig.subscribe(filter="n IN ('3', '7')").sequences(9) == [3, 7]


def test_a_truncated_log_is_a_loss_notice_and_its_acknowledgement_moves_the_marker(rig: Rig) -> None:
    rig.source.append(3)
    first = rig.subscribe()
    first.sequences(3)
    rig.source.append(4)
    rig.source.append(1)
    rig.source.truncate(Position(0, 7))
    rig.restart()
    second = rig.subscribe()
    _, loss = second.seen(DataLoss)
    assert isinstance(loss, DataLoss)
    assert (loss.after, loss.until) == (Position(0, 0), Position(0, 7))
    assert "truncated" in loss.reason
    assert rig.publisher.application("app").acknowledged == Position(0, 0)
    acknowledge(rig, second, loss.token)
    assert rig.publisher.application("app").acknowledged == Position(0, 7)
    assert rig.publisher.application("app").losses == 1
    assert second.sequences(8) == [8]


def test_a_forked_log_is_a_loss_notice_and_resumes_at_the_last_shared_checkpoint(rig: Rig) -> None:
    rig.source.append(3)
    first = rig.subscribe()
    for _ in range(2):
        _, token = first.seen(Token)
        assert isinstance(token, Token)
        acknowledge(rig, first, token.token)
        rig.source.append(3)
    forked = MemorySource(era=1, shards=2, history=2)
    forked.append(2)
    rig.restart(forked)
    second = rig.subscribe()
    _, loss = second.seen(DataLoss)
    assert isinstance(loss, DataLoss)
    assert loss.until == Position(0, 6)
    assert second.sequences(2) == [1, 2]
    acknowledge(rig, second, loss.token)
    assert rig.publisher.application("app").acknowledged == Position(0, 0)


def test_a_log_that_cannot_be_read_is_shown_and_nothing_after_it_is_delivered(rig: Rig) -> None:
    rig.source.append(3)
    rig.source.append(3)
    rig.source.fail_after(Position(0, 3), LogCorrupt(path="000004.log", offset=77, reason="checksum"))
    listener = rig.subscribe()
    assert listener.sequences(3) == [1, 2, 3]
    while not listener.stream.blocked_by:
        next(listener._messages)
    assert "000004.log at offset 77" in listener.stream.blocked_by
    rig.source.fail_after(Position(0, 3), None)
    rig.clock.advance(rig.settings.retry_failed_source_s)
    assert listener.sequences(6) == [4, 5, 6]


def test_what_was_truncated_under_a_reader_is_a_loss_notice_too(rig: Rig) -> None:
    rig.source.append(3)
    listener = rig.subscribe()
    listener.sequences(3)
    rig.source.fail_after(Position(0, 3), LogCorrupt(path="x", offset=1, reason="held"))
    rig.source.append(3)
    rig.source.append(1)
    rig.source.truncate(Position(0, 6))
    rig.source.fail_after(Position(0, 0), None)
    rig.clock.advance(10)
    _, loss = listener.seen(DataLoss)
    assert isinstance(loss, DataLoss)
    assert (loss.after, loss.until) == (Position(0, 3), Position(0, 6))
    assert listener.sequences(7) == [7]


def test_flows_with_different_markers_get_only_what_each_lacks(rig: Rig) -> None:
    rig.source.append(6)
    listener = rig.subscribe()
    _, token = listener.seen(Token)
    assert isinstance(token, Token)
    acknowledge(rig, listener, token.token)
    application = rig.publisher.application("app")
    behind = application.markers[1].earlier[0] if application.markers[1].earlier else Checkpoint(Position(0, 0), None)
    application.markers[1] = type(application.markers[1])(behind)
    rig.subscribe(subscriber="one")
    again = rig.subscribe(subscriber="one")
    assert again.sequences(6) == [1, 3, 5]


def test_progress_says_whether_a_write_has_reached_an_application(rig: Rig) -> None:
    rig.source.append(3)
    listener = rig.subscribe()
    listener.sequences(3)
    assert rig.publisher.reached("app", Position(0, 3)) == (False, None)
    rig.publisher.alive(Alive(session=listener.stream.session, progress=Position(0, 3)))
    assert rig.publisher.reached("app", Position(0, 3)) == (True, Position(0, 3))
    assert rig.publisher.reached("app", Position(0, 4)) == (False, Position(0, 3))


def test_realtime_gets_only_what_is_new_after_each_connection(rig: Rig) -> None:
    rig.source.append(3)
    first = rig.subscribe(mode="realtime")
    first.next(Opened)
    rig.source.append(1)
    assert first.sequences(4) == [4]
    rig.source.append(1)
    rig.restart()
    second = rig.subscribe(mode="realtime")
    second.next(Opened)
    rig.source.append(1)
    assert second.sequences(6) == [6]


def test_dead_letters_are_handed_out_again_when_an_operator_asks(rig: Rig) -> None:
    rig.source.append(3)
    listener = rig.subscribe()
    batch, _ = listener.seen(Updates)
    dead = rig.publisher.dead
    session = listener.stream.session
    rig.publisher.bury(session, lambda app: dead.bury("shop", app.name, to_ipc(batch.slice(1, 1)), ["no"], 3))
    rig.publisher.bury(session, lambda app: dead.bury("shop", app.name, to_ipc(batch.slice(1, 1)), ["no"], 3))
    letters, total = dead.list("shop", "app", 10)
    assert (total, letters[0].key, letters[0].error, letters[0].attempts) == (1, b"k2", "no", 3)
    assert rig.publisher.retry_dead("app", None) == 1
    again, message = listener.seen(Redelivery)
    assert isinstance(message, Redelivery)
    assert again.column("key").to_pylist() == [b"k2"]
    rig.publisher.bury(session, lambda app: -dead.settle("shop", app.name, message.letters, {}))
    assert dead.list("shop", "app", 10) == ([], 0)
    assert rig.publisher.application("app").dead_letters == 0


def test_a_subscriber_that_acknowledges_nothing_does_not_hold_up_the_end(rig: Rig) -> None:
    rig.settings = msgspec.structs.replace(rig.settings, drain_s=0.05, marker_interval_s=3600.0)
    rig.restart()
    rig.source.append(3)
    silent = rig.subscribe()
    silent.sequences(3)
    drain = threading.Thread(target=rig.publisher.drain)
    drain.start()
    silent.next(Token)
    silent.next(Goodbye)
    drain.join(DEADLINE_S)
    assert not drain.is_alive()
    with pytest.raises(Unavailable, match="shutting down"):
        rig.subscribe()
    rig.restart()
    assert rig.subscribe().sequences(3) == [1, 2, 3]
