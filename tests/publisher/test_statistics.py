"""What an operator sees of an application: its state and why, and the same as metrics."""

from __future__ import annotations

from tailrace.publisher.statistics import PublisherCollector
from tailrace.publisher.status import application_status
from tailrace.runtime.metrics import Metrics
from tailrace.updates.position import Position
from tailrace.wire.messages import Alive, ApplicationStatus, Opened
from tests.publisher.conftest import Rig


def status(rig: Rig) -> ApplicationStatus:
    assert rig.publisher.problem() == ""
    return application_status(rig.publisher, rig.publisher.application("app"))


def test_an_application_is_live_once_it_has_processed_what_it_was_sent(rig: Rig) -> None:
    rig.source.append(5)
    listener = rig.subscribe()
    listener.sequences(5)
    behind = status(rig)
    assert (behind.state, behind.lag_positions) == ("catching up", 5)
    assert "takes longer to process" in behind.reason
    assert behind.lag_s is not None
    assert behind.lag_s > 1e9, "the updates are of 1970"
    rig.publisher.alive(Alive(session=listener.stream.session, progress=Position(0, 5, 0)))
    now = status(rig)
    assert (now.state, now.reason, now.lag_positions, now.lag_s) == ("live", "", 0, 0.0)


def test_an_application_without_a_subscriber_waits(rig: Rig) -> None:
    rig.subscribe().next(Opened)
    rig.restart()
    found = status(rig)
    assert (found.state, found.reason, found.subscriber) == ("waiting", "no subscriber", "")


def test_what_an_application_lacks_ages_while_nobody_serves_it(rig: Rig) -> None:
    rig.subscribe().next(Opened)
    rig.source.append(5)
    rig.restart()
    found = status(rig)
    assert found.state == "waiting"
    assert found.lag_s is not None
    assert found.lag_s > 1e9, "the updates are of 1970"
    rig.source.truncate(Position(0, 5))
    rig.restart()
    assert status(rig).lag_s is None, "the log does not hold them any more"


def test_metrics_tell_the_same_as_status(rig: Rig) -> None:
    rig.source.append(5)
    rig.subscribe().sequences(5)
    metrics = Metrics("publisher")
    metrics.registry.register(PublisherCollector([rig.publisher]))
    rig.publisher.problem()
    lines = metrics.render().decode().splitlines()
    assert 'tailrace_publisher_head_sequence{dataset="shop"} 5.0' in lines
    assert 'tailrace_publisher_sent_sequence{application="app",dataset="shop"} 5.0' in lines
    assert 'tailrace_publisher_lag_positions{application="app",dataset="shop"} 5.0' in lines
    assert 'tailrace_publisher_state{application="app",dataset="shop",state="catching up"} 1.0' in lines
    assert any(line.startswith("tailrace_publisher_log_bytes_total") for line in lines)
