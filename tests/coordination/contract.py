"""What every coordinator must do; each implementation's test runs it by subclassing `CoordinatorContract`."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Protocol

import pytest

from tailrace.coordination.interface import MAX_RECORD_BYTES, Claim, Coordinator, Session, Topic, Watch
from tailrace.errors import Fenced, RecordTooLarge

WAIT_S = 10.0  # a limit for what should come at once


class World(Protocol):
    """One coordination service, and the processes around it."""

    short_lease_s: float  # long enough to be kept, short enough to wait for

    def connect(self) -> Coordinator:
        """A coordinator as another process has it; closed by the world."""

    def pause(self, coordinator: Coordinator) -> None:
        """Stops this one's process, or cuts it off: it renews nothing any more."""

    def resume(self, coordinator: Coordinator) -> None: ...


def until_claimed(session: Session, other: Coordinator, name: str) -> Claim:
    """Claims as soon as it is possible, as a standby does."""
    watch = other.watch(Topic("claim", name))
    try:
        while (claim := session.claim(name)) is None:
            assert watch.wait(WAIT_S), f"{name} did not come free"
        return claim
    finally:
        watch.close()


def until_empty(coordinator: Coordinator, group: str) -> None:
    watch = coordinator.watch(Topic("members", group))
    try:
        while coordinator.members(group):
            assert watch.wait(WAIT_S), f"{group} did not become empty"
    finally:
        watch.close()


