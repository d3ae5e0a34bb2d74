"""One reader's walk along the log: each `step` makes a batch of whatever is there and safe, or says that nothing is.

A step tops up the cursor's buffer, measures what whole records fit, and builds the batch. Records that need more than
the kernels do (compressed ones, and those with parts of prepared transactions) are first rewritten into plain write
batches. What cannot be read is an error only once everything before it was delivered.
"""

from __future__ import annotations

from types import TracebackType
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tailrace.errors import LogBehind, LogCorrupt, LogDiverged, LogError, LogGap, VersionTooNew
from tailrace.sources.interface import LogBatch, Lost
from tailrace.sources.rocksdb.blocks import Record, Stop
from tailrace.sources.rocksdb.columns import build
from tailrace.sources.rocksdb.cursor import LogCursor
from tailrace.sources.rocksdb.decoding import Decoder, decoded
from tailrace.sources.rocksdb.entries import ROW_COLUMNS, Outcome, Sum, measure
from tailrace.sources.rocksdb.index import Entry
from tailrace.sources.rocksdb.log import Log
from tailrace.sources.rocksdb.prepared import PreparedTransactions, RecordInvalid, Section
from tailrace.sources.rocksdb.sections import search_prepared
from tailrace.sources.rocksdb.tail import Verdict, judge
from tailrace.sources.rocksdb.values import Kind
from tailrace.updates.position import Checkpoint, Position, Witness
from tailrace.updates.schema import EMPTY_UPDATES

ROWS_AT_FIRST: Final = 1 << 12
EVERYTHING: Final = 2**63 - 1
_REASONS: Final = {
    Outcome.SHORT: "an entry reaches beyond its record",
    Outcome.TAG: "an entry of unknown kind",
    Outcome.COUNT: "the record says that it holds another number of entries than it does",
    Outcome.HEADER: "a store's header record contradicts the operations after it",
    Outcome.TOO_LARGE: "a write batch of more than 2 GiB in one column",
}


