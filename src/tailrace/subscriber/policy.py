"""What happens when the application raises on an update.

`stop` ends the subscription at that update, with nothing after it delivered. `retry` tries again with backoff for as
long as it takes. `dead-letter` gives up after some retries, hands the update to the publisher's dead letters and goes
on; `tailrace dead` lists them and tries them again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from tailrace.errors import ConfigInvalid
from tailrace.runtime.backoff import Backoff

PolicyName = Literal["stop", "retry", "dead-letter"]


@dataclass(frozen=True, slots=True)
class ErrorPolicy:
    """`retries` more attempts (None: without end), then `then`."""

    retries: int | None = 0
    then: Literal["stop", "dead-letter"] = "stop"
    backoff: Backoff = field(default=Backoff(first_s=0.1, limit_s=30.0))

    def __post_init__(self) -> None:
        if self.retries is not None and self.retries < 0:
            raise ConfigInvalid(path="on_error.retries", reason=f"{self.retries} is negative")
        if self.then not in ("stop", "dead-letter"):
            raise ConfigInvalid(path="on_error.then", reason=f"{self.then!r} is neither 'stop' nor 'dead-letter'")

    def tries_again(self, attempts: int) -> bool:
        """Whether to try once more after so many failed attempts."""
        return self.retries is None or attempts <= self.retries

    @classmethod
    def named(cls, name: PolicyName | ErrorPolicy) -> ErrorPolicy:
        if isinstance(name, ErrorPolicy):
            return name
        known = {"stop": STOP, "retry": RETRY, "dead-letter": DEAD_LETTER}
        if name not in known:
            raise ConfigInvalid(path="error_policy", reason=f"{name!r} is none of {', '.join(known)}")
        return known[name]


STOP = ErrorPolicy()
RETRY = ErrorPolicy(retries=None)
DEAD_LETTER = ErrorPolicy(retries=5, then="dead-letter")
