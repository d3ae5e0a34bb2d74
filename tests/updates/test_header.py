"""The header record of the embedded store's write batches."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.errors import UpdateInvalid, VersionTooNew
from tailrace.updates.header import decode_header, encode_header

shard_lists = st.one_of(
    st.lists(st.integers(-1, 2**31 - 1), max_size=20),
    st.builds(lambda shard, count: [shard] * count, st.integers(0, 99), st.integers(0, 20)),
)


@given(st.integers(-(2**63), 2**63 - 1), st.integers(0, 2**64 - 1), shard_lists)
def test_what_was_encoded_is_decoded(committed_at: int, transaction: int, shards: list[int]) -> None:
    header = decode_header(encode_header(committed_at, transaction, np.array(shards, dtype=np.int32)))
    assert (header.committed_at_us, header.transaction, header.count) == (committed_at, transaction, len(shards))
    assert header.shards.tolist() == shards


def test_the_layout() -> None:
    fixed = bytes.fromhex("f554 4801 0100000000000000 0200000000000000 02000000")
    assert encode_header(1, 2, np.array([3, 4], dtype=np.int32)) == fixed + bytes.fromhex("02000000 03000000 04000000")
    assert encode_header(1, 2, np.array([3, 3], dtype=np.int32)) == fixed + bytes.fromhex("01000000 03000000")


def test_what_is_no_header_is_refused() -> None:
    good = encode_header(1, 2, np.array([3, 4], dtype=np.int32))
    for bad in (b"", good[:-1], good + b"\0", b"\xf5TP" + good[3:]):
        with pytest.raises(UpdateInvalid):
            decode_header(bad)
    with pytest.raises(VersionTooNew):
        decode_header(good[:3] + b"\x02" + good[4:])
