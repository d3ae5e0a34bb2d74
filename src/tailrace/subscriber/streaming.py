"""Updates as an async iterator: a batch is done when the next one is asked for.

The subscription's thread hands a batch over and waits until the consumer comes back for more, so that tokens are
acknowledged only behind batches that are done, and a slow consumer slows down its own stream. A consumer that stops
in the middle of a batch leaves it unacknowledged: it comes again.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path

from tailrace.runtime.clock import SYSTEM_CLOCK, Clock
from tailrace.subscriber.application import Application, StopSubscription
from tailrace.subscriber.subscription import subscribe
from tailrace.updates.batch import UpdateBatch
from tailrace.updates.filters import Filter
from tailrace.updates.position import LinePosition
from tailrace.wire.messages import Mode
from tailrace.wire.tls import TLS


class _HandOver(Application):
    """Between the subscription's thread and the event loop: one batch at a time, then None for the end."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
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
    clock: Clock = SYSTEM_CLOCK,
) -> AsyncIterator[UpdateBatch]:
    """The updates of `tailrace://host:port/dataset`, as `subscribe` delivers them; raises why they end."""
    hand_over = _HandOver(asyncio.get_running_loop())
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
        if subscription.failed is not None:
            raise subscription.failed
    finally:
        subscription.stop()
        hand_over.abandon()
        await asyncio.shield(asyncio.to_thread(subscription.close))
