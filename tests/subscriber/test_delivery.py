"""What follows when the application raises; no connection is needed for that."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.subscriber.recorder import Recorder

from tailrace.errors import ApplicationFailed, ConfigInvalid, Fenced
from tailrace.runtime.backoff import Backoff
from tailrace.subscriber import Application, ErrorPolicy, StopSubscription
from tailrace.subscriber.application import require_callback
from tailrace.subscriber.delivery import MAX_ERROR_TEXT, Delivery
from tailrace.subscriber.lease import Lease
from tailrace.testing.clock import ManualClock
from tailrace.testing.scripted_publisher import updates
from tailrace.updates.batch import Update, UpdateBatch
from tailrace.updates.position import Position


class Desk:
    """A delivery to an application, with its pauses written down instead of waited for."""

    def __init__(self, application: Application, policy: ErrorPolicy) -> None:
        self.clock = ManualClock()
        self.lease = Lease(self.clock, self.clock.monotonic())
        self.lease.opened(5.0)
        self.pauses: list[int] = []
        self.failures: list[str] = []
        self.delivery = Delivery(application, "app", policy, self.lease, self.clock, self._pause)

    def _pause(self, attempts: int, failed: ApplicationFailed) -> None:
        self.pauses.append(attempts)
        self.failures.append(str(failed))


def headline(error: str) -> str:
    return error.splitlines()[0]


def batch(sequences: Iterable[int]) -> UpdateBatch:
    data = updates(*((0, sequence) for sequence in sequences))
    return UpdateBatch(data, "shop", 1, Position(0, 99))


class OneByOne(Application):
    def __init__(self, failing: set[int]) -> None:
        self.failing = failing
        self.seen: list[int] = []

    def on_update(self, update: Update) -> None:
        sequence = update.position.sequence
        self.seen.append(sequence)
        if sequence in self.failing:
            raise ValueError("no")


GIVE_UP = ErrorPolicy(retries=2, then="dead-letter")


def test_a_batch_that_passes_is_handed_over_once() -> None:
    application = Recorder()
    assert Desk(application, GIVE_UP).delivery.deliver(batch([1, 2, 3])) == []
    assert application.made("updates") == [[1, 2, 3]]


def test_a_failing_batch_is_halved_until_the_failing_update_stands_alone() -> None:
    application = Recorder(fails=lambda sequence: sequence == 3)
    desk = Desk(application, GIVE_UP)
    dead = desk.delivery.deliver(batch([1, 2, 3, 4]))
    assert application.made("updates") == [[1, 2, 3, 4], [1, 2], [3, 4], [3], [3], [3], [4]]
    assert application.made("processed") == [[1, 2], [4]]
    assert desk.pauses == [1, 2]
    assert [(each.data["sequence"].to_pylist(), headline(each.error), each.attempts) for each in dead] == [
        ([3], "ValueError: cannot take 3", 3)
    ]


def test_before_another_attempt_it_tells_what_failed() -> None:
    desk = Desk(Recorder(fails=lambda sequence: sequence == 2), GIVE_UP)
    desk.delivery.deliver(batch([1, 2]))
    assert desk.failures == ["application 'app' failed on shop@0:2:0: ValueError: cannot take 2"] * 2


def test_an_update_that_is_given_up_is_logged_with_its_place_and_one_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    Desk(Recorder(fails=lambda sequence: sequence == 2), GIVE_UP).delivery.deliver(batch([1, 2]))
    failed = "application 'app' failed on shop@0:2:0: ValueError: cannot take 2"
    assert caplog.messages == [
        f"{failed}; it is tried again",
        f"{failed}; given up after 3 attempts, it becomes a dead letter",
    ]
    assert caplog.text.count("Traceback") == 1
    assert "recorder.py" in caplog.text


def test_an_update_that_is_given_up_at_once_is_logged_with_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    policy = ErrorPolicy(retries=0, then="dead-letter")
    Desk(OneByOne({2}), policy).delivery.deliver(batch([1, 2]))
    assert caplog.messages == [
        "application 'app' failed on shop@0:2:0: ValueError: no; given up after 1 attempt, it becomes a dead letter"
    ]
    assert caplog.text.count("Traceback") == 1


def test_a_failure_that_ends_the_subscription_is_not_logged_but_raised_with_its_cause(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with pytest.raises(ApplicationFailed) as caught:
        Desk(OneByOne({1}), ErrorPolicy()).delivery.deliver(batch([1]))
    assert isinstance(caught.value.__cause__, ValueError)
    assert caplog.messages == []


def test_a_dead_letter_says_where_in_the_application_it_failed() -> None:
    (dead,) = Desk(OneByOne({1}), GIVE_UP).delivery.deliver(batch([1]))
    headline, place, *code = dead.error.splitlines()  # one frame: ours, which called it, is left out
    assert (headline, code) == ("ValueError: no", ['    raise ValueError("no")'])
    assert place.startswith(f'  File "{__file__}", line ')


def test_the_text_of_a_dead_letter_is_bounded_and_keeps_the_innermost_place() -> None:
    def fail(depth: int) -> None:
        if depth:
            fail(depth - 1)
        raise ValueError("x" * 10_000)

    class Deep(Application):
        def on_update(self, update: Update) -> None:
            fail(100)

    (dead,) = Desk(Deep(), GIVE_UP).delivery.deliver(batch([1]))
    assert len(dead.error) == MAX_ERROR_TEXT
    assert dead.error.startswith("ValueError: xxx")
    assert dead.error.splitlines()[-1] == '    raise ValueError("x" * 10_000)'


def test_the_pieces_of_a_failed_batch_are_marked_as_redelivered() -> None:
    application = Recorder(fails=lambda sequence: sequence == 1)
    Desk(application, GIVE_UP).delivery.deliver(batch([1, 2]))
    assert [held.redelivered for held in application.batches] == [False, True, True, True, True]


def test_an_update_that_passes_on_a_retry_is_no_dead_letter() -> None:
    application = Recorder(fails=lambda sequence: sequence == 2 and len(application.made("updates")) < 4)
    assert Desk(application, GIVE_UP).delivery.deliver(batch([1, 2])) == []
    assert application.made("processed") == [[1], [2]]


def test_retrying_without_end_goes_on_until_it_passes() -> None:
    application = Recorder(fails=lambda sequence: len(application.calls) < 50)
    desk = Desk(application, ErrorPolicy(retries=None))
    assert desk.delivery.deliver(batch([1])) == []
    assert len(desk.pauses) == 49


def test_stop_delivers_nothing_after_the_failing_update() -> None:
    application = Recorder(fails=lambda sequence: sequence == 2)
    with pytest.raises(ApplicationFailed, match="shop@0:2:0: ValueError: cannot take 2"):
        Desk(application, ErrorPolicy()).delivery.deliver(batch([1, 2, 3, 4]))
    assert application.made("processed") == [[1]]


def test_single_updates_are_not_repeated_for_a_neighbours_failure() -> None:
    application = OneByOne({2, 4})
    dead = Desk(application, GIVE_UP).delivery.deliver(batch([1, 2, 3, 4]))
    assert application.seen == [1, 2, 2, 2, 3, 4, 4, 4]
    assert [each.data["sequence"].to_pylist() for each in dead] == [[2], [4]]


@pytest.mark.parametrize("error", [StopSubscription("broken"), MemoryError()])
def test_an_application_that_is_broken_stops_whatever_the_policy(error: Exception) -> None:
    class Broken(Application):
        calls = 0

        def on_updates(self, batch: UpdateBatch) -> None:
            self.calls += 1
            raise error

    application = Broken()
    with pytest.raises(ApplicationFailed, match="shop@0:1:0"):
        Desk(application, ErrorPolicy(retries=None)).delivery.deliver(batch([1, 2]))
    assert application.calls == 1


def test_dead_letters_are_tried_once_each_and_keep_their_errors() -> None:
    application = Recorder(fails=lambda sequence: sequence == 2)
    failed = Desk(application, ErrorPolicy()).delivery.redeliver(batch([1, 2, 3]))
    assert {row: headline(error) for row, error in failed.items()} == {1: "ValueError: cannot take 2"}
    assert application.made("updates") == [[1], [2], [3]]


def test_other_callbacks_are_retried_and_then_stop() -> None:
    desk = Desk(Recorder(), GIVE_UP)
    attempts: list[int] = []

    def fails_twice() -> str:
        attempts.append(1)
        if len(attempts) < 3:
            raise ValueError("not yet")
        return "done"

    assert desk.delivery.call(fails_twice, "token 1") == "done"
    attempts.clear()
    with pytest.raises(ApplicationFailed, match="failed on token 1: ValueError: not yet"):
        Desk(Recorder(), ErrorPolicy(retries=1)).delivery.call(fails_twice, "token 1")


def test_nothing_is_called_once_the_lease_is_over() -> None:
    application = Recorder()
    desk = Desk(application, GIVE_UP)
    desk.clock.advance(5.1)
    with pytest.raises(Fenced, match="lease of 5 s"):
        desk.delivery.deliver(batch([1]))
    assert application.calls == []


def test_single_updates_stop_in_mid_batch_when_the_lease_is_over() -> None:
    class Slow(OneByOne):
        def on_update(self, update: Update) -> None:
            super().on_update(update)
            desk.clock.advance(2.0)

    application = Slow(set())
    desk = Desk(application, GIVE_UP)
    with pytest.raises(Fenced):
        desk.delivery.deliver(batch([1, 2, 3, 4]))
    assert application.seen == [1, 2, 3]


def test_no_retry_happens_once_the_lease_is_over() -> None:
    application = Recorder(fails=lambda sequence: True)
    desk = Desk(application, ErrorPolicy(retries=None))
    desk.delivery = Delivery(
        application, "app", ErrorPolicy(retries=None), desk.lease, desk.clock, lambda *_: desk.clock.advance(3.0)
    )
    with pytest.raises(Fenced):
        desk.delivery.deliver(batch([1]))
    assert len(application.made("updates")) == 2


@given(st.integers(1, 40), st.sets(st.integers(1, 40)))
def test_whatever_fails_the_others_are_processed_once_and_in_order(count: int, failing: set[int]) -> None:
    application = Recorder(fails=failing.__contains__)
    policy = ErrorPolicy(retries=0, then="dead-letter")
    dead = Desk(application, policy).delivery.deliver(batch(range(1, count + 1)))
    processed = [sequence for piece in application.made("processed") for sequence in piece]  # type: ignore[attr-defined]
    assert processed == [sequence for sequence in range(1, count + 1) if sequence not in failing]
    buried = [each.data["sequence"][0].as_py() for each in dead]
    assert buried == sorted(failing & set(range(1, count + 1)))


def test_a_class_in_place_of_its_instance_is_refused() -> None:
    with pytest.raises(ConfigInvalid, match="application Application: is a class; pass an instance of it"):
        require_callback(cast(Any, Application))


def test_an_application_without_a_callback_is_refused() -> None:
    with pytest.raises(ConfigInvalid, match="neither on_updates nor on_update"):
        require_callback(Application())


def test_policies_are_named_or_built() -> None:
    assert ErrorPolicy.named("stop") == ErrorPolicy(retries=0, then="stop")
    assert ErrorPolicy.named("retry").retries is None
    assert ErrorPolicy.named("dead-letter").then == "dead-letter"
    own = ErrorPolicy(retries=1, backoff=Backoff(first_s=1.0))
    assert ErrorPolicy.named(own) is own
    with pytest.raises(ConfigInvalid, match="error_policy: 'explode' is none of"):
        ErrorPolicy.named("explode")  # type: ignore[arg-type]
    with pytest.raises(ConfigInvalid, match=r"on_error\.retries"):
        ErrorPolicy(retries=-1)
