"""What an application receives: a batch of updates, and the single update for those who prefer it.

`UpdateBatch` wraps the Arrow record batch untouched. Iterating it yields `Update` views, which know no more than their
row: a column becomes a Python list when one of them is first asked for it, a pair's values when it has been asked for
by a few rows, and everything after that is one look into a list. That keeps the per-update callback at a few hundred
nanoseconds, and costs nothing to an application that works on the Arrow batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any, Final, TypeVar, cast, overload

import numpy as np
import pyarrow as pa

from tailrace.updates.instants import EPOCH
from tailrace.updates.pair_index import PairIndex
from tailrace.updates.position import START, Position

T = TypeVar("T")

ROWS_BEFORE_COLUMN: Final = 4  # so many rows are asked for a name one by one; then it is looked up for all rows
MAX_COLUMNS: Final = 256  # names looked up for all rows of a batch; any further one is looked up row by row
_ABSENT: Final[Any] = object()


class _Rows:
    """The lists behind the updates of one batch."""

    def __init__(self, data: pa.RecordBatch) -> None:
        self._data = data
        self.values: dict[str, list[Any]] = {}
        self._asked: dict[str, int] = {}
        self._mappings: dict[str, list[Any]] = {}
        self._read = {"pairs": 0, "before": 0}
        self._last: tuple[int, dict[str, bytes | None]] = (-1, {})

    def _list(self, name: str) -> list[Any]:
        return cast("list[Any]", self._data.column(name).to_pylist())

    @cached_property
    def keys(self) -> list[bytes]:
        return self._list("key")

    @cached_property
    def shards(self) -> list[int]:
        return self._list("shard")

    @cached_property
    def tables(self) -> list[str]:
        return self._list("table")

    @cached_property
    def operations(self) -> list[str]:
        return self._list("operation")

    @cached_property
    def committed(self) -> list[int | None]:
        return self._data.column("committed_at").cast(pa.int64()).to_pylist()

    @cached_property
    def positions(self) -> list[Position]:
        return list(map(Position, self._list("era"), self._list("sequence"), self._list("index")))

    @cached_property
    def index(self) -> PairIndex:
        return PairIndex(cast(Any, self._data.column("pairs")))

    def value(self, name: str, row: int) -> Any:
        """The value of one pair, where `values` does not hold the name yet."""
        asked = self._asked.get(name, 0) + 1
        if asked <= ROWS_BEFORE_COLUMN or len(self.values) == MAX_COLUMNS:
            self._asked[name] = asked
            return self.pairs(row).get(name, _ABSENT)
        self.values[name] = column = self._column(name)
        return column[row]

    def _column(self, name: str) -> list[Any]:
        places = self.index.places(name)
        absent = places < 0
        column: list[Any] = self.index.gather(places).to_pylist()
        for row in np.flatnonzero(absent).tolist():
            column[row] = _ABSENT
        return column

    def pairs(self, row: int) -> dict[str, bytes | None]:
        """All pairs of one row. The last row's are kept, as its reader will ask for the next name."""
        if self._last[0] != row:
            self._last = (row, self.mapping("pairs", row) or {})
        return self._last[1]

    def mapping(self, column: str, row: int) -> dict[str, bytes | None] | None:
        """A row's pairs; from a list of all rows' once a few rows have been asked for."""
        rows = self._mappings.get(column)
        if rows is None:
            self._read[column] += 1
            if self._read[column] > ROWS_BEFORE_COLUMN:
                self._mappings[column] = rows = self._list(column)
        held: Any = self._data.column(column)[row].as_py() if rows is None else rows[row]
        return None if held is None else dict(held)


