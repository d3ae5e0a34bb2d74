from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.runtime.units import Duration, Size


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30s", 30),
        ("5m", 300),
        ("-5m", -300),
        ("1h30m", 5400),
        ("250ms", 0.25),
        ("7d", 604800),
        ("1.5s", 1.5),
        ("0s", 0),
    ],
)
def test_durations_are_read(text: str, seconds: float) -> None:
    assert Duration.parse(text) == seconds


@pytest.mark.parametrize("text", ["", "5", "m", "5 m", "5x", "--5m", "5m-3s", "1e3s", "5m\n"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="write it like"):
        Duration.parse(text)


@given(st.integers(-(10**15), 10**15))
def test_a_duration_prints_as_it_can_be_read(microseconds: int) -> None:
    duration = Duration(microseconds / 1e6)
    assert Duration.parse(str(duration)) == pytest.approx(duration, abs=1e-6)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("8MiB", 8 << 20),
        ("1GB", 10**9),
        ("512KiB", 512 << 10),
        ("64kB", 64_000),
        ("1.5GiB", 3 << 29),
        ("7B", 7),
        ("0B", 0),
    ],
)
def test_sizes_are_read(text: str, size: int) -> None:
    assert Size.parse(text) == size


@pytest.mark.parametrize("text", ["", "8", "MiB", "8Mib", "-8MiB", "8 M", "8MiB "])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="write it like"):
        Size.parse(text)


@given(st.integers(0, 2**62))
def test_a_size_prints_as_it_can_be_read(size: int) -> None:
    assert Size.parse(str(Size(size))) == size