class CoordinatorContract:
    @pytest.fixture
    def one(self, world: World) -> Coordinator:
        return world.connect()

    @pytest.fixture
    def two(self, world: World) -> Coordinator:
        return world.connect()

    # ---- records ----------------------------------------------------------------------------------------------

    def test_a_record_is_seen_by_everyone(self, one: Coordinator, two: Coordinator) -> None:
        assert two.get("apps/cache") is None
        assert one.create("apps/cache", b"first") is True
        assert two.get("apps/cache") == (b"first", 1)

    def test_creating_what_exists_changes_nothing(self, one: Coordinator, two: Coordinator) -> None:
        one.create("a", b"first")
        assert two.create("a", b"second") is False
        assert one.get("a") == (b"first", 1)

    def test_a_record_is_replaced_only_in_the_version_that_was_read(self, one: Coordinator, two: Coordinator) -> None:
        one.create("a", b"1")
        assert one.put("a", b"2", 1) == 2
        assert two.put("a", b"late", 1) is None
        assert two.put("a", b"3", 2) == 3
        assert one.get("a") == (b"3", 3)

    def test_putting_what_does_not_exist_is_refused(self, one: Coordinator) -> None:
        assert one.put("a", b"1", 1) is None
        assert one.get("a") is None

    def test_a_record_is_deleted_only_in_the_version_that_was_read(self, one: Coordinator, two: Coordinator) -> None:
        one.create("a", b"1")
        one.put("a", b"2", 1)
        assert two.delete("a", 1) is False
        assert two.delete("a", 2) is True
        assert two.delete("a", 2) is False
        assert one.get("a") is None
        assert one.create("a", b"new") is True
        assert one.get("a") == (b"new", 1)

    def test_children_are_the_names_right_below(self, one: Coordinator, two: Coordinator) -> None:
        for path in ("lines/shop", "lines/a%2Fb/x", "lines/a%2Fb/y", "linesman/z", "apps/cache"):
            one.create(path, b"")
        assert two.children("lines") == ["a%2Fb", "shop"]
        assert two.children("") == ["apps", "lines", "linesman"]
        assert two.children("lines/shop") == []
        assert two.children("none") == []

    def test_deleting_a_record_leaves_those_below(self, one: Coordinator) -> None:
        one.create("a", b"")
        one.create("a/b", b"below")
        assert one.delete("a", 1) is True
        assert one.get("a") is None
        assert one.get("a/b") == (b"below", 1)
        assert one.children("a") == ["b"]
        assert one.create("a", b"again") is True

    def test_a_record_over_the_limit_is_refused(self, one: Coordinator) -> None:
        one.create("a", b"small")
        with pytest.raises(RecordTooLarge, match="1000001"):
            one.put("a", b"x" * (MAX_RECORD_BYTES + 1), 1)
        with pytest.raises(RecordTooLarge):
            one.create("b", b"x" * (MAX_RECORD_BYTES + 1))
        assert one.get("a") == (b"small", 1)
        assert one.put("a", b"x" * MAX_RECORD_BYTES, 1) == 2

    @pytest.mark.parametrize("path", ["", "/a", "a/", "a//b", "a b", "x" * 600])
    def test_a_path_that_is_none_is_a_bug(self, one: Coordinator, path: str) -> None:
        with pytest.raises(AssertionError, match="path"):
            one.create(path, b"")

    def test_of_many_that_change_a_record_at_once_each_success_counts(self, one: Coordinator, two: Coordinator) -> None:
        one.create("count", b"0")

        def add(coordinator: Coordinator) -> None:
            for _ in range(10):
                while True:
                    record = coordinator.get("count")
                    assert record is not None
                    value = str(int(record.value) + 1).encode()
                    if coordinator.put("count", value, record.version) is not None:
                        break

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(add, [one, two, one, two]))
        assert one.get("count") == (b"40", 41)

    # ---- sessions, members ------------------------------------------------------------------------------------

    def test_members_are_seen_by_everyone_in_order_of_their_ids(self, one: Coordinator, two: Coordinator) -> None:
        first, second = one.open_session("p1"), two.open_session("p2")
        second.join("publishers", "p2", b"host2")
        first.join("publishers", "p1", b"host1")
        first.join("others", "p1")
        expected = [("p1", b"host1", first.id), ("p2", b"host2", second.id)]
        assert one.members("publishers") == two.members("publishers") == expected
        assert [member.id for member in one.members("others")] == ["p1"]
        assert one.members("nobody") == []

    def test_joining_again_replaces_the_info(self, one: Coordinator) -> None:
        session = one.open_session("p1")
        session.join("g", "p1", b"old")
        session.join("g", "p1", b"new")
        assert one.members("g") == [("p1", b"new", session.id)]

    def test_the_last_to_join_under_an_id_has_it(self, one: Coordinator, two: Coordinator) -> None:
        before, after = one.open_session("p1"), two.open_session("p1 again")
        before.join("g", "p1", b"old")
        after.join("g", "p1", b"new")
        assert before.leave("g", "p1") is False
        before.close()
        assert one.members("g") == [("p1", b"new", after.id)]

    def test_leaving_and_closing_end_memberships(self, one: Coordinator, two: Coordinator) -> None:
        session = one.open_session("p1")
        session.join("g", "a")
        session.join("g", "b")
        assert session.leave("g", "a") is True
        assert session.leave("g", "a") is False
        assert [member.id for member in two.members("g")] == ["b"]
        session.close()
        assert two.members("g") == []

    def test_a_lease_lasts_while_it_is_renewed(self, world: World, one: Coordinator, two: Coordinator) -> None:
        session = one.open_session("p1", lease_s=world.short_lease_s)
        claim = session.claim("flow")
        assert claim is not None
        assert 0 < session.lease_left_s() <= world.short_lease_s
        assert session.lost.wait(1.25 * world.short_lease_s) is False
        assert session.lease_left_s() > 0
        assert two.open_session("p2").claim("flow") is None

    def test_a_closed_session_has_no_lease_and_can_do_nothing(self, one: Coordinator) -> None:
        session = one.open_session("p1")
        session.close()
        session.close()
        assert session.lease_left_s() == 0.0
        assert not session.lost.is_set()
        with pytest.raises(Fenced, match="p1"):
            session.claim("flow")
        with pytest.raises(Fenced, match="p1"):
            session.join("g", "p1")

    def test_closing_the_coordinator_ends_its_sessions(self, one: Coordinator, two: Coordinator) -> None:
        session = one.open_session("p1")
        session.join("g", "p1")
        session.claim("flow")
        one.close()
        assert two.members("g") == []
        assert two.holder("flow") is None

    # ---- claims -----------------------------------------------------------------------------------------------

    def test_a_claim_has_one_holder(self, one: Coordinator, two: Coordinator) -> None:
        first, second = one.open_session("p1"), two.open_session("p2")
        assert one.holder("flow") is None
        claim = first.claim("flow")
        assert claim == ("flow", 1, first.id)
        assert second.claim("flow") is None
        assert first.claim("flow") == claim
        assert two.holder("flow") == (first.id, "p1", 1)

    def test_the_next_claim_has_a_greater_epoch(self, one: Coordinator, two: Coordinator) -> None:
        first, second = one.open_session("p1"), two.open_session("p2")
        epochs = []
        for session in (first, second, first, first):
            claim = session.claim("flow")
            assert claim is not None
            epochs.append(claim.epoch)
            assert session.release(claim) is True
            assert session.release(claim) is False
        assert epochs == [1, 2, 3, 4]

    def test_an_epoch_does_not_fall_when_everyone_has_gone(self, world: World, one: Coordinator) -> None:
        claim = one.open_session("p1").claim("flow")
        assert claim is not None
        one.close()
        later = world.connect().open_session("p2").claim("flow")
        assert later is not None
        assert later.epoch > claim.epoch

    def test_names_are_claimed_apart(self, one: Coordinator, two: Coordinator) -> None:
        first, second = one.open_session("p1"), two.open_session("p2")
        assert first.claim("flow/1") is not None
        assert second.claim("flow/2") is not None

    def test_two_sessions_of_one_process_are_apart(self, one: Coordinator) -> None:
        first, second = one.open_session("p1"), one.open_session("p1")
        assert first.id != second.id
        assert first.claim("flow") is not None
        assert second.claim("flow") is None

    def test_of_many_that_claim_at_once_one_gets_it(self, one: Coordinator, two: Coordinator) -> None:
        sessions = [coordinator.open_session("p") for coordinator in (one, two, one, two)]
        start = threading.Barrier(4)

        def claim(session: Session) -> Claim | None:
            start.wait(WAIT_S)
            return session.claim("flow")

        with ThreadPoolExecutor(4) as pool:
            claims = [claim for claim in pool.map(claim, sessions) if claim]
        assert len(claims) == 1

    def test_a_paused_holder_s_claim_goes_to_another_after_its_lease(
        self, world: World, one: Coordinator, two: Coordinator
    ) -> None:
        first, second = one.open_session("p1", lease_s=world.short_lease_s), two.open_session("p2")
        lost = Event()
        first.on_lost(lost.set)
        first.join("g", "p1")
        before = first.claim("flow")
        assert before is not None
        world.pause(one)
        after = until_claimed(second, two, "flow")
        assert first.lease_left_s() == 0.0
        assert after.epoch > before.epoch
        until_empty(two, "g")
        world.resume(one)
        assert lost.wait(WAIT_S)
        assert first.lost.is_set()
        assert first.lease_left_s() == 0.0
        with pytest.raises(Fenced):
            first.claim("another")
        assert first.release(before) is False
        assert two.holder("flow") == (second.id, "p2", after.epoch)

    def test_asking_to_be_told_after_the_loss_tells_at_once(self, world: World, one: Coordinator) -> None:
        session = one.open_session("p1", lease_s=world.short_lease_s)
        world.pause(one)
        deadline = Event()
        while session.lease_left_s() > 0:
            deadline.wait(session.lease_left_s())
        world.resume(one)
        assert session.lost.wait(WAIT_S)
        told = Event()
        session.on_lost(told.set)
        assert told.is_set()

    def test_a_put_under_a_claim_is_refused_once_that_is_over(self, one: Coordinator, two: Coordinator) -> None:
        first, second = one.open_session("p1"), two.open_session("p2")
        one.create("marker", b"0")
        old = first.claim("flow")
        assert old is not None
        assert one.put("marker", b"1", 1, under=old) == 2
        first.release(old)
        assert one.put("marker", b"late", 2, under=old) is None
        new = second.claim("flow")
        assert one.put("marker", b"late", 2, under=old) is None
        assert two.put("marker", b"2", 2, under=new) == 3
        assert two.put("marker", b"stale", 2, under=new) is None

    # ---- watches ----------------------------------------------------------------------------------------------

    def test_a_change_elsewhere_wakes_a_watch(self, one: Coordinator, two: Coordinator) -> None:
        session = one.open_session("p1")
        for topic, change in (
            (Topic("record", "a/b"), lambda: one.create("a/b", b"1")),
            (Topic("record", "a/b"), lambda: one.put("a/b", b"2", 1)),
            (Topic("record", "a"), lambda: one.delete("a/b", 2)),
            (Topic("members", "g"), lambda: session.join("g", "p1")),
            (Topic("members", "g"), lambda: session.leave("g", "p1")),
            (Topic("claim", "flow"), lambda: session.claim("flow")),
            (Topic("claim", "flow"), session.close),
        ):
            watch = two.watch(topic)
            change()
            assert watch.wait(WAIT_S), topic
            watch.close()

    def test_a_change_in_this_process_wakes_at_once(self, one: Coordinator) -> None:
        watch = one.watch(Topic("record", "a"))
        one.create("a", b"")
        assert watch.event.is_set()

    def test_what_is_not_watched_does_not_wake(self, one: Coordinator) -> None:
        watch = one.watch(Topic("record", "a/b"), Topic("claim", "flow"))
        session = one.open_session("p1")
        one.create("a/c", b"")
        one.create("a", b"")
        one.create("a/bc", b"")
        session.claim("other flow")
        session.join("flow", "p1")
        assert not watch.event.is_set()

    def test_what_changes_nothing_does_not_wake(self, one: Coordinator, two: Coordinator) -> None:
        """Otherwise two standbys would wake each other for ever."""
        one.create("a", b"")
        one.open_session("p1").claim("flow")
        standby = two.open_session("p2")
        watch = two.watch(Topic("record", "a"), Topic("claim", "flow"))
        settled = two.watch(Topic("record", "z"))
        one.create("z", b"")
        settled.wait(WAIT_S)
        watch.event.clear()
        assert standby.claim("flow") is None
        assert two.create("a", b"") is False
        assert two.put("a", b"", 9) is None
        assert not watch.event.is_set()

    def test_one_event_serves_several_watches(self, one: Coordinator) -> None:
        event = Event()
        watches: list[Watch] = [one.watch(Topic("record", name), event=event) for name in ("a", "b")]
        one.create("b", b"")
        assert event.is_set()
        assert watches[0].wait(0)
        assert not event.is_set()

    def test_a_closed_watch_does_not_wake(self, one: Coordinator) -> None:
        watch = one.watch(Topic("record", "a"))
        watch.close()
        watch.close()
        one.create("a", b"")
        assert not watch.event.is_set()

    def test_no_change_is_missed(self, one: Coordinator, two: Coordinator) -> None:
        """A follower that reads after each wake-up ends with what was written last, however the two interleave."""
        one.create("a", b"0")

        def follow() -> int:
            watch, last = two.watch(Topic("record", "a")), 0
            while True:
                record = two.get("a")
                assert record is not None
                last = int(record.value)
                if last == 50:
                    return last
                assert watch.wait(WAIT_S), f"stuck at {last}"

        with ThreadPoolExecutor(1) as pool:
            following = pool.submit(follow)
            for number in range(1, 51):
                assert one.put("a", str(number).encode(), number) == number + 1
            assert following.result(WAIT_S) == 50

    def test_a_healthy_coordinator_is_ready(self, one: Coordinator) -> None:
        assert one.not_ready() == []
