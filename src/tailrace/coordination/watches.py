"""The watches of one process, and which of them a change concerns."""

from __future__ import annotations

from collections.abc import Iterable
from threading import Event, Lock

from tailrace.coordination.interface import Topic
from tailrace.runtime.clock import Clock


class LocalWatch:
    """A `Watch`: an event that its `WatchBoard` sets."""

    def __init__(self, board: WatchBoard, topics: frozenset[Topic], event: Event, clock: Clock) -> None:
        self.topics = topics
        self.event = event
        self._board = board
        self._clock = clock

    def wait(self, timeout_s: float | None = None) -> bool:
        if not self._clock.wait(self.event, timeout_s):
            return False
        self.event.clear()
        return True

    def close(self) -> None:
        self._board.remove(self)


class WatchBoard:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = Lock()
        self._watches: set[LocalWatch] = set()

    def add(self, topics: Iterable[Topic], event: Event | None) -> LocalWatch:
        watch = LocalWatch(self, frozenset(topics), event or Event(), self._clock)
        with self._lock:
            self._watches.add(watch)
        return watch

    def remove(self, watch: LocalWatch) -> None:
        with self._lock:
            self._watches.discard(watch)

    def changed(self, topics: Iterable[Topic]) -> None:
        """Wakes whoever watches one of `topics`, or a record above one."""
        concerned = {above for topic in topics for above in _and_above(topic)}
        with self._lock:
            for watch in self._watches:
                if watch.topics & concerned:
                    watch.event.set()

    def all_may_have_changed(self) -> None:
        with self._lock:
            for watch in self._watches:
                watch.event.set()


def _and_above(topic: Topic) -> list[Topic]:
    if topic.kind != "record":
        return [topic]
    names = topic.name.split("/")
    return [Topic("record", "/".join(names[:depth])) for depth in range(len(names) + 1)]
