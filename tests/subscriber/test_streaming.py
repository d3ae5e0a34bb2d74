"""The async iterator: a batch is done when the next one is asked for."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

import tailrace
from tailrace.errors import DataLost, LogCorrupt, UrlInvalid
from tailrace.subscriber import StopSubscription
from tailrace.subscriber.streaming import _HandOver
from tailrace.testing.scripted_publisher import LINE, ScriptedPublisher, updates
from tailrace.updates.batch import UpdateBatch
from tailrace.updates.position import Position
from tailrace.wire.messages import Acknowledge, Alive, DataLoss, Leave

BATCH = UpdateBatch(updates((0, 1)), "shop", 1, Position(0, 1))


@pytest.fixture
def publisher() -> Iterator[ScriptedPublisher]:
    with ScriptedPublisher() as running:
        yield running


async def arrived(publisher: ScriptedPublisher) -> None:
    """Opens the first stream and sends three batches and a token down it."""
    session = await asyncio.to_thread(publisher.subscriber)
    session.open()
    session.send(updates((0, 1), (0, 2)))
    session.send(updates((0, 3)))
    session.token(1, through=3)
    session.send(updates((0, 4)))


def sequences(batch: tailrace.UpdateBatch) -> list[int]:
    return [update.position.sequence for update in batch]


def test_batches_come_in_order_and_a_break_ends_the_subscription(publisher: ScriptedPublisher) -> None:
    async def consume() -> list[list[int]]:
        opening = asyncio.create_task(arrived(publisher))
        seen = []
        batches = tailrace.stream(publisher.url, application="cache")
        async for batch in batches:
            seen.append(sequences(batch))
            if len(seen) == 3:
                break
        await batches.aclose()  # type: ignore[attr-defined]
        await opening
        return seen

    assert asyncio.run(consume()) == [[1, 2], [3], [4]]
    assert publisher.heard(Leave) == [Leave("session-1")]


def test_a_batch_counts_only_once_the_next_one_is_asked_for(publisher: ScriptedPublisher) -> None:
    async def consume() -> None:
        opening = asyncio.create_task(arrived(publisher))
        batches = tailrace.stream(publisher.url, application="cache")
        assert sequences(await anext(batches)) == [1, 2]
        assert sequences(await anext(batches)) == [3]
        assert not [each for each in publisher.heard_all if isinstance(each, Acknowledge)]
        await asyncio.to_thread(publisher.heard, Alive, 1, lambda alive: alive.progress == Position(0, 2))
        assert sequences(await anext(batches)) == [4]
        acknowledged = await asyncio.to_thread(publisher.heard, Acknowledge)
        assert acknowledged == [Acknowledge("session-1", 1, 1)]
        await batches.aclose()  # type: ignore[attr-defined]
        await opening

    asyncio.run(consume())


def test_a_batch_that_was_given_up_in_its_middle_is_not_acknowledged(publisher: ScriptedPublisher) -> None:
    async def consume() -> None:
        opening = asyncio.create_task(arrived(publisher))
        batches = tailrace.stream(publisher.url, application="cache")
        await anext(batches)
        await anext(batches)
        await batches.aclose()  # type: ignore[attr-defined]
        await opening

    asyncio.run(consume())
    publisher.heard(Leave)
    last = [each for each in publisher.heard_all if isinstance(each, Acknowledge)]
    assert [each.checkpoint.position for each in last if each.checkpoint] == [Position(0, 2)]


def test_a_cancelled_consumer_ends_the_subscription(publisher: ScriptedPublisher) -> None:
    async def consume() -> None:
        waiting = asyncio.create_task(anext(tailrace.stream(publisher.url, application="cache")))  # type: ignore[arg-type]
        session = await asyncio.to_thread(publisher.subscriber)
        session.open()
        await asyncio.to_thread(publisher.heard, Alive)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    asyncio.run(consume())
    assert publisher.heard(Leave) == [Leave("session-1")]


def test_a_batch_that_comes_after_its_consumer_has_gone_waits_for_nobody() -> None:
    async def consume() -> None:
        hand_over = _HandOver(asyncio.get_running_loop())
        hand_over.abandon()
        with pytest.raises(StopSubscription, match="stopped iterating"):
            await asyncio.wait_for(asyncio.to_thread(hand_over.on_updates, BATCH), 5)
        assert hand_over.batches.empty()

    asyncio.run(consume())


def test_what_ends_the_subscription_is_raised_to_the_consumer(publisher: ScriptedPublisher) -> None:
    async def consume() -> None:
        batches = tailrace.stream(publisher.url, application="cache")
        first = asyncio.create_task(anext(batches))  # type: ignore[arg-type]
        session = await asyncio.to_thread(publisher.subscriber)
        session.open()
        session.send(updates((0, 1)))
        session.fail(LogCorrupt(path="000004.log", offset=17, reason="checksum"))
        assert sequences(await first) == [1]
        with pytest.raises(LogCorrupt, match="offset 17"):
            await anext(batches)

    asyncio.run(consume())


def test_a_mistake_is_raised_when_iteration_starts() -> None:
    async def consume() -> None:
        await anext(tailrace.stream("localhost", application="cache"))

    with pytest.raises(UrlInvalid):
        asyncio.run(consume())


def test_the_event_loop_stays_free_while_a_batch_is_awaited(publisher: ScriptedPublisher) -> None:
    async def consume() -> int:
        waiting = asyncio.create_task(anext(tailrace.stream(publisher.url, application="cache")))  # type: ignore[arg-type]
        session = await asyncio.to_thread(publisher.subscriber)
        turns = 0
        for _ in range(100):
            await asyncio.sleep(0)
            turns += 1
        session.open()
        session.send(updates((0, 1)))
        assert sequences(await waiting) == [1]
        return turns

    assert asyncio.run(consume()) == 100


LOST = DataLoss(2, LINE, [0], Position(0, 3), Position(0, 7), "the log was truncated")


async def lost(publisher: ScriptedPublisher) -> None:
    """Three updates, then a loss, then two more."""
    session = await asyncio.to_thread(publisher.subscriber)
    session.open()
    session.send(updates((0, 1), (0, 2), (0, 3)))
    session.say(LOST)
    session.send(updates((0, 8), (0, 9)))


def test_a_loss_is_raised_behind_what_came_before_it_and_is_not_acknowledged(publisher: ScriptedPublisher) -> None:
    async def consume() -> None:
        opening = asyncio.create_task(lost(publisher))
        batches = tailrace.stream(publisher.url, application="cache")
        assert sequences(await anext(batches)) == [1, 2, 3]
        with pytest.raises(DataLost, match=r"\(0:3:0, 0:7:0\] of shard 0 is lost: the log was truncated"):
            await anext(batches)
        await opening

    asyncio.run(consume())
    publisher.heard(Leave)
    assert [each for each in publisher.heard_all if isinstance(each, Acknowledge) and each.token == 2] == []


def test_a_consumer_that_hears_of_losses_goes_on_behind_them(publisher: ScriptedPublisher) -> None:
    told: list[tuple[int, Position, Position, str]] = []

    async def consume() -> None:
        opening = asyncio.create_task(lost(publisher))
        batches = tailrace.stream(publisher.url, application="cache", on_data_loss=lambda *loss: told.append(loss))
        assert sequences(await anext(batches)) == [1, 2, 3]
        assert sequences(await anext(batches)) == [8, 9]
        await batches.aclose()  # type: ignore[attr-defined]
        await opening

    asyncio.run(consume())
    assert told == [(0, Position(0, 3), Position(0, 7), "the log was truncated")]
    assert publisher.heard(Acknowledge, such=lambda each: each.token == 2)
