"""Which fault comes when: decided beforehand from the seed, so that a run can be had again.

Every kind of fault occurs once, in random order, before any occurs twice; from then on kills come twice as often. A
fault lasts for a while and is healed
before the next one begins; from one beginning to the next it is never more than `MAX_GAP_S`.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

ROLES: Final = ("store", "publisher", "subscriber")
LINKS: Final = ("subscriber-publisher", "writer-store", "publisher-store")
KINDS: Final = tuple(
    [f"kill {role}" for role in ROLES]
    + [f"stop {role}" for role in ROLES]
    + [f"{what} {link}" for what in ("cut", "stall", "half-open") for link in LINKS]
)
MAX_GAP_S: Final = 2.6  # below the promised 3 s, for what setting a fault costs
MIN_GAP_S: Final = 0.6
FIRST_S: Final = 1.0
USED_PART: Final = 0.9  # of the time in which every kind occurs, whatever the run's length
SHORTEST_FAULT_S: Final = 0.1


@dataclass(frozen=True)
class Fault:
    """`at_s` after the start this happens for `lasts_s`; `choice` picks among equals (which subscriber, which side)."""

    at_s: float
    kind: str
    lasts_s: float
    choice: float

    @property
    def action(self) -> str:
        return self.kind.partition(" ")[0]

    @property
    def target(self) -> str:
        return self.kind.partition(" ")[2]


def plan_faults(seed: int, seconds: float, kinds: Sequence[str] = KINDS) -> list[Fault]:
    """The faults of a run of this length."""
    if not kinds:
        return []
    draw = random.Random(f"faults {seed}")
    kills = [kind for kind in kinds if kind.startswith("kill ")]
    longest_gap = max(MIN_GAP_S, min(MAX_GAP_S, USED_PART * (seconds - FIRST_S) / len(kinds)))
    faults: list[Fault] = []
    at_s = FIRST_S
    order: list[str] = []
    while at_s < seconds:
        if not order:
            order = [*kinds, *kills] if faults else list(kinds)
            draw.shuffle(order)
        gap = draw.uniform(0.75, 1.0) * longest_gap
        lasts_s = draw.uniform(SHORTEST_FAULT_S, 0.8 * gap)
        faults.append(Fault(at_s, order.pop(), lasts_s, draw.random()))
        at_s += gap
    return faults
