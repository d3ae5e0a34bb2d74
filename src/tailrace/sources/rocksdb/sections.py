"""Finds what a transaction prepared before the place where a reader began."""

from __future__ import annotations

from typing import Final

from tailrace.sources.rocksdb.cursor import LogCursor
from tailrace.sources.rocksdb.log import Log
from tailrace.sources.rocksdb.prepared import PreparedTransactions, Section
from tailrace.sources.rocksdb.tags import holds_transactions

_WALK_BYTES: Final = 1 << 20


def search_prepared(log: Log, name: bytes, number: int, offset: int) -> Section | None:
    """Walks the log from its beginning up to a place, for the last section that was prepared under `name`."""
    found: dict[bytes, Section] = {}
    keeper = PreparedTransactions(lambda _name: Section(b"", 0), found)
    for file in log.files():
        if file.number > number:
            break
        opened = log.open(file)
        if opened is None:
            continue
        cursor = LogCursor(*opened, 0, _WALK_BYTES)
        try:
            _keep_prepared(cursor, keeper, offset if file.number == number else 2**63 - 1)
        finally:
            cursor.close()
    return found.get(name)


def _keep_prepared(cursor: LogCursor, keeper: PreparedTransactions, end: int) -> None:
    further = True
    while further:
        further = cursor.advance()
        for record in range(cursor.taken, cursor.available):
            start, length, offset, _checksum = cursor.records[record].tolist()
            if offset >= end:
                return
            if cursor.compressed or holds_transactions(cursor.address + start, cursor.address + start + length):
                keeper.rewritten(cursor.plain_payload(record))
        cursor.taken = cursor.available
