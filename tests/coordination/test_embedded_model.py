"""Two processes' coordinators do what one plain dictionary does, whatever the order of operations."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tailrace.coordination.embedded import EmbeddedCoordinator
from tailrace.coordination.sessions import EmbeddedSession
from tailrace.testing.clock import ManualClock

PATHS = ("a", "a/b", "c")
NAMES = ("x", "y")
EITHER = st.integers(0, 1)


class Coordination(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self._folder = tempfile.TemporaryDirectory()
        clock = ManualClock()
        self.coordinators = [EmbeddedCoordinator(Path(self._folder.name), clock=clock) for _ in range(2)]
        self.sessions: list[EmbeddedSession] = [each.open_session("p") for each in self.coordinators]
        self.records: dict[str, tuple[bytes, int]] = {}
        self.epochs: dict[str, int] = {}
        self.holders: dict[str, int] = {}
        self.members: dict[str, tuple[bytes, int]] = {}

    def teardown(self) -> None:
        for coordinator in self.coordinators:
            coordinator.close()
        self._folder.cleanup()

    @rule(by=EITHER, path=st.sampled_from(PATHS), value=st.binary(max_size=3))
    def create(self, by: int, path: str, value: bytes) -> None:
        assert self.coordinators[by].create(path, value) is (path not in self.records)
        self.records.setdefault(path, (value, 1))

    @rule(by=EITHER, path=st.sampled_from(PATHS), value=st.binary(max_size=3), stale=st.booleans())
    def put(self, by: int, path: str, value: bytes, stale: bool) -> None:
        version = self.records.get(path, (b"", 1))[1]
        accepted = path in self.records and not stale
        answer = self.coordinators[by].put(path, value, version - stale)
        assert answer == (version + 1 if accepted else None)
        if accepted:
            self.records[path] = (value, version + 1)

    @rule(by=EITHER, path=st.sampled_from(PATHS))
    def delete(self, by: int, path: str) -> None:
        version = self.records.get(path, (b"", 1))[1]
        assert self.coordinators[by].delete(path, version) is (self.records.pop(path, None) is not None)

    @rule(by=EITHER, name=st.sampled_from(NAMES))
    def claim(self, by: int, name: str) -> None:
        claim = self.sessions[by].claim(name)
        if self.holders.get(name, by) != by:
            assert claim is None
            return
        if name not in self.holders:
            self.epochs[name] = self.epochs.get(name, 0) + 1
            self.holders[name] = by
        assert claim == (name, self.epochs[name], self.sessions[by].id)

    @rule(by=EITHER, name=st.sampled_from(NAMES))
    def release(self, by: int, name: str) -> None:
        held = self.coordinators[by].holder(name)
        if held is not None and held.session == self.sessions[by].id:
            claim = self.sessions[by].claim(name)
            assert claim is not None
            assert self.sessions[by].release(claim) is True
            del self.holders[name]

    @rule(by=EITHER, member=st.sampled_from(NAMES), info=st.binary(max_size=3))
    def join(self, by: int, member: str, info: bytes) -> None:
        self.sessions[by].join("g", member, info)
        self.members[member] = (info, by)

    @rule(by=EITHER)
    def end_session(self, by: int) -> None:
        self.sessions[by].close()
        self.sessions[by] = self.coordinators[by].open_session("p")
        self.holders = {name: holder for name, holder in self.holders.items() if holder != by}
        self.members = {member: found for member, found in self.members.items() if found[1] != by}

    @invariant()
    def both_see_the_same(self) -> None:
        for coordinator in self.coordinators:
            assert {path: coordinator.get(path) for path in PATHS} == {path: self.records.get(path) for path in PATHS}
            expected = [(member, info, self.sessions[by].id) for member, (info, by) in sorted(self.members.items())]
            assert coordinator.members("g") == expected
            found = {name: holder.session for name in NAMES if (holder := coordinator.holder(name))}
            assert found == {name: self.sessions[holder].id for name, holder in self.holders.items()}
            assert coordinator.children("") == sorted({path.partition("/")[0] for path in self.records})


TestCoordination = Coordination.TestCase
TestCoordination.settings = settings(max_examples=20, stateful_step_count=20, deadline=None)
