"""Dead letters in the ledger."""

from __future__ import annotations

from tailrace.publisher.dead import DeadLetters, to_ipc
from tailrace.testing.clock import ManualClock
from tailrace.testing.memory_source import rows
from tests.publisher.conftest import Rig


def test_a_letter_tells_when_it_was_last_tried(rig: Rig) -> None:
    clock = ManualClock()
    dead = DeadLetters(rig.ledger, clock)

    def last_tried() -> float:
        ((letter,), _) = dead.list("shop", "app", 10)
        return letter.buried_at

    dead.bury("shop", "app", to_ipc(rows(range(1, 2))), ["boom"], 6)
    buried_at = last_tried()
    clock.advance(60.0)
    dead.retry("shop", "app", None)
    assert last_tried() == buried_at
    ((letter,), _) = dead.list("shop", "app", 10)
    dead.settle("shop", "app", [], {letter.letter: "boom again"})
    assert last_tried() == buried_at + 60.0
    clock.advance(60.0)
    dead.bury("shop", "app", to_ipc(rows(range(1, 2))), ["boom"], 6)
    assert last_tried() == buried_at + 120.0
