"""How an error looks to whoever typed the command: what is wrong, what to do about it, and never a traceback."""

from __future__ import annotations

import sys
from textwrap import indent
from typing import Final

from tailrace.errors import Kind, TailraceError

FAILED: Final = 1
MISUSED: Final = 2

# What to do, where the error's own text does not say it already.
_REMEDIES: Final = {
    "Disconnected": "is it running? `tailrace run` starts one; --address (or --store) names another",
    "CredentialRefused": "put the token into TAILRACE_CREDENTIAL or a file named with --credential-file; "
    "`tailrace credential issue` makes one",
    "DatabaseBusy": "is another `tailrace run` using the same data folder?",
    "MarkersNotSaved": "free some space on the disk",
    "LogCorrupt": "restore the file from a replica or a backup, or start the datastore anew: applications will be told",
    "VersionTooNew": "",
    "ProtocolMismatch": "are both sides of the same version? `tailrace version` tells",
}


def exit_code(error: TailraceError) -> int:
    return MISUSED if error.kind is Kind.ADVICE else FAILED


def show_failure(error: TailraceError) -> None:
    """On stderr: the error, the remedy if there is one to give, and what was noted where the error happened."""
    sys.stdout.flush()
    sys.stderr.write(f"error: {error}\n")
    for more in (remedy_for(error), *getattr(error, "__notes__", ())):
        if more:
            sys.stderr.write(indent(f"{more}\n", " " * len("error: ")))


def remedy_for(error: TailraceError) -> str:
    return _REMEDIES.get(type(error).__name__, "")
