"""Values that are not in the pairs codec, turned into pairs by the user's own decoder."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.updates.schema import PAIRS_TYPE, UPDATE_SCHEMA

_VALUE = "value"


class Decoder(Protocol):
    """Turns foreign values into pairs, a batch at a time.

    `tables`, `keys` and `values` have one entry per row; the answer, `map<string, binary>`, has as many. A null map
    means a row without pairs. An exception stops the source: nothing is skipped.
    """

    def decode(self, tables: pa.Array[Any], keys: pa.Array[Any], values: pa.Array[Any]) -> pa.Array[Any]: ...


def decoded(batch: pa.RecordBatch, foreign: npt.NDArray[np.int64], decoder: Decoder) -> pa.RecordBatch:
    """`batch` with the pairs of its foreign rows (`foreign`: their indices) replaced by what the decoder says."""
    rows = batch.take(foreign)
    values = pc.map_lookup(rows.column("pairs"), pa.scalar(_VALUE), "first")
    answer = decoder.decode(rows.column("table"), rows.column("key"), values)
    if len(answer) != len(foreign) or answer.type != PAIRS_TYPE:
        raise ValueError(f"the decoder returned {len(answer)} × {answer.type}, asked for {len(foreign)} × {PAIRS_TYPE}")
    order = np.arange(batch.num_rows)
    order[foreign] = batch.num_rows + np.arange(len(foreign))
    pairs = pa.concat_arrays([batch.column("pairs"), answer]).take(order)
    columns = [pairs if name == "pairs" else batch.column(name) for name in UPDATE_SCHEMA.names]
    return pa.RecordBatch.from_arrays(columns, schema=UPDATE_SCHEMA)
