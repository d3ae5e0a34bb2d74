"""What a program implements to receive updates."""

from __future__ import annotations

from dataclasses import dataclass

from tailrace.errors import ConfigInvalid, TailraceError
from tailrace.updates.batch import Update, UpdateBatch
from tailrace.updates.position import Position


class StopSubscription(TailraceError):
    """Raise it from an application that cannot go on, whatever its error policy says."""

    template = "the application asked to stop: {reason}"

    def __init__(self, reason: str = "no reason given") -> None:
        super().__init__(reason=reason)


@dataclass(frozen=True, slots=True)
class Token:
    """Everything up to `position` on `shards` was handed to the application before this.

    Acknowledging it means that none of that need ever come again.
    """

    number: int
    session: str
    line: str
    shards: tuple[int, ...]
    position: Position


class Application:
    """Override `on_updates`, or `on_update`, and of the others what you need.

    All are called from one thread, one at a time, in the order of the log; while one runs nothing more is read, which
    is how a slow application slows down its own publisher's stream and nobody else's. Updates may come again after a
    reconnect or restart (at least once, in order per shard), so handle them idempotently.
    """

    def on_shard_notice(self, shard: int) -> None:
        """Updates of this shard come here from now on."""

    def on_updates(self, batch: UpdateBatch) -> None:
        """A batch of updates; it counts as processed when this returns. Arrow's view of it is `batch.data`."""
        for update in batch:
            self.on_update(update)

    def on_update(self, update: Update) -> None:
        """One update, for applications that prefer it over batches."""
        raise NotImplementedError

    def on_token(self, token: Token) -> bool | None:
        """All updates up to the token were processed. False defers it to `Subscription.acknowledge`.

        Closing the subscription asks one last time, for everything that was processed until then; False then means
        that what no token covered comes again.
        """
        return True

    def on_shard_revoked(self, shard: int) -> None:
        """No more of this shard comes here: it went to another subscriber."""

    def on_data_loss(self, shard: int, after: Position, until: Position, reason: str) -> None:
        """What lay in (after, until] of this shard will not come. Returning from here accepts that."""


def require_callback(application: Application) -> None:
    """Refuses an application that would have nothing to do with updates."""
    if isinstance(application, type):
        raise ConfigInvalid(path=f"application {application.__name__}", reason="is a class; pass an instance of it")
    if not wants_batches(application) and type(application).on_update is Application.on_update:
        raise ConfigInvalid(
            path=f"application {type(application).__name__}", reason="it implements neither on_updates nor on_update"
        )


def wants_batches(application: Application) -> bool:
    return type(application).on_updates is not Application.on_updates
