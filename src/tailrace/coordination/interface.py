"""Who is alive, who owns what, and what everyone must agree on.

Publishers are the only ones who speak to a coordinator. What they need of it: **records** (small values that are
changed by compare-and-set), **sessions** (a lease that a process keeps while it lives), and, bound to a session,
**members** of groups and **claims** of names. **Watches** tell when any of it changed. `tests/coordination/contract.py`
holds every implementation to what is written here.

Guarantees for all of it:

- Every operation is atomic and linearizable: what a call has answered, every later call of any process sees.
- What a call has written is durable when it returns.
- `CoordinatorUnavailable` (kind RETRY) says that the outcome is not known: the operation may have taken place. Ask
  again; every operation here can be repeated after looking.
- All methods may be called from several threads.
- Leases are counted on monotonic clocks; jumps of the wall clock change nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from threading import Event
from typing import Final, Literal, NamedTuple, Protocol
from urllib.parse import quote

MAX_RECORD_BYTES: Final = 1_000_000  # ZooKeeper's limit, less its overhead
MAX_PATH_CHARS: Final = 512
LEASE_S: Final = 10.0

_PATH = re.compile(r"[^/\s]+(/[^/\s]+)*\Z")


def path_of(*names: str) -> str:
    """A record's path from names that may hold any character: `path_of("lines", "a/b")` is `lines/a%2Fb`."""
    assert all(names), f"an empty name in {names}"
    quoted = [quote(name, safe="@:+,=") for name in names]
    return "/".join(name.replace(".", "%2E") if set(name) == {"."} else name for name in quoted)


def require_path(path: str) -> str:
    """Paths are made by programs (`path_of`), so that a wrong one is a bug."""
    assert _PATH.match(path), f"{path!r} is no path: names without spaces, with single slashes between them"
    assert len(path) <= MAX_PATH_CHARS, f"the path {path[:80]!r}… has more than {MAX_PATH_CHARS} characters"
    return path


class Record(NamedTuple):
    """`version` is 1 when a record is created and rises by one with each `put`; a record created anew starts at 1."""

    value: bytes
    version: int


class Member(NamedTuple):
    id: str
    info: bytes
    session: str


class Claim(NamedTuple):
    """The right to a name. Of two claims of one name, the later one has the greater epoch, for ever."""

    name: str
    epoch: int
    session: str


class Holder(NamedTuple):
    """Who has a claim: the session, and what it was called when it was opened."""

    session: str
    session_name: str
    epoch: int


class Topic(NamedTuple):
    """Something that can be watched. A record's topic covers the records below it."""

    kind: Literal["record", "members", "claim"]
    name: str


class Watch(Protocol):
    """Wakes whoever waits for a change.

    - No wake-up is lost: a change made after the watch was created, or after its event was last cleared, sets the
      event.
    - Changes are coalesced: one wake-up may stand for many, in any order. It says that something changed, not what:
      look again. A wake-up may also come for nothing.
    - Within the process that made the change it comes at once, elsewhere within about 100 ms.
    - So: create the watch, then read; and after a wake-up clear the event (`wait` does), then read again.
    """

    event: Event

    def wait(self, timeout_s: float | None = None) -> bool:
        """Blocks until something changed, clears the event, and returns True; False if the time ran out."""

    def close(self) -> None: ...


class Session(Protocol):
    """A lease that its process keeps renewing, and what hangs on it.

    - As long as `lease_left_s() > 0` no other process sees any of this session's claims as free. It is computed from
      the moment before the last renewal was asked for; a caller that must not act on a stale claim looks at it right
      before it acts and stops some margin before it is zero.
    - A session ends by `close`, when its lease runs out because its process was stopped or cut off, or when its process
      dies (at once where the implementation can tell, at the latest with its lease). Its memberships and claims vanish
      with it, all at the same moment. It never comes back: open another one.
    - Claiming or joining on a session that has ended raises `Fenced`.
    """

    id: str
    name: str
    lease_s: float
    lost: Event  # set when the session ended in any way other than `close`

    def lease_left_s(self) -> float:
        """Seconds until others may take what this session holds; 0.0 once it has ended."""

    def on_lost(self, callback: Callable[[], None]) -> None:
        """Calls back once when the session is lost, from another thread; at once if it is lost already."""

    def join(self, group: str, member_id: str, info: bytes = b"") -> None:
        """Becomes a member, or replaces the member's info. The last session to join under an id has it."""

    def leave(self, group: str, member_id: str) -> bool:
        """Stops being a member; False if the id is not this session's."""

    def claim(self, name: str) -> Claim | None:
        """The claim, with an epoch above any that this name has had; None if another session holds it.

        Claiming what this session holds already returns the same claim.
        """

    def release(self, claim: Claim) -> bool:
        """Gives a claim back at once; False if it was no longer held."""

    def close(self) -> None:
        """Ends the session: memberships and claims are gone when it returns. Closing again does nothing."""


class Coordinator(Protocol):
    def open_session(self, name: str, *, lease_s: float = LEASE_S) -> Session:
        """Opens a session; `name` tells people and peers whose it is."""

    def members(self, group: str) -> list[Member]:
        """The members whose sessions live, by id."""

    def holder(self, name: str) -> Holder | None:
        """Who holds a claim; None if nobody does."""

    def get(self, path: str) -> Record | None: ...

    def create(self, path: str, value: bytes) -> bool:
        """Creates a record with version 1; False if there is one. Records above it need not exist."""

    def put(self, path: str, value: bytes, expected_version: int, *, under: Claim | None = None) -> int | None:
        """Replaces a record's value if it still has that version; returns the new version, None if it was refused.

        With `under`, it is also refused if that claim is over: its name was released or has had a later epoch.
        """

    def delete(self, path: str, expected_version: int) -> bool:
        """Deletes a record if it still has that version. Records below it stay."""

    def children(self, path: str) -> list[str]:
        """The names right below `path` at which, or below which, there are records, sorted. `path` may be ""."""

    def watch(self, *topics: Topic, event: Event | None = None) -> Watch:
        """Watches any of `topics`; `event` may be one that the caller shares between several watches."""

    def not_ready(self) -> list[str]:
        """A readiness check: why the coordinator cannot be relied on now."""

    def close(self) -> None:
        """Closes every session opened here, and stops its threads."""
