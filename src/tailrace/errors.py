"""Every error that Tailrace raises, under one root, and what each kind asks of its reader.

An error names the thing, the place and the remedy, and carries its data as attributes so that code can act on it.
Library exceptions are translated once, at the edge where the library is called. `Kind` says what the error means for
whoever catches it; the wire carries (name, fields), so that a client raises the same class as the server did.
"""

from __future__ import annotations

import enum
from typing import Any, ClassVar


class Kind(enum.Enum):
    """What an error asks of whoever catches it."""

    RETRY = "retry"  # the world may mend by itself: try again with backoff
    STOP = "stop"  # going on would lose or corrupt something: stop and show it
    ADVICE = "advice"  # the user's mistake: say what is wrong and how to mend it


class TailraceError(Exception):
    """Root of all errors of the product. `fields` are the constructor's arguments, by name."""

    kind: ClassVar[Kind] = Kind.STOP
    template: ClassVar[str] = "{reason}"
    by_name: ClassVar[dict[str, type[TailraceError]]] = {}

    def __init__(self, **fields: Any) -> None:
        self.fields = fields
        super().__init__(self.template.format_map(_Shown(fields)))

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        TailraceError.by_name[cls.__name__] = cls

    def __getattr__(self, name: str) -> Any:
        try:
            return self.__dict__["fields"][name]
        except KeyError:
            raise AttributeError(name) from None

    def __reduce__(self) -> Any:
        return _rebuild, (type(self).__name__, self.fields)

    @staticmethod
    def rebuild(name: str, fields: dict[str, Any]) -> TailraceError:
        """The error that another process raised; an unknown name becomes a `RemoteFailed` that shows it."""
        found = TailraceError.by_name.get(name)
        if found is None:
            return RemoteFailed(reason=f"{name}: {fields}")
        return found(**fields)


class _Shown(dict[str, Any]):
    def __missing__(self, key: str) -> str:
        return "?"


def _rebuild(name: str, fields: dict[str, Any]) -> TailraceError:
    return TailraceError.rebuild(name, fields)


# ---- what a user wrote -------------------------------------------------------------------------------------------


class ConfigInvalid(TailraceError):
    """A configuration key is unknown, missing or has a value that makes no sense."""

    kind = Kind.ADVICE
    template = "{path}: {reason}"


class FilterInvalid(TailraceError):
    """A filter does not parse. The message shows the text with a caret under the place."""

    kind = Kind.ADVICE
    template = "{reason}\n  {text}\n  {caret}"

    def __init__(self, *, text: str, at: int, reason: str, caret: str = "") -> None:
        super().__init__(text=text, at=at, reason=reason, caret=caret or " " * at + "^")


class PositionInvalid(TailraceError):
    kind = Kind.ADVICE
    template = "position {text!r}: {reason}; a position reads line@era:sequence:index, as in shop@0:1042:0"


class UrlInvalid(TailraceError):
    kind = Kind.ADVICE
    template = "URL {url!r}: {reason}"


class UpdateTooLarge(TailraceError):
    kind = Kind.ADVICE
    template = "an update of {size} bytes in table {table!r} is over the limit of {limit} bytes ({setting})"


class UpdateInvalid(TailraceError):
    kind = Kind.ADVICE
    template = "an update cannot be stored: {reason}"


class NotFound(TailraceError):
    """A dataset, application, dead letter or file that was named does not exist."""

    kind = Kind.ADVICE
    template = "{what} {name!r} does not exist; {remedy}"


class ApplicationDiffers(TailraceError):
    """A subscriber asked for an application whose record says something else."""

    kind = Kind.ADVICE
    template = "application {application!r} is recorded differently: {difference}; {remedy}"


# ---- logs ---------------------------------------------------------------------------------------------------------


class LogError(TailraceError):
    """A log cannot be read on from where a reader stands."""


class LogCorrupt(LogError):
    template = "{path} at offset {offset}: {reason}"


class LogTruncated(LogError):
    """The log no longer holds what comes after `after`; what is left starts after `oldest`."""

    template = "the log of {line} was truncated: asked for everything after {after}, it starts after {oldest}"


class LogGap(LogError):
    """Sequence numbers jump although nothing was truncated: writes that bypassed the log, or a lost file."""

    template = "{path} at offset {offset}: sequence {found} follows {expected_after}; {reason}"


class LogDiverged(LogError):
    """The log's history is not the one that a marker was taken from."""

    template = "the history of {line} is not the one that marker {marker} was taken from: {reason}"


class LogBehind(LogDiverged):
    """The log ends before a marker: its tail was lost, or it is a replica that lags. The caller knows which."""

    template = "the log of {line} ends at {head}, before marker {marker}"


class DataLost(TailraceError):
    """Updates that a consumer asked for will not come, and it has not said what to do then."""

    template = "({after}, {until}] of shard {shard} is lost: {reason}; pass on_data_loss to accept that and go on"


class LogUnreadable(LogError):
    kind = Kind.RETRY
    template = "{path}: {reason}"


class VersionTooNew(TailraceError):
    """A file, message or record has a newer format than this binary knows."""

    template = "{what} has format version {found}; this version of Tailrace knows up to {known}: upgrade it"


# ---- the wire -----------------------------------------------------------------------------------------------------


class Disconnected(TailraceError):
    """The other side cannot be reached, or the connection broke."""

    kind = Kind.RETRY
    template = "{address}: {reason}"


class Unavailable(TailraceError):
    """The other side answers, but cannot serve this now."""

    kind = Kind.RETRY
    template = "{reason}"


class CredentialRefused(TailraceError):
    kind = Kind.ADVICE
    template = "credential refused: {reason}"


class ProtocolMismatch(TailraceError):
    template = "protocol: {reason}"


class RemoteFailed(TailraceError):
    """The other side failed in a way that it did not foresee."""

    kind = Kind.RETRY
    template = "{reason}"


class AcknowledgementRefused(TailraceError):
    """An acknowledgement of something that was never sent in that session, or of a session that is over."""

    template = "acknowledgement of {token} refused: {reason}"


class Fenced(TailraceError):
    """This session or owner was superseded: what it still holds must be dropped."""

    template = "{what} was superseded: {reason}"


# ---- running ------------------------------------------------------------------------------------------------------


class StoreFailed(TailraceError):
    template = "store {path}: {reason}"


class MarkersNotSaved(TailraceError):
    kind = Kind.RETRY
    template = "markers cannot be saved in {path}: {reason}; delivery goes on, markers stand still until there is room"


class CoordinatorUnavailable(TailraceError):
    kind = Kind.RETRY
    template = "coordinator {path}: {reason}"


class ApplicationFailed(TailraceError):
    """The application's own code raised on an update, and its policy is to stop."""

    template = "application {application!r} failed on {position}: {reason}"


class WorkersStuck(TailraceError):
    template = "threads {threads} did not stop within {timeout_s} s"


class ProcessFailed(TailraceError):
    """A supervised process died too often, or cannot be started."""

    template = "process {name}: {reason}"


class DatabaseFailed(TailraceError):
    """A SQLite file of Tailrace's own cannot be used."""

    template = "{path}: {reason}"


class DatabaseFull(DatabaseFailed):
    kind = Kind.RETRY
    template = "{path}: the disk is full; nothing of the transaction was written"


class DatabaseBusy(DatabaseFailed):
    kind = Kind.RETRY
    template = "{path}: another process has held its lock for {timeout_s} s"


class RecordTooLarge(TailraceError):
    kind = Kind.ADVICE
    template = "a {what} record of {size} bytes is over the coordinator's limit of {limit} bytes"
