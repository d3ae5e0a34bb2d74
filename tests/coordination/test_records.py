from __future__ import annotations

import msgspec
import pytest

from tailrace.coordination.interface import MAX_RECORD_BYTES, path_of
from tailrace.coordination.records import RecordKind
from tailrace.errors import ProtocolMismatch, RecordTooLarge, VersionTooNew


class Application(msgspec.Struct, frozen=True):
    name: str
    copies: list[str] = []


KIND = RecordKind("application", Application, known_format=2)


def test_a_record_is_json_under_its_format() -> None:
    data = KIND.encode(Application("cache", ["db1"]))
    assert data == b'{"format":2,"value":{"name":"cache","copies":["db1"]}}'
    assert KIND.decode("apps/cache", data) == Application("cache", ["db1"])


def test_a_newer_format_is_refused_before_its_value_is_looked_at() -> None:
    with pytest.raises(VersionTooNew) as caught:
        KIND.decode("apps/cache", b'{"format":3,"value":["something", "else"]}')
    assert (caught.value.what, caught.value.found, caught.value.known) == ("record apps/cache (application)", 3, 2)


@pytest.mark.parametrize("data", [b"", b"\xff", b"[]", b'{"format":1}', b'{"format":1,"value":{"copies":[]}}'])
def test_what_is_no_such_record_is_refused_with_its_path(data: bytes) -> None:
    with pytest.raises(ProtocolMismatch, match="apps/cache holds no application"):
        KIND.decode("apps/cache", data)


def test_a_record_over_the_limit_is_refused() -> None:
    with pytest.raises(RecordTooLarge, match="application"):
        KIND.encode(Application("x" * MAX_RECORD_BYTES))


@pytest.mark.parametrize(
    ("names", "path"),
    [
        (("apps", "cache"), "apps/cache"),
        (("a/b", "c d"), "a%2Fb/c%20d"),
        ((".", ".."), "%2E/%2E%2E"),
        (("ü",), "%C3%BC"),
    ],
)
def test_paths_are_made_of_any_names(names: tuple[str, ...], path: str) -> None:
    assert path_of(*names) == path