class Update:
    """One committed change: a view of one row of a batch."""

    __slots__ = ("_row", "_rows")

    _rows: _Rows
    _row: int

    @property
    def shard(self) -> int:
        return self._rows.shards[self._row]

    @property
    def position(self) -> Position:
        return self._rows.positions[self._row]

    @property
    def committed_at(self) -> datetime | None:
        """When the datastore committed it, as far as its log tells."""
        microseconds = self._rows.committed[self._row]
        return None if microseconds is None else EPOCH + timedelta(microseconds=microseconds)

    @property
    def table(self) -> str:
        return self._rows.tables[self._row]

    @property
    def operation(self) -> str:
        return self._rows.operations[self._row]

    @property
    def key(self) -> bytes:
        return self._rows.keys[self._row]

    @property
    def pairs(self) -> Mapping[str, bytes | None]:
        """The row or message, read when asked for; empty for an update that carries none, as a delete."""
        return _Pairs(self)

    @property
    def before(self) -> Mapping[str, bytes | None] | None:
        """The old values, where the log has them."""
        return self._rows.mapping("before", self._row)

    @overload
    def get(self, name: str) -> bytes | None: ...
    @overload
    def get(self, name: str, default: T) -> bytes | T | None: ...
    def get(self, name: str, default: Any = None) -> Any:
        """The value of a pair: None where it is NULL, `default` where there is no such pair."""
        try:
            value = self._rows.values[name][self._row]
        except KeyError:
            value = self._rows.value(name, self._row)
        return default if value is _ABSENT else value

    def __getitem__(self, name: str) -> bytes | None:
        try:
            value: Any = self._rows.values[name][self._row]
        except KeyError:
            value = self._rows.value(name, self._row)
        if value is _ABSENT:
            raise KeyError(name)
        return cast("bytes | None", value)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.get(name, _ABSENT) is not _ABSENT

    def _dict(self) -> dict[str, bytes | None]:
        return self._rows.pairs(self._row)

    def __repr__(self) -> str:
        return f"<Update {self.position} {self.operation} {self.table} {self.key!r} {self._dict()!r}>"


class _Pairs(Mapping[str, "bytes | None"]):
    """An update's pairs. Asking for one does not read the others."""

    __slots__ = ("_update",)

    def __init__(self, update: Update) -> None:
        self._update = update

    def __getitem__(self, name: str) -> bytes | None:
        return self._update[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._update._dict())

    def __len__(self) -> int:
        return len(self._update._dict())

    def __repr__(self) -> str:
        return repr(self._update._dict())


@dataclass(frozen=True, slots=True)
class UpdateBatch:
    """Updates in log order. `data` has `UPDATE_SCHEMA`; everything up to `through` is in this batch or before it.

    `epoch` is that of the flow's owner: an application can fence what was already in flight when an owner changed.
    `redelivered` says that the batch, or some of it, may have been delivered before, to this process or another one.
    Where it is False, this is the first time.
    """

    data: pa.RecordBatch
    line: str
    epoch: int
    through: Position
    redelivered: bool = False
    _rows: _Rows = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_rows", _Rows(self.data))

    def __len__(self) -> int:
        return self.data.num_rows

    def __iter__(self) -> Iterator[Update]:
        rows, new = self._rows, Update.__new__
        for row in range(self.data.num_rows):
            update = new(Update)
            update._rows = rows
            update._row = row
            yield update

    @overload
    def __getitem__(self, at: int) -> Update: ...
    @overload
    def __getitem__(self, at: slice) -> UpdateBatch: ...
    def __getitem__(self, at: int | slice) -> Update | UpdateBatch:
        if isinstance(at, slice):
            return self._slice(at)
        row = range(self.data.num_rows)[at]
        update = Update.__new__(Update)
        update._rows = self._rows
        update._row = row
        return update

    def _slice(self, at: slice) -> UpdateBatch:
        start, stop, step = at.indices(self.data.num_rows)
        if step != 1:
            raise ValueError("updates stay in log order: a batch is sliced by step 1")
        stop = max(start, stop)
        through = self.through
        if stop < self.data.num_rows:
            through = self._position(stop - 1) if stop else START
        data = self.data.slice(start, stop - start)
        return UpdateBatch(data, self.line, self.epoch, through, self.redelivered)

    def _position(self, row: int) -> Position:
        column: Any = self.data.column
        return Position(*(column(name)[row].as_py() for name in ("era", "sequence", "index")))

    @property
    def first(self) -> Position:
        """The position of the first update; IndexError if there is none."""
        return self._position(0)

    @property
    def last(self) -> Position:
        """The position of the last update; IndexError if there is none."""
        return self._position(self.data.num_rows - 1)

    def values(self, name: str) -> pa.BinaryArray:
        """The values of one pair for all updates, as an Arrow array: NULL where it is NULL or absent."""
        return self._rows.index.gather(self._rows.index.places(name))
