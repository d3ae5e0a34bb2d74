"""Where a sequence number lies in the log, found by walking records from the nearest place that the index knows."""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

from tailrace.errors import LogTruncated
from tailrace.sources.rocksdb.blocks import Record
from tailrace.sources.rocksdb.log import Log
from tailrace.sources.rocksdb.reader import EVERYTHING, Reader

_WALK_BYTES: Final = 1 << 20


class Place(NamedTuple):
    """The record that holds a sequence number, and where the next one begins."""

    path: Path
    offset: int
    next_offset: int
    checksum: int | None  # None where the record is gone although everything after it is there, or never was
    reached: bool  # whether the log goes that far


def _walker(log: Log, after: int) -> Reader:
    return Reader(
        log, era=0, shards=1, after=after, max_batch_bytes=_WALK_BYTES, notice_gaps=True, only_walk=True
    )  # fmt: skip


def find(log: Log, sequence: int) -> Place:
    """The place of `sequence`; `LogTruncated` if something after it is gone."""
    try:
        return _walked(log, sequence, sequence - 1)
    except LogTruncated as error:
        if error.fields["oldest"] != sequence:
            raise log.truncated(sequence, error.fields["oldest"]) from error
        return _walked(log, sequence, sequence)


def _walked(log: Log, sequence: int, after: int) -> Place:
    with _walker(log, after) as reader:
        while reader.through < sequence and reader.step(sequence - 1) is not None:
            pass
        cursor = reader.cursor
        if cursor is None:
            return Place(log.wal_dir, 0, 0, None, after >= sequence)
        if reader.held_back:
            _start, _length, offset, checksum = cursor.records[cursor.taken].tolist()
            following = cursor.taken + 1
            next_offset = cursor.offset
            if following < cursor.available:
                next_offset = int(cursor.records[following, Record.OFFSET])
            return Place(cursor.file.path, offset, next_offset, checksum, True)
        reached = max(reader.next_sequence - 1, after) >= sequence
        return Place(cursor.file.path, cursor.offset, cursor.offset, None, reached)


def head(log: Log) -> tuple[int, int]:
    """(what everything after is there, where the log ends)."""
    oldest = log.oldest()
    latest = log.index.latest
    after = oldest if latest is None else max(latest.sequence, oldest)
    with _walker(log, after) as reader:
        while reader.step(EVERYTHING) is not None:
            pass
        return oldest, max(reader.next_sequence - 1, oldest)
