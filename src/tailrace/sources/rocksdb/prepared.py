"""Prepared transactions: their entries come into the log when they are prepared, and count when they are committed.

RocksDB's default policy writes the entries of a two-phase transaction between `BeginPrepare` and `EndPrepare(name)`,
where they take no sequence numbers; `Commit(name)`, in a later record, gives them theirs at that place. So a record
with such marks is rewritten before it is decoded: prepared sections leave it and are kept, and a commit mark is
replaced by the section it names. What comes out is an ordinary write batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from tailrace.sources.rocksdb.tags import BATCH_HEADER_BYTES

_BEGIN, _END, _COMMIT, _ROLLBACK, _NOOP, _LOG_DATA = 0x09, 0x0A, 0x0B, 0x0C, 0x0D, 0x03
_BEGIN_PERSISTED, _BEGIN_UNPREPARED, _COMMIT_TIMED = 0x12, 0x13, 0x15
_WITH_FAMILY: Final = frozenset((0x04, 0x05, 0x06, 0x08, 0x0E, 0x10, 0x17, 0x19))
_KEY_ONLY: Final = frozenset((0x00, 0x04, 0x07, 0x08))
_KEY_VALUE: Final = frozenset((0x01, 0x05, 0x02, 0x06, 0x0E, 0x0F, 0x10, 0x11, 0x16, 0x17, 0x18, 0x19))


class RecordInvalid(Exception):
    """A record does not parse; the reader adds the place."""


class Section(NamedTuple):
    """The entries of a prepared transaction, as they lie in the log."""

    entries: bytes
    operations: int


class _Mark(NamedTuple):
    tag: int
    name: bytes
    start: int
    end: int


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(data) and shift <= 28:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
    raise RecordInvalid("an entry reaches beyond its record")


def _text(data: bytes, at: int) -> tuple[bytes, int]:
    size, at = _varint(data, at)
    if at + size > len(data):
        raise RecordInvalid("an entry reaches beyond its record")
    return data[at : at + size], at + size


def _marks(data: bytes) -> Iterator[_Mark]:
    """All entries of a write batch: tag, the transaction's name where it has one, and where the entry lies."""
    at = BATCH_HEADER_BYTES
    while at < len(data):
        start = at
        tag = data[at]
        name = b""
        at += 1
        if tag in _WITH_FAMILY:
            _family, at = _varint(data, at)
        if tag in _KEY_VALUE or tag == _COMMIT_TIMED:
            _key, at = _text(data, at)
        if tag in _KEY_VALUE or tag in _KEY_ONLY or tag in (_LOG_DATA, _END, _COMMIT, _ROLLBACK, _COMMIT_TIMED):
            name, at = _text(data, at)
        elif tag in (_BEGIN_PERSISTED, _BEGIN_UNPREPARED):
            raise RecordInvalid(
                "the log was written with the write-prepared or write-unprepared policy, whose sequence numbers "
                "count batches; only the default policy (write-committed) can be read"
            )
        elif tag not in (_BEGIN, _NOOP):
            raise RecordInvalid(f"entry with unknown tag {tag}")
        yield _Mark(tag, name, start, at)


class PreparedTransactions:
    """The transactions that are prepared at a reader's place in the log.

    `search` finds a section that was prepared before the place where the reader began.
    """

    def __init__(self, search: Callable[[bytes], Section | None], sections: dict[bytes, Section] | None = None) -> None:
        self._sections = {} if sections is None else sections
        self._search = search

    def rewritten(self, data: bytes) -> bytes:
        """The write batch without marks: what it commits stands in it, what it prepares is kept for later."""
        parts: list[bytes] = []
        count = 0
        begun: int | None = None
        begun_count = 0
        for mark in _marks(data):
            if mark.tag == _BEGIN:
                begun, begun_count = mark.end, 0
            elif mark.tag == _END:
                if begun is None:
                    raise RecordInvalid("a prepared section ends that did not begin")
                self._sections[mark.name] = Section(data[begun : mark.start], begun_count)
                begun = None
            elif mark.tag in (_COMMIT, _COMMIT_TIMED):
                section = self._sections.pop(mark.name, None) or self._search(mark.name)
                if section is None:
                    raise RecordInvalid(
                        f"transaction {mark.name!r} is committed here, but the log no longer holds what it prepared"
                    )
                parts.append(section.entries)
                count += section.operations
            elif mark.tag == _ROLLBACK:
                self._sections.pop(mark.name, None)
            elif begun is not None:
                begun_count += mark.tag not in (_NOOP, _LOG_DATA)
            elif mark.tag not in (_NOOP, _LOG_DATA):
                parts.append(data[mark.start : mark.end])
                count += 1
        if begun is not None:
            raise RecordInvalid("a prepared section does not end")
        return data[:8] + count.to_bytes(4, "little") + b"".join(parts)
