"""The embedded datastore: atomic writes to tables, durable in groups, whose log is what everything else reads.

A `Store` is RocksDB in one folder. Each write is one run of records in RocksDB's log, opened by a header record that
says when it was committed and which shards it touches; nothing else is written besides, so the log is also the queue.
`commits` holds the two threads that make writes durable, `database` the RocksDB, `folder` what stands beside it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType

import pyarrow as pa

from tailrace.errors import StoreFailed, TailraceError
from tailrace.runtime.clock import SYSTEM_CLOCK, Clock
from tailrace.store.commits import Answer, Commit, Commits, Outcome, Syncer, sync_database
from tailrace.store.database import Database
from tailrace.store.folder import SafeNote, claim_folder
from tailrace.store.operations import Prepared, WriteResult, prepare, prepare_batch
from tailrace.store.options import StoreOptions
from tailrace.wire.store_messages import Durability, Operation


class Store:
    """One open store. All methods may be called from any thread. It is also the `Horizon` of its log.

    Guarantees: a write is applied whole or not at all. Once it is answered, it is as durable as it asked for. Writes
    get rising sequences in the order in which they become visible. A read sees every write that was answered before,
    and may see one that is not durable yet; a reader of the log that obeys the horizon never does.
    """

    def __init__(self, path: Path, era: int, options: StoreOptions, clock: Clock, syncer: Syncer) -> None:
        self.path = path
        self.era = era
        self.options = options
        self._clock = clock
        claim_folder(path, options.shards)
        self._commits = Commits(self._opened(), self._opened, era=era, options=options, clock=clock, syncer=syncer)
        self._closed = False

    @classmethod
    def open(
        cls,
        path: Path | str,
        *,
        era: int,
        options: StoreOptions | None = None,
        clock: Clock = SYSTEM_CLOCK,
        syncer: Syncer = sync_database,
    ) -> Store:
        """Opens or makes the store in a folder; `StoreFailed` if it is open already or cannot be read."""
        return cls(Path(path).resolve(), era, options or StoreOptions(), clock, syncer)

    def _opened(self) -> Database:
        database = Database(self.path, self.options, self._clock)
        note = SafeNote(self.path, self._clock)
        try:
            note.require(database.latest_sequence())
            if self.options.durability == "none":  # best effort: a power cut may take back what was safe
                note.forget()
        except TailraceError:
            database.close()
            raise
        return database

    # ---- writing ---------------------------------------------------------------------------------------------------

    def write(self, operations: Sequence[Operation], *, durability: Durability | None = None) -> WriteResult:
        """Applies operations as one atomic write; returns once it is durable."""
        return self.submit(operations, durability=durability).result()

    def submit(self, operations: Sequence[Operation], *, durability: Durability | None = None) -> Future[WriteResult]:
        """As `write`, but returns at once; many writes may be under way, and share fsyncs."""
        answered: Future[WriteResult] = Future()
        answered.set_running_or_notify_cancel()

        def answer(outcomes: Sequence[Outcome]) -> None:
            outcome = outcomes[0]
            if isinstance(outcome, TailraceError):
                answered.set_exception(outcome)
            else:
                answered.set_result(outcome)

        self.submit_prepared([prepare(operations, self.options)], answer, durability=durability)
        return answered

    def write_batch(self, batch: pa.RecordBatch, *, durability: Durability | None = None) -> list[Outcome]:
        """Applies the writes in a record batch of `OPERATIONS_SCHEMA`, each atomic; one outcome per write."""
        numbered = list(prepare_batch(batch, self.options))
        valid = [entry.write for entry in numbered if isinstance(entry.write, Prepared)]
        answered: Future[Sequence[Outcome]] = Future()
        self.submit_prepared(valid, answered.set_result, durability=durability)
        applied = iter(answered.result())
        return [next(applied) if isinstance(entry.write, Prepared) else entry.write for entry in numbered]

    def submit_prepared(
        self, writes: Sequence[Prepared], answer: Answer, *, durability: Durability | None = None
    ) -> None:
        """Queues checked writes; `answer` gets one outcome per write, in a thread of the store, and must be brief."""
        if not writes:
            answer([])
            return
        self._commits.submit(Commit(writes, durability or self.options.durability, answer))

    # ---- reading ---------------------------------------------------------------------------------------------------

    def get(self, table: str, keys: Sequence[bytes]) -> list[bytes | None]:
        """The stored value of each key, None where there is none."""
        return self._commits.database.get(table, keys)

    def scan(
        self, table: str, begin: bytes | None = None, end: bytes | None = None, limit: int | None = None
    ) -> Iterator[tuple[bytes, bytes]]:
        """The rows of [begin, end) in key order, as of one moment; at most `limit` of them."""
        for number, row in enumerate(self._commits.database.scan(table, begin, end)):
            if limit is not None and number >= limit:
                return
            yield row

    def tables(self) -> list[str]:
        return self._commits.database.tables()

    # ---- the log ---------------------------------------------------------------------------------------------------

    def identity(self) -> str:
        """Names this history: another one, in the same folder, has another identity."""
        return self._commits.database.identity

    def latest_sequence(self) -> int:
        """The last sequence that was written, safe or not."""
        return self._commits.written_through

    def safe_through(self) -> int:
        return self._commits.safe_through

    def wait_beyond(self, sequence: int, timeout_s: float) -> int:
        return self._commits.wait_beyond(sequence, timeout_s)

    def failure(self) -> StoreFailed | None:
        """Why the store takes no writes, or None."""
        return self._commits.failure

    def flush(self) -> None:
        """Moves what the log holds into tables; the log file in use ends, and grows old."""
        self._commits.database.flush()

    # ---- ending ----------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Answers the writes that are under way, then closes. Does nothing the second time."""
        if not self._closed:
            self._closed = True
            self._commits.close()
            self._commits.database.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
