"""RocksDB as the store uses it: tables are column families, and errors say what to do.

One thread writes (`apply`); any thread reads. Column families are made by the writing thread when the first write to
them comes, so that the order of everything in the log is that thread's order.

An iterator keeps the whole RocksDB open, and the files that held its moment. So its reader only borrows it: `close`
takes it away, and so does the writing thread once a reader has rested for `MAX_SCAN_REST_S`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from threading import Lock, RLock
from typing import Any, Final

import rocksdict

from tailrace.errors import NotFound, StoreFailed, Unavailable, UpdateInvalid
from tailrace.runtime.clock import Clock
from tailrace.store.folder import identity_of, sync_log
from tailrace.store.operations import Prepared
from tailrace.store.options import MIB, StoreOptions
from tailrace.updates.header import HEADER_FAMILY, HEADER_KEY, decode_header
from tailrace.wire.store_messages import DELETE, PUT

_log = logging.getLogger(__name__)

DEFAULT_TABLE: Final = "default"
MAX_SCAN_REST_S: Final = 300.0  # between two rows, while others write; a reader that pauses for a coffee may go on
_AFTER_FAILED_WRITE: Final = "previous error"  # RocksDB refuses to fsync a log file that it could not write to


class FsyncFailed(StoreFailed):
    """Stays within this package: the pages may be gone, and a second fsync would not say so."""


class Database:
    """One open RocksDB."""

    def __init__(self, path: Path, options: StoreOptions, clock: Clock) -> None:
        self.path = path
        self._clock = clock
        self._options = options
        self._cache = rocksdict.Cache(options.block_cache_bytes)
        sync_log(path)
        try:
            known = set(rocksdict.Rdict.list_cf(str(path))) if (path / "CURRENT").exists() else set()
            families = {name: self._family() for name in known | {DEFAULT_TABLE, HEADER_FAMILY}}
            self._rocks: Any = rocksdict.Rdict(str(path), _database(options, self._cache), column_families=families)
        except Exception as error:
            raise _failed(path, error) from error
        self._handles = {name: self._rocks.get_column_family_handle(name) for name in families}
        self._readers: dict[str, Any] = {}
        self._scans: set[_Rows] = set()
        self._lock = RLock()  # nothing that keeps RocksDB open comes to be while it closes
        self.identity = identity_of(path)

    def tables(self) -> list[str]:
        return sorted(name for name in list(self._handles) if name != HEADER_FAMILY)

    def latest_sequence(self) -> int:
        return int(self._rocks.latest_sequence_number())

    def last_committed_at_us(self) -> int:
        """When the last write was made, by its header; 0 if there was none."""
        found: bytes | None = self._reader(HEADER_FAMILY).get(HEADER_KEY)
        return 0 if found is None else decode_header(found).committed_at_us

    # ---- the writing thread ----------------------------------------------------------------------------------------

    def require_tables(self, names: Sequence[str]) -> None:
        """Makes the tables that are not there yet."""
        for name in set(names) - self._handles.keys():
            self._make_table(name)

    def _make_table(self, name: str) -> None:
        if len(self._handles) > self._options.max_tables:
            reason = f"table {name!r} would be one more than store.max_tables, {self._options.max_tables}"
            raise UpdateInvalid(reason=reason)
        try:
            self._rocks.create_column_family(name, self._family())
            self._handles[name] = self._rocks.get_column_family_handle(name)
        except Exception as error:
            raise _failed(self.path, error) from error

    def begin(self) -> rocksdict.WriteBatch:
        return rocksdict.WriteBatch(raw_mode=True)

    def add(self, batch: rocksdict.WriteBatch, header: bytes, write: Prepared) -> None:
        """Appends a write, whose tables exist, under its header."""
        handles = self._handles
        put = batch.put
        put(HEADER_KEY, header, handles[HEADER_FAMILY])
        if write.kinds is None:
            for table, key, value in zip(write.tables, write.keys, write.values, strict=True):
                put(key, value, handles[table])
            return
        for kind, table, key, value in zip(write.kinds, write.tables, write.keys, write.values, strict=True):
            if kind == PUT:
                put(key, value, handles[table])
            elif kind == DELETE:
                batch.delete(key, handles[table])
            else:
                assert value is not None
                batch.delete_range(key, value, handles[table])

    def apply(self, batch: rocksdict.WriteBatch) -> None:
        """Writes a batch to the log and to the tables in memory; not fsynced."""
        try:
            self._rocks.write(batch)
        except Exception as error:
            raise _failed(self.path, error) from error
        if self._scans:
            self._drop_rested_scans(self._clock.monotonic())

    def _drop_rested_scans(self, now: float) -> None:
        for rows in tuple(self._scans):
            if rows.rested_s(now) > MAX_SCAN_REST_S:
                rows.drop(f"it rested for more than {MAX_SCAN_REST_S:g} s while others wrote")

    # ---- any thread ------------------------------------------------------------------------------------------------

    def sync(self) -> None:
        """Fsyncs everything that was applied before the call."""
        try:
            self._rocks.flush_wal(True)
        except Exception as error:
            failed = _failed(self.path, error)
            if _AFTER_FAILED_WRITE in str(error):
                raise failed from error
            reason = f"fsync failed: {failed.fields['reason']}; check the disk, then start the process again"
            raise FsyncFailed(path=str(self.path), reason=reason) from error

    def get(self, table: str, keys: Sequence[bytes]) -> list[bytes | None]:
        reader = self._table(table)
        try:
            return list(reader.get(list(keys)))
        except Exception as error:
            raise _failed(self.path, error) from error

    def scan(self, table: str, begin: bytes | None, end: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        """Rows in key order, of one moment. `Unavailable` if the database closes, or the reader rests for too long."""
        read = rocksdict.ReadOptions()
        if end is not None:
            read.set_iterate_upper_bound(end)
        rows = None
        try:
            with self._lock:
                rows = _Rows(self._table(table).items(from_key=begin, read_opt=read))
                self._scans.add(rows)
            while (row := rows.next()) is not None:
                yield row
        except (NotFound, Unavailable):
            raise
        except Exception as error:
            raise _failed(self.path, error) from error
        finally:
            if rows is not None:
                self._scans.discard(rows)

    def flush(self) -> None:
        """Moves what the log holds into tables, so that the log file in use ends and becomes old."""
        with self._lock:
            readers = [self._reader(name) for name in self._handles]
        for reader in readers:
            reader.flush(True)

    def close(self) -> None:
        """Ends the use of the folder. RocksDB goes with the last reference to it, so scans end here as well."""
        with self._lock:
            if self._rocks is None:
                return
            rocks, self._rocks = self._rocks, None
            self._handles.clear()
            self._readers.clear()
        for rows in tuple(self._scans):
            rows.drop(f"store {self.path} was closed, or opened anew, meanwhile")
        try:
            rocks.close()
        except Exception as error:  # noqa: BLE001 - after a failed write it cannot flush; all of it is in the log
            _log.warning("%s", _failed(self.path, error))

    def _table(self, name: str) -> Any:
        with self._lock:
            if self._rocks is None:
                raise Unavailable(reason=f"store {self.path} is closed, or about to be opened anew")
            if name not in self._handles or name == HEADER_FAMILY:
                raise NotFound(what="table", name=name, remedy="a table is made by the first write to it")
            return self._reader(name)

    def _reader(self, table: str) -> Any:
        found = self._readers.get(table)
        if found is None:
            found = self._readers[table] = self._rocks.get_column_family(table)
        return found

    def _family(self) -> rocksdict.Options:
        family = rocksdict.Options(raw_mode=True)
        family.set_write_buffer_size(self._options.write_buffer_bytes)
        family.set_compression_type(rocksdict.DBCompressionType.lz4())
        blocks = rocksdict.BlockBasedOptions()
        blocks.set_block_cache(self._cache)
        blocks.set_bloom_filter(10, False)
        family.set_block_based_table_factory(blocks)
        return family


class _Rows:
    """An iterator and the right to take it away from its reader, who then gets `Unavailable`."""

    def __init__(self, iterator: Iterator[tuple[bytes, bytes]]) -> None:
        self._iterator: Iterator[tuple[bytes, bytes]] | None = iterator
        self._lock = Lock()
        self._why_gone = ""
        self._moved = True  # since `rested_s` last looked: a clock read at every row would cost as much as the row
        self._rests_since = 0.0

    def next(self) -> tuple[bytes, bytes] | None:
        with self._lock:
            if self._iterator is None:
                raise Unavailable(reason=f"a scan lost its place: {self._why_gone}; scan again")
            self._moved = True
            return next(self._iterator, None)

    def rested_s(self, now: float) -> float:
        """How long no row was asked for, as far as earlier calls can tell."""
        if self._moved:
            self._moved, self._rests_since = False, now
        return now - self._rests_since

    def drop(self, why: str) -> None:
        with self._lock:
            if self._iterator is not None:
                self._iterator, self._why_gone = None, why


def _database(options: StoreOptions, cache: rocksdict.Cache) -> rocksdict.Options:
    database = rocksdict.Options(raw_mode=True)
    database.create_if_missing(True)
    database.create_missing_column_families(True)
    database.set_wal_ttl_seconds(options.wal_keep_s)
    database.set_wal_size_limit_mb(max(1, options.wal_keep_bytes // MIB))
    database.set_max_total_wal_size(options.live_wal_bytes)
    database.set_db_write_buffer_size(options.all_write_buffers_bytes)
    # A hole in the log ends the replay: after a power cut, what follows the hole was never answered. Going on behind it
    # would make a history that nobody was told.
    database.set_wal_recovery_mode(rocksdict.DBRecoveryMode.point_in_time())
    database.set_max_background_jobs(2)
    database.set_keep_log_file_num(5)
    database.set_max_log_file_size(4 * MIB)
    return database


def _failed(path: Path, error: Exception) -> StoreFailed:
    text = str(error)
    if "lock" in text.lower() and ("No locks available" in text or "temporarily unavailable" in text):
        reason = "is open already; a store is opened by one process, once: stop the other one or use its address"
    elif "No space left" in text or "File too large" in text:
        reason = f"the disk is full ({text}); free space, and the store takes writes again by itself"
    elif "Corruption" in text:
        reason = f"{text}; restore the folder from a backup, or move it away to begin anew"
    else:
        reason = text
    return StoreFailed(path=str(path), reason=reason)
