"""The processes of `tailrace demo` besides the node: `python -m tailrace.cli.demo_parts writer|everything|oslo|slow`.

Each is what a user would write: a program that uses `StoreClient` to write, or `tailrace.subscribe` to follow. They end
on SIGTERM, the subscribers after acknowledging what they have processed.
"""

from __future__ import annotations

import sys
from collections import deque
from concurrent.futures import Future
from random import Random
from threading import Event
from typing import Final

import tailrace
from tailrace.errors import Kind, TailraceError
from tailrace.runtime.clock import SYSTEM_CLOCK
from tailrace.runtime.logging import configure
from tailrace.runtime.tasks import drain_on_signals
from tailrace.store.client import StoreClient
from tailrace.store.operations import WriteResult

TICK_S: Final = 0.02
SLOW_UPDATE_S: Final = 0.005  # the slow application takes 200 updates/s
CITIES: Final = ("Oslo", "Bergen", "Turku", "Riga", "Gdynia")
FILTERS: Final = {"everything": None, "oslo": "city = 'Oslo' AND table = 'users'", "slow": None}


class Everything(tailrace.Application):
    """Takes batches as they come."""

    def on_updates(self, batch: tailrace.UpdateBatch) -> None:
        assert len(batch)


class Slow(tailrace.Application):
    """Takes its time for each update; nobody else waits for it."""

    def __init__(self, stop: Event) -> None:
        self._stop = stop

    def on_update(self, update: tailrace.Update) -> None:
        SYSTEM_CLOCK.wait(self._stop, SLOW_UPDATE_S)


def write(address: str, rate: float, stop: Event) -> None:
    """So many writes a second, however long each takes; a store that is away is waited for."""
    random = Random(1)
    began, written = SYSTEM_CLOCK.monotonic(), 0
    unanswered: deque[Future[WriteResult]] = deque()
    with StoreClient(f"store://{address}/demo") as client:
        while not SYSTEM_CLOCK.wait(stop, TICK_S):
            due = int((SYSTEM_CLOCK.monotonic() - began) * rate)
            try:
                while written < due:
                    written += 1
                    unanswered.append(_write_one(client, random, written))
                while unanswered and unanswered[0].done():
                    unanswered.popleft().result()
            except TailraceError as error:
                if error.kind is not Kind.RETRY:
                    raise


def _write_one(client: StoreClient, random: Random, number: int) -> Future[WriteResult]:
    if number % 5 == 0:
        order = {"user": str(random.randrange(10_000)), "cents": str(random.randrange(100, 90_000))}
        return client.put("orders", f"order-{number}".encode(), order)
    user = {"name": f"user {number}", "city": random.choice(CITIES), "visits": str(random.randrange(100))}
    return client.put("users", f"user-{random.randrange(10_000)}".encode(), user)


def follow(address: str, name: str, stop: Event) -> None:
    application = Slow(stop) if name == "slow" else Everything()
    url = f"tailrace://{address}/demo"
    with tailrace.subscribe(url, application, application=name, filter=FILTERS[name], on_end=stop.set) as subscription:
        stop.wait()
        if subscription.failed is not None:
            raise subscription.failed


def main(part: str, address: str, rate: float) -> None:
    configure(role=part)
    stop = Event()
    with drain_on_signals(stop):
        if part == "writer":
            write(address, rate, stop)
        else:
            follow(address, part, stop)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]))
