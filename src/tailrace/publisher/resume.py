"""Where a stream starts again: from its flows' markers to a position that the log can be read on from.

Usually that is the least marker, and the rows that flows further ahead already have are masked out until the last of
them is reached. When the log no longer holds what follows a marker, or its history forked, reading resumes at the
oldest position, or at the last checkpoint that both histories share, and what lies between is a loss that the
application is told of. A fork that is found in the current era raises it first, where whoever runs the publisher can
do that: positions of two histories must not be mistaken for each other. How far an era that ended had been delivered is
kept, so that a flow whose marker both histories share is told of what it had seen beyond.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.errors import LogBehind, LogDiverged, LogTruncated, Unavailable
from tailrace.sources.interface import Source
from tailrace.updates.position import START, Checkpoint, Marker, Position


@dataclass(frozen=True, slots=True)
class Loss:
    """What these shards will not get: (after, until], and why. `resume` is the marker once that is acknowledged."""

    shards: tuple[int, ...]
    after: Position
    until: Position
    reason: str
    resume: Checkpoint

    @property
    def skips(self) -> bool:
        """Whether the log goes on behind the loss, rather than from an earlier place that two histories share."""
        return self.resume.position == self.until


@dataclass(frozen=True, slots=True)
class Resumption:
    """Start reading after `position`; tell `losses` first; skip what `already` says that a shard has."""

    position: Position
    losses: tuple[Loss, ...]
    already: Mapping[int, Position]


OnFork = Callable[[LogDiverged], None]  # raises the era, and has the log opened anew in it
NO_ERAS: Final[Mapping[int, Position]] = MappingProxyType({})


def resume(
    source: Source,
    markers: Mapping[int, Marker],
    on_fork: OnFork | None = None,
    delivered: Mapping[int, Position] = NO_ERAS,
) -> Resumption:
    """Decides for all the flows of a stream at once; flows that share a marker share its look-up in the log.

    Without `on_fork`, a fork is taken as it is found: the log goes on in its era, behind a loss. `delivered` says how
    far eras that ended got.
    """
    starts: dict[int, Position] = {}
    losses: list[Loss] = []
    by_marker: dict[Marker, list[int]] = {}
    for shard, marker in markers.items():
        by_marker.setdefault(marker, []).append(shard)
    for marker, shards in by_marker.items():
        position, loss = _resume_one(source, marker, tuple(shards), on_fork, delivered)
        starts.update(dict.fromkeys(shards, position))
        if loss:
            losses.append(loss)
    least = min(starts.values(), default=START)
    already = {shard: start for shard, start in starts.items() if start > least}
    return Resumption(least, tuple(losses), already)


def _resume_one(
    source: Source, marker: Marker, shards: tuple[int, ...], on_fork: OnFork | None, delivered: Mapping[int, Position]
) -> tuple[Position, Loss | None]:
    """Tries the marker, then the checkpoints before it, newest first; the log's oldest position is the last resort.

    Without `on_fork`, a log of the same era that ends before the marker is waited for: its datastore may be behind.
    """
    reason = ""
    for checkpoint in (marker.checkpoint, *marker.earlier):
        here = in_era(checkpoint.position, source.era)
        if checkpoint.witness is None and here != checkpoint.position:
            reason = reason or f"the log was started anew since {marker.position}"
            continue
        try:
            source.locate(Marker(Checkpoint(here, checkpoint.witness)))
        except LogDiverged as error:
            if here == checkpoint.position and on_fork is not None:
                on_fork(error)
                raise Unavailable(reason=f"the log is opened anew: {error}") from error
            if here == checkpoint.position and isinstance(error, LogBehind):
                raise
            reason = reason or str(error)
        except LogTruncated as error:
            oldest = max(source.bounds().after, here)
            return oldest, Loss(shards, marker.position, oldest, reason or str(error), Checkpoint(oldest, None))
        else:
            undone = max(marker.position, _undone(marker.position, source.era, delivered))
            if not reason and undone == marker.position:
                return here, None
            reason = reason or "the log's history forked behind it"
            return here, Loss(shards, here, undone, reason, Checkpoint(here, checkpoint.witness))
    oldest = source.bounds().after
    reason = f"{reason}; no checkpoint is shared: everything that the log holds comes again"
    return oldest, Loss(shards, START, marker.position, reason, Checkpoint(oldest, None))


def _undone(marker: Position, era: int, delivered: Mapping[int, Position]) -> Position:
    """The furthest that was delivered past a marker in eras that have ended since."""
    ended = [place for one, place in delivered.items() if marker.era <= one < era and place > in_era(marker, one)]
    return max(ended, default=marker)


def in_era(position: Position, era: int) -> Position:
    """The same place of the log, named in its current era."""
    return position._replace(era=era)


def without(updates: pa.RecordBatch, already: Mapping[int, Position]) -> pa.RecordBatch:
    """The rows that their shards do not have yet."""
    if not updates.num_rows or not already:
        return updates
    highest = max(already) + 1
    sequences = np.full(highest, -1, np.int64)
    indexes = np.full(highest, -1, np.int64)
    for one, position in already.items():
        sequences[one] = position.sequence
        indexes[one] = position.index
    shard = updates.column("shard").to_numpy(zero_copy_only=False)
    known = shard < highest
    place = np.where(known, shard, 0)
    sequence = updates.column("sequence").to_numpy(zero_copy_only=False)
    index = updates.column("index").to_numpy(zero_copy_only=False)
    ahead = (sequence > sequences[place]) | ((sequence == sequences[place]) & (index > indexes[place]))
    return updates.filter(pa.array(ahead | ~known))


def after(updates: pa.RecordBatch, sent: Position) -> pa.RecordBatch:
    """The rows past `sent`; a batch is sorted by position, so that they are its tail."""
    if not updates.num_rows:
        return updates
    sequence = updates.column("sequence").to_numpy(zero_copy_only=False)
    if sequence[0] > sent.sequence:
        return updates
    same = slice(*(int(np.searchsorted(sequence, sent.sequence, side=side)) for side in ("left", "right")))
    within = updates.column("index").to_numpy(zero_copy_only=False)[same]
    return updates.slice(same.start + int(np.searchsorted(within, sent.index, side="right")))


def of_shards(updates: pa.RecordBatch, shards: Sequence[int]) -> pa.RecordBatch:
    """The rows of some shards alone."""
    return updates.filter(pc.is_in(updates.column("shard"), value_set=pa.array(shards, pa.int32())))
