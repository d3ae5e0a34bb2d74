"""The warm-up goes through store, log, decoder and filters."""

from __future__ import annotations

from tailrace.testing.kernels import SHARDS, compile_kernels


def test_every_operation_comes_through() -> None:
    puts, deletes = 2, 1
    assert compile_kernels() == puts + deletes + SHARDS  # a range is one row for each shard
