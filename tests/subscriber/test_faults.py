"""Broken connections, broken for real by a proxy in between."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from tests.subscriber.recorder import Recorder

import tailrace
from tailrace.runtime.backoff import Backoff
from tailrace.subscriber import Subscription
from tailrace.testing.proxy import Proxy
from tailrace.testing.scripted_publisher import ScriptedPublisher, Session, updates
from tailrace.wire.messages import HelloReply

LEASE_S = 1.0


@pytest.fixture
def publisher() -> Iterator[ScriptedPublisher]:
    with ScriptedPublisher() as running:
        # The address of the publisher itself would lead around the proxy.
        running.answers["Hello"] = HelloReply(1, 1, "scripted", [], [])
        yield running


@pytest.fixture
def proxy(publisher: ScriptedPublisher) -> Iterator[Proxy]:
    with Proxy(("127.0.0.1", publisher.server.port)) as running:
        yield running


@pytest.fixture
def application() -> Recorder:
    return Recorder()


@pytest.fixture
def subscription(proxy: Proxy, application: Recorder) -> Iterator[Subscription]:
    url = f"tailrace://{proxy.address}/shop"
    soon = Backoff(first_s=0.01, limit_s=0.1)
    with tailrace.subscribe(url, application, application="cache", reconnect=soon) as running:
        yield running


@pytest.fixture
def session(publisher: ScriptedPublisher, subscription: Subscription, application: Recorder) -> Session:
    arrived = publisher.subscriber()
    arrived.open(lease_s=LEASE_S)
    arrived.send(updates((0, 1)))
    application.until("processed", [1])
    return arrived


def goes_on(publisher: ScriptedPublisher, application: Recorder) -> None:
    again = publisher.subscriber()
    again.open(lease_s=LEASE_S)
    again.send(updates((0, 1), (0, 2)))
    application.until("processed", [1, 2])


def test_it_comes_back_after_its_connections_were_cut(
    session: Session, publisher: ScriptedPublisher, application: Recorder, proxy: Proxy
) -> None:
    proxy.cut()
    proxy.heal()
    goes_on(publisher, application)


@pytest.mark.parametrize(
    "fault",
    [lambda proxy: proxy.half_open("client"), lambda proxy: proxy.half_open("target")],
    ids=["the subscriber believes", "the publisher believes"],
)
def test_it_comes_back_after_a_half_open_connection(
    session: Session,
    publisher: ScriptedPublisher,
    application: Recorder,
    proxy: Proxy,
    fault: Callable[[Proxy], None],
) -> None:
    fault(proxy)
    goes_on(publisher, application)
    proxy.heal()


def test_what_a_stalled_network_held_back_past_the_lease_is_not_delivered(
    session: Session,
    publisher: ScriptedPublisher,
    application: Recorder,
    proxy: Proxy,
    subscription: Subscription,
) -> None:
    proxy.stall("both")
    session.send(updates((0, 99)))
    while subscription.status.state == "live":  # the lease runs out by itself, with nothing to wait for but that
        subscription.wait(0.02)
    proxy.heal()
    goes_on(publisher, application)
    assert [99] not in application.made("updates")
