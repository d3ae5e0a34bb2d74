"""How long to wait before trying again: exponential, bounded, jittered so that many do not come back at once.

The n-th delay is drawn from the upper half of [0, first * factor**n], cut at the limit. `Backoff` is a value without
state; `Retry` counts the attempts of one thing and forgets them when it succeeds.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random


@dataclass(frozen=True, slots=True)
class Backoff:
    first_s: float = 0.05
    limit_s: float = 5.0
    factor: float = 2.0

    def __post_init__(self) -> None:
        if not (0 < self.first_s <= self.limit_s and self.factor >= 1):
            raise ValueError(f"backoff needs 0 < first_s <= limit_s and factor >= 1: {self}")

    def delay_s(self, attempt: int, random: Random) -> float:
        """How long to wait after failed attempt number `attempt`, counted from 0."""
        longest_s = self.first_s
        for _ in range(attempt):
            if longest_s >= self.limit_s or self.factor == 1:
                break
            longest_s *= self.factor
        return min(longest_s, self.limit_s) * (0.5 + random.random() / 2)


class Retry:
    """The failed attempts of one thing in a row."""

    def __init__(self, backoff: Backoff | None = None, random: Random | None = None) -> None:
        self._backoff = backoff or Backoff()
        self._random = random or Random()
        self.attempts = 0

    def failed(self) -> float:
        """Counts a failure; returns the seconds to wait before the next attempt."""
        delay_s = self._backoff.delay_s(self.attempts, self._random)
        self.attempts += 1
        return delay_s

    def succeeded(self) -> None:
        self.attempts = 0
