"""Who asks, and what they may do: what a credential grants, and the caller that a request came from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from tailrace.errors import CredentialRefused

Action = Literal["subscribe", "read", "write", "admin"]
ACTIONS: Final[tuple[Action, ...]] = ("subscribe", "read", "write", "admin")
ANY: Final = "*"


@dataclass(frozen=True, slots=True)
class Scope:
    """Leave to do `actions` on `datasets`; `applications` narrows it to some of a dataset's applications."""

    actions: tuple[str, ...]
    datasets: tuple[str, ...] = (ANY,)
    applications: tuple[str, ...] = (ANY,)

    def grants(self, action: str, dataset: str, application: str | None) -> bool:
        return (
            action in self.actions
            and (ANY in self.datasets or dataset in self.datasets)
            and (application is None or ANY in self.applications or application in self.applications)
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

    def require(self, action: Action, dataset: str, application: str | None = None) -> None:
        """Raises `CredentialRefused` naming what is missing."""
        if not self.may(action, dataset, application):
            of_application = f" for application {application!r}" if application is not None else ""
            raise CredentialRefused(
                reason=f"{self.name!r} lacks the scope {action!r} on dataset {dataset!r}{of_application}"
            )


ANYONE: Final = Caller("anyone", (EVERYTHING,))  # a server without credentials, which only loopback reaches
