"""Updates as an async iterator: a batch is done when the next one is asked for.

The subscription's thread hands a batch over and waits until the consumer comes back for more, so that tokens are
acknowledged only behind batches that are done, and a slow consumer slows down its own stream. A consumer that stops
in the middle of a batch leaves it unacknowledged: it comes again. A loss ends the iteration with an error, and is told
again next time, unless the consumer has a function for it.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from tailrace.errors import DataLost
from tailrace.runtime.clock import SYSTEM_CLOCK, Clock
from tailrace.subscriber.application import Application, StopSubscription
from tailrace.subscriber.subscription import subscribe
from tailrace.updates.batch import UpdateBatch
from tailrace.updates.filters import Filter
from tailrace.updates.position import LinePosition, Position
from tailrace.wire.messages import Mode
from tailrace.wire.tls import TLS

OnDataLoss = Callable[[int, Position, Position, str], None]


class _HandOver(Application):
    """Between the subscription's thread and the event loop: one batch at a time, then None for the end."""

    def __init__(self, loop: asyncio.AbstractEventLoop, on_data_loss: OnDataLoss | None = None) -> None:
        self._loop = loop
        self._on_data_loss = on_data_loss
        self._lost: DataLost | None = None
        self._done = threading.Event()
        self._abandoned = False
        self.batches: asyncio.Queue[UpdateBatch | None] = asyncio.Queue()

    def on_updates(self, batch: UpdateBatch) -> None:
        self._done.clear()
        if not self._abandoned:
            self._put(batch)
            self._done.wait()
        if self._abandoned:
            raise StopSubscription("its consumer stopped iterating")

    def on_data_loss(self, shard: int, after: Position, until: Position, reason: str) -> None:
        if self._on_data_loss is None:
            self._lost = DataLost(shard=shard, after=str(after), until=str(until), reason=reason)
            raise StopSubscription(str(self._lost))
        telling = self._told(self._on_data_loss, shard, after, until, reason)
        asyncio.run_coroutine_threadsafe(telling, self._loop).result()

    @staticmethod
    async def _told(on_data_loss: OnDataLoss, shard: int, after: Position, until: Position, reason: str) -> None:
        on_data_loss(shard, after, until, reason)

    def why(self, failed: BaseException | None) -> BaseException | None:
        """What the consumer is told of the subscription's end; None if it simply ended."""
        return self._lost or failed

    def end(self) -> None:
        self._put(None)

    def _put(self, batch: UpdateBatch | None) -> None:
        if not self._abandoned:
            self._loop.call_soon_threadsafe(self.batches.put_nowait, batch)

    def done(self) -> None:
        self._done.set()

    def abandon(self) -> None:
        self._abandoned = True
        self._done.set()


async def stream(
    url: str,
    *,
    application: str,
    filter: str | Filter | None = None,
    mode: Mode = "reliable",
    start: str | LinePosition = "latest",
    credential: str | None = None,
    credential_file: str | Path | None = None,
    tls: TLS | None = None,
    subscriber: str | None = None,
    on_data_loss: OnDataLoss | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> AsyncIterator[UpdateBatch]:
    """The updates of `tailrace://host:port/dataset`, as `subscribe` delivers them; raises why they end.

    `on_data_loss` is called in the event loop, as `Application.on_data_loss` is; without it a loss raises `DataLost`.
    """
    hand_over = _HandOver(asyncio.get_running_loop(), on_data_loss)
    subscription = subscribe(
        url,
        hand_over,
        application=application,
        filter=filter,
        mode=mode,
        start=start,
        credential=credential,
        credential_file=credential_file,
        tls=tls,
        subscriber=subscriber,
        clock=clock,
        on_end=hand_over.end,
    )
    try:
        while (batch := await hand_over.batches.get()) is not None:
            yield batch
            hand_over.done()
        reason = hand_over.why(subscription.failed)
        if reason is not None:
            raise reason
    finally:
        subscription.stop()
        hand_over.abandon()
        await asyncio.shield(asyncio.to_thread(subscription.close))
