"""How a reader that has read everything learns of the next commit.

With a horizon (the embedded store, in this process) it waits for that. Without one it waits for inotify to report a
change to a log file. A poll, seldom, makes up for file systems that report nothing.
"""

from __future__ import annotations

import time
from pathlib import Path
from threading import Event
from types import TracebackType
from typing import Final

from inotify_simple import INotify, flags

from tailrace.errors import LogUnreadable
from tailrace.sources.interface import Horizon
from tailrace.sources.rocksdb.reader import EVERYTHING

STOP_CHECK_S: Final = 0.05  # how soon a waiting reader notices that it is to stop
NOT_VISIBLE_S: Final = 0.001  # a horizon that is ahead of what the file shows: look again after this
_CHANGES: Final = flags.MODIFY | flags.CREATE | flags.MOVED_TO | flags.DELETE_SELF | flags.MOVE_SELF


class Waker:
    """Waits for a commit after what a reader has delivered. Used by one thread."""

    def __init__(self, wal_dir: Path, horizon: Horizon | None, poll_s: float) -> None:
        self._horizon = horizon
        self._poll_s = poll_s
        self._wal_dir = wal_dir
        self._inotify: INotify | None = None

    def __enter__(self) -> Waker:
        if self._horizon is None:
            try:
                self._inotify = INotify()
                self._inotify.add_watch(str(self._wal_dir), _CHANGES)
            except OSError as error:
                self._close()
                raise LogUnreadable(path=str(self._wal_dir), reason=f"inotify: {error}") from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    def _close(self) -> None:
        if self._inotify is not None:
            self._inotify.close()
            self._inotify = None

    def safe_through(self) -> int:
        """Up to where a reader may deliver now."""
        return EVERYTHING if self._horizon is None else self._horizon.safe_through()

    def knows_nothing_after(self, delivered: int) -> bool:
        """Whether a look at the log can be saved, as the horizon says that it would find nothing to deliver."""
        return self._horizon is not None and self._horizon.safe_through() <= delivered

    def wait(self, delivered: int, stop: Event) -> None:
        """Returns when there may be something after `delivered`, or when `stop` is set."""
        deadline = time.monotonic() + self._poll_s
        if self._horizon is not None and self._horizon.safe_through() > delivered:
            stop.wait(NOT_VISIBLE_S)
            return
        while not stop.is_set() and (left := deadline - time.monotonic()) > 0:
            slice_s = min(left, STOP_CHECK_S)
            if self._horizon is not None:
                if self._horizon.wait_beyond(delivered, slice_s) > delivered:
                    return
            elif self._inotify is not None and self._changed(slice_s):
                return

    def _changed(self, timeout_s: float) -> bool:
        assert self._inotify is not None
        events = self._inotify.read(timeout=max(int(timeout_s * 1000), 1))
        return any(event.name.endswith(".log") or not event.name for event in events)
