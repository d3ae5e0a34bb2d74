from __future__ import annotations

import pytest

from tailrace.runtime.metrics import Metrics, Rate
from tailrace.testing.clock import ManualClock


def test_a_counter_is_rendered_under_its_role() -> None:
    metrics = Metrics("publisher")
    metrics.counter("sent_bytes", "Bytes sent.", ["application"]).labels("cache").inc(7)
    text = metrics.render().decode()
    assert "# HELP tailrace_publisher_sent_bytes_total Bytes sent." in text
    assert 'tailrace_publisher_sent_bytes_total{application="cache"} 7.0' in text


def test_gauges_and_histograms_are_rendered() -> None:
    metrics = Metrics("store")
    metrics.gauge("queued_bytes", "Bytes queued.").set(3)
    metrics.histogram("commit_seconds", "How long commits take.", buckets=[0.1, 1]).observe(0.5)
    text = metrics.render().decode()
    assert "tailrace_store_queued_bytes 3.0" in text
    assert 'tailrace_store_commit_seconds_bucket{le="0.1"} 0.0' in text
    assert 'tailrace_store_commit_seconds_bucket{le="1.0"} 1.0' in text


def test_asking_again_gives_the_same_metric() -> None:
    metrics = Metrics("store")
    assert metrics.counter("writes", "Writes.") is metrics.counter("writes", "Writes.")


def test_two_roles_in_one_process_do_not_meet() -> None:
    first, second = Metrics("store"), Metrics("store")
    first.counter("writes", "Writes.").inc()
    second.counter("writes", "Writes.")
    assert b"tailrace_store_writes_total 0.0" in second.render()


def test_a_name_cannot_be_two_kinds_or_have_two_sets_of_labels() -> None:
    metrics = Metrics("store")
    metrics.counter("writes", "Writes.", ["table"])
    with pytest.raises(AssertionError, match="is a Counter"):
        metrics.gauge("writes", "Writes.")
    with pytest.raises(AssertionError, match="has labels"):
        metrics.counter("writes", "Writes.", ["family"])


@pytest.mark.parametrize("name", ["Writes", "writes-total", "_writes", ""])
def test_a_name_in_another_style_is_refused(name: str) -> None:
    with pytest.raises(AssertionError, match="lower case"):
        Metrics("store").counter(name, "x")


def test_a_rate_covers_the_last_thirty_seconds() -> None:
    clock = ManualClock(monotonic=1000.0)
    rate = Rate(clock)
    for _ in range(60):
        rate.add(100)
        clock.advance(1)
    assert rate.per_s() == pytest.approx(100, rel=0.05)
    clock.advance(31)
    assert rate.per_s() == 0.0


def test_a_young_rate_is_divided_by_its_age() -> None:
    clock = ManualClock(monotonic=1000.0)
    rate = Rate(clock)
    rate.add(50)
    assert rate.per_s() == 50.0
    clock.advance(5)
    rate.add(50)
    assert rate.per_s() == 20.0


def test_a_rate_forgets_gradually() -> None:
    clock = ManualClock(monotonic=1000.0)
    rate = Rate(clock)
    rate.add(2900)
    clock.advance(29)
    assert rate.per_s() == pytest.approx(100)
    clock.advance(1)
    assert rate.per_s() == 0.0