class Reader:
    """Reads everything after sequence `after`. Used by one thread."""

    def __init__(
        self,
        log: Log,
        *,
        era: int,
        shards: int,
        after: int,
        max_batch_bytes: int,
        notice_gaps: bool = False,
        decoder: Decoder | None = None,
        only_walk: bool = False,
    ) -> None:
        self.through = after
        self.witness: Witness | None = None
        self.cursor: LogCursor | None = None
        self._log = log
        self._era = era
        self._shards = shards
        self._after = after
        self._skip_through = EVERYTHING if only_walk else after
        self._only_walk = only_walk
        self._max_batch_bytes = max_batch_bytes
        self._notice_gaps = notice_gaps
        self._decoder = decoder
        self._expected = -1
        self._rows: npt.NDArray[np.int64] = np.empty((ROWS_AT_FIRST, ROW_COLUMNS), dtype=np.int64)
        self._sums: npt.NDArray[np.int64] = np.zeros(Sum.WORDS, dtype=np.int64)
        self._families = log.families()
        self._prepared = PreparedTransactions(self._search_prepared)
        self._plain: npt.NDArray[np.uint8] = np.empty(0, dtype=np.uint8)
        self._rewritten: bytes | None = None  # the next record, if it held parts of prepared transactions
        self._newest = -1  # the number of the newest file when last looked
        self.held_back = False  # whether the next record waits for the horizon

    def __enter__(self) -> Reader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        if self.cursor is not None:
            self.cursor.close()
            self.cursor = None

    @property
    def next_sequence(self) -> int:
        """What the next record is expected to begin with; negative where nothing was read yet."""
        return self._expected

    # ---- stepping -------------------------------------------------------------------------------------------------

    def step(self, safe_through: int) -> LogBatch | None:
        """The next batch; None if nothing is there that is safe."""
        if self.cursor is None and not self._begin():
            return None
        while True:
            assert self.cursor is not None
            self.cursor.advance()
            batch = self._take(self.cursor, safe_through)
            if batch is not None:
                return batch
            if self.held_back:
                return None
            if self.cursor.taken < self.cursor.available or self._more_to_read(self.cursor):
                continue
            if judge(self._log, self.cursor, self._expected) == Verdict.HEAD:
                self._refuse_if_behind()
                return None

    @staticmethod
    def _more_to_read(cursor: LogCursor) -> bool:
        return cursor.stop == Stop.TABLE_FULL or (cursor.stop == Stop.MORE and not cursor.at_end)

    def _begin(self) -> bool:
        start = self._log.start(self._after, self._max_batch_bytes)
        if start is None:
            return False
        self.cursor, self._expected = start
        return True

    def _refuse_if_behind(self) -> None:
        """At the head: a reader that was asked to start beyond it would take new records for old ones."""
        if 0 <= self._expected <= self._after and not self._only_walk:
            head = Position(self._era, self._expected - 1)
            raise LogBehind(line=self._log.line, marker=str(Position(self._era, self._after)), head=str(head))

    def _take(self, cursor: LogCursor, safe_through: int) -> LogBatch | None:
        """Takes records as far as they fit, are plain and make sense; the outcome stays for the next call."""
        first = cursor.taken
        if cursor.compressed:
            outcome = self._take_decompressed(cursor, safe_through)
        else:
            outcome = self._measured(
                cursor, cursor.address, cursor.records, cursor.taken, cursor.available, safe_through
            )
            cursor.taken = int(self._sums[Sum.TAKEN])
        if cursor.taken == first and outcome == Outcome.TWO_PHASE:
            outcome = self._take_rewritten(cursor, safe_through)
        self.held_back = outcome == Outcome.HORIZON
        if cursor.taken == first:
            return self._stopped(cursor, outcome)
        return self._batch(cursor, first)

    def _measured(
        self, cursor: LogCursor, address: int, records: npt.NDArray[np.int64], first: int, last: int, safe_through: int
    ) -> Outcome:
        """Measures records; afterwards the sums tell how many of them were taken, and what they hold."""
        self._sums[:] = 0
        self._sums[Sum.NEXT_SEQUENCE] = self._expected
        self._sums[Sum.TAKEN] = first
        while True:
            families = self._family_table(cursor)
            outcome = Outcome(
                measure(
                    address,
                    records,
                    last,
                    families,
                    self._shards,
                    self._skip_through,
                    safe_through,
                    self._max_batch_bytes,
                    self._rows,
                    self._sums,
                )
            )
            if outcome == Outcome.ROWS_FULL:
                grown = np.empty((2 * len(self._rows) + self._shards, ROW_COLUMNS), dtype=np.int64)
                grown[: len(self._rows)] = self._rows
                self._rows = grown
            elif outcome == Outcome.UNKNOWN_FAMILY:
                self._families = self._log.families_with(int(self._sums[Sum.ARGUMENT]))
            else:
                return outcome

    def _family_table(self, cursor: LogCursor) -> npt.NDArray[np.int64]:
        """The families, with the timestamps that this file says their keys carry."""
        if not cursor.timestamp_sizes:
            return self._families.table
        table = self._families.table.copy()
        for family, size in cursor.timestamp_sizes.items():
            if family < len(table):
                table[family, 1] = size
        return table

    def _take_decompressed(self, cursor: LogCursor, safe_through: int) -> Outcome:
        """Takes records of a compressed log, laid out anew as if they had been stored plain."""
        payloads: list[bytes] = []
        size = 0
        while cursor.taken + len(payloads) < cursor.available and size < self._max_batch_bytes:
            payloads.append(cursor.plain_payload(cursor.taken + len(payloads)))
            size += len(payloads[-1])
        outcome = self._take_laid_out(cursor, payloads, safe_through)
        cursor.taken += int(self._sums[Sum.TAKEN])
        if outcome == Outcome.DONE and cursor.taken < cursor.available:
            return Outcome.SIZE
        return outcome

    def _take_rewritten(self, cursor: LogCursor, safe_through: int) -> Outcome:
        """Takes the cursor's next record alone, without the marks of prepared transactions."""
        if self._rewritten is None:
            try:
                self._rewritten = self._prepared.rewritten(cursor.plain_payload(cursor.taken))
            except RecordInvalid as error:
                raise self._corrupt(cursor, str(error)) from error
        outcome = self._take_laid_out(cursor, [self._rewritten], safe_through)
        cursor.taken += int(self._sums[Sum.TAKEN])
        return outcome

    def _take_laid_out(self, cursor: LogCursor, payloads: list[bytes], safe_through: int) -> Outcome:
        self._plain = np.frombuffer(b"".join(payloads), dtype=np.uint8)  # rows point into it until the batch is built
        table = np.zeros((len(payloads), Record.COLUMNS), dtype=np.int64)
        lengths = np.array([len(payload) for payload in payloads], dtype=np.int64)
        table[:, Record.LENGTH] = lengths
        table[:, Record.START] = np.cumsum(lengths) - lengths
        return self._measured(cursor, self._plain.ctypes.data, table, 0, len(payloads), safe_through)

    def _stopped(self, cursor: LogCursor, outcome: Outcome) -> LogBatch | None:
        """Nothing was taken: the next record is not safe yet, or it makes no sense."""
        if outcome == Outcome.DONE:
            return None
        if outcome == Outcome.HORIZON:
            return None
        if outcome == Outcome.GAP:
            return self._gap(cursor)
        raise self._refused(cursor, outcome)

    def _refused(self, cursor: LogCursor, outcome: Outcome) -> LogError | VersionTooNew:
        found = int(self._sums[Sum.FOUND])
        if outcome == Outcome.HEADER_VERSION:
            what = f"a store's header record at {cursor.file.path}:{int(cursor.records[cursor.taken, Record.OFFSET])}"
            return VersionTooNew(what=what, found="2 or more", known=1)
        if outcome == Outcome.BACKWARDS:
            reason = f"sequence {found} follows {self._expected - 1}"
            if cursor.taken == 0 and int(cursor.records[0, Record.OFFSET]) == 0:
                marker = str(Position(self._era, self._expected - 1))
                reason = f"{cursor.file.path} begins with sequence {found}: the datastore was restored or replaced"
                return LogDiverged(line=self._log.line, marker=marker, reason=reason)
            return self._corrupt(cursor, reason)
        return self._corrupt(cursor, _REASONS[outcome])

    def _corrupt(self, cursor: LogCursor, reason: str) -> LogCorrupt:
        offset = int(cursor.records[cursor.taken, Record.OFFSET])
        return LogCorrupt(path=str(cursor.file.path), offset=offset, reason=reason)

    def _gap(self, cursor: LogCursor) -> LogBatch | None:
        found = int(self._sums[Sum.FOUND])
        if found - 1 <= self._after:  # nothing that was asked for is missing
            self._expected = found
            return None
        offset = int(cursor.records[cursor.taken, Record.OFFSET])
        oldest = self._log.oldest()
        if oldest >= self._expected:
            raise self._log.truncated(self.through, oldest)
        reason = "writes that bypassed the log (disableWAL, ingestion), or a lost file"
        if not self._notice_gaps:
            raise LogGap(
                path=str(cursor.file.path), offset=offset, found=found, expected_after=self._expected - 1, reason=reason
            )
        loss = Lost(Position(self._era, self.through), Position(self._era, found - 1), reason)
        self._expected = found
        self.through = found - 1
        self.witness = None
        return LogBatch(EMPTY_UPDATES, Checkpoint(loss.until, None), 0, False, loss)

    # ---- batches --------------------------------------------------------------------------------------------------

    def _batch(self, cursor: LogCursor, first: int) -> LogBatch | None:
        sums = self._sums
        last = cursor.taken - 1
        self._rewritten = None
        self._expected = int(sums[Sum.NEXT_SEQUENCE])
        self.witness = Witness("", int(cursor.records[last, Record.CHECKSUM]))
        self._note_place(cursor, last)
        through = self._expected - 1
        if through <= self.through:
            return None
        self.through = through
        updates = self._updates() if sums[Sum.ROWS] else EMPTY_UPDATES
        records = cursor.records
        log_bytes = int(records[last, Record.OFFSET] + records[last, Record.LENGTH] - records[first, Record.OFFSET])
        checkpoint = Checkpoint(Position(self._era, through), self.witness)
        return LogBatch(updates, checkpoint, log_bytes, self._at_head(cursor))

    def _at_head(self, cursor: LogCursor) -> bool:
        if self.held_back:
            return True
        if not cursor.at_end or cursor.taken < cursor.available:
            return False
        if self._newest != cursor.file.number:
            self._newest = self._log.files()[-1].number
        return self._newest == cursor.file.number

    def _updates(self) -> pa.RecordBatch:
        batch = build(self._rows, self._sums, self._era, self._families.names, self._shards)
        if self._decoder is None or not self._sums[Sum.FOREIGN]:
            return batch
        kinds = self._rows[: batch.num_rows, 0] & 255 & ~int(Kind.MERGE)
        return decoded(batch, np.flatnonzero(kinds == Kind.FOREIGN), self._decoder)

    def _note_place(self, cursor: LogCursor, last: int) -> None:
        """Tells the index where the last record begins, unless a reader that began there would miss what it needs."""
        if cursor.compressed or cursor.timestamp_sizes:
            return
        _start, _length, offset, checksum = cursor.records[last].tolist()
        sequence = int.from_bytes(cursor.head_of(last, 8), "little")
        self._log.index.note(Entry(sequence, cursor.file.number, offset, checksum))

    def _search_prepared(self, name: bytes) -> Section | None:
        """A section that was prepared before this reader began."""
        assert self.cursor is not None
        offset = int(self.cursor.records[self.cursor.taken, Record.OFFSET])
        return search_prepared(self._log, name, self.cursor.file.number, offset)
