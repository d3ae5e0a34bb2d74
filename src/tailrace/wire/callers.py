"""Who asks, and what they may do: what a credential grants, and the caller that a request came from.

A question names the application that it concerns, or none: then it concerns the dataset as a whole (its log, its
store), and a scope that is narrowed to applications does not grant it. What a caller may know of a dataset's existence
is asked with `may_in_part`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

from tailrace.errors import CredentialRefused, Unavailable
from tailrace.runtime.clock import SYSTEM_CLOCK, Clock, Deadline

Action = Literal["subscribe", "read", "write", "admin"]
ACTIONS: Final[tuple[Action, ...]] = ("subscribe", "read", "write", "admin")
ANY: Final = "*"
ASK_AGAIN_S: Final = 1.0  # after so long nothing more goes over a stream whose credential was revoked


@dataclass(frozen=True, slots=True)
class Scope:
    """Leave to do `actions` on `datasets`; `applications` narrows it to what concerns those applications alone."""

    actions: tuple[str, ...]
    datasets: tuple[str, ...] = (ANY,)
    applications: tuple[str, ...] = (ANY,)

    def grants(self, action: str, dataset: str, application: str | None = None) -> bool:
        return self.grants_in_part(dataset, action) and (ANY in self.applications or application in self.applications)

    def grants_in_part(self, dataset: str, action: str | None = None) -> bool:
        return (
            (bool(self.actions) if action is None else action in self.actions)
            and (ANY in self.datasets or dataset in self.datasets)
            and bool(self.applications)
        )


EVERYTHING: Final = Scope(actions=ACTIONS)


@dataclass(frozen=True, slots=True)
class Caller:
    """The credential that a request carried, by name, and where the request came from."""

    name: str
    scopes: tuple[Scope, ...]
    peer: str = ""

    def may(self, action: Action, dataset: str, application: str | None = None) -> bool:
        return any(scope.grants(action, dataset, application) for scope in self.scopes)

    def may_in_part(self, dataset: str, action: Action | None = None) -> bool:
        """Whether it may do this (or anything) for at least one of the dataset's applications."""
        return any(scope.grants_in_part(dataset, action) for scope in self.scopes)

    def require(self, action: Action, dataset: str, application: str | None = None) -> None:
        """Raises `CredentialRefused` naming what is missing."""
        if self.may(action, dataset, application):
            return
        what = f"the scope {action!r} on dataset {dataset!r}"
        if application is not None:
            what += f" for application {application!r}"
        elif self.may_in_part(dataset, action):
            what += " as a whole: its scope is narrowed to some applications"
        raise CredentialRefused(reason=f"{self.name!r} lacks {what}")


ANYONE: Final = Caller("anyone", (EVERYTHING,))  # a server without credentials, which only loopback reaches


class Admission:
    """A caller that was let in, for as long as its call takes. `ask` says who it is, or refuses it."""

    def __init__(self, ask: Callable[[], Caller], clock: Clock = SYSTEM_CLOCK) -> None:
        self.caller = ask()
        self._ask = ask
        self._clock = clock
        self._ask_again = Deadline(ASK_AGAIN_S, clock)

    def check(self) -> None:
        """Called for each message of a stream, asks again once a second. Raises what ends the stream."""
        if not self._ask_again.passed():
            return
        self._ask_again = Deadline(ASK_AGAIN_S, self._clock)
        if self._ask() != self.caller:
            raise Unavailable(reason=f"what the credential {self.caller.name!r} grants has changed; ask anew")
