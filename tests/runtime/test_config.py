from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import msgspec
import pytest

from tailrace.errors import ConfigInvalid, NotFound, VersionTooNew
from tailrace.runtime.config import Within, load, parse, show_path
from tailrace.runtime.config_schema import json_schema
from tailrace.runtime.units import Duration, Size


class CacheConfig(msgspec.Struct, frozen=True, tag_field="kind", tag="cache"):
    servers: list[str]
    retries: Annotated[int, msgspec.Meta(ge=0, le=10)] = 3


class LakeConfig(msgspec.Struct, frozen=True, tag_field="kind", tag="lake"):
    path: Path


class NodeConfig(msgspec.Struct, frozen=True):
    listen: str = "127.0.0.1:7400"
    queue: Annotated[Size, Within("1MiB", "1GiB")] = Size(64 << 20)
    rates: tuple[float, ...] = ()
    labels: dict[str, int | str] = {}

    def __post_init__(self) -> None:
        if ":" not in self.listen:
            raise ConfigInvalid(path="listen", reason=f"{self.listen!r} has no port")
        if len(self.rates) > 2:
            raise ValueError("has more than two rates")


class Config(msgspec.Struct, frozen=True):
    """A node of a test."""

    app: dict[str, CacheConfig | LakeConfig] = {}
    node: NodeConfig = NodeConfig()
    marker_interval: Annotated[Duration, Within("1s", "1h")] = Duration(30)
    durability: Literal["each", "grouped", "none"] = "grouped"
    keep: Duration | None = None


def test_a_file_becomes_a_struct(tmp_path: Path) -> None:
    file = tmp_path / "tailrace.toml"
    file.write_text(
        """
        version = 1
        marker_interval = "1m30s"
        [app.hot]
        kind = "cache"
        servers = ["a:1", "b:2"]
        [app.cold]
        kind = "lake"
        path = "lake/shop"
        [node]
        queue = 2097152
        rates = [1, 2.5]
        labels = { a = 1, b = "x" }
        """
    )
    assert load(file, Config) == Config(
        app={"hot": CacheConfig(servers=["a:1", "b:2"]), "cold": LakeConfig(path=Path("lake/shop"))},
        node=NodeConfig(queue=Size(2 << 20), rates=(1.0, 2.5), labels={"a": 1, "b": "x"}),
        marker_interval=Duration(90),
    )


@pytest.mark.parametrize(
    ("text", "path", "reason"),
    [
        ("nod = {}", "nod", "unknown key; did you mean node?"),
        ("[node]\nqeue = 1", "node.qeue", "unknown key; did you mean queue?"),
        ("[node]\nzzz = 1", "node.zzz", "unknown key; known are labels, listen, queue, rates"),
        ('[app.x]\nkind = "cahe"', "app.x.kind", "'cahe' is unknown; did you mean 'cache'?"),
        ("[app.x]\nservers = []", "app.x.kind", "is missing; it is one of cache, lake"),
        ('[app.x]\nkind = "cache"', "app.x.servers", "is missing"),
        ('[app.x]\nkind = "cache"\nservers = ["a", 3]', "app.x.servers[1]", "expected `str`, got `int`"),
        ('[app.x]\nkind = "cache"\nservers = "a"', "app.x.servers", "expected a list, got text ('a')"),
        (
            '[app."x y"]\nkind = "cache"\nservers = []\nretries = 11',
            'app."x y".retries',
            "expected `int` <= 10, got 11",
        ),
        ('[app.x]\nkind = "cache"\nservers = []\nretries = true', "app.x.retries", "expected `int`, got `bool`"),
        ('[app.x]\nkind = "lake"\npath = ""', "app.x.path", "expected a path, got empty text"),
        ("app = 1", "app", "expected a table, got a number (1)"),
        ("node = 1", "node", "expected a table, got a number (1)"),
        ('marker_interval = "2h"', "marker_interval", "2h is more than 1h, the most allowed"),
        ('marker_interval = "-1s"', "marker_interval", "-1s is less than 1s, the least allowed"),
        ("marker_interval = 30", "marker_interval", 'expected text like "30s" or "5m", got a number (30)'),
        ('keep = "soon"', "keep", "'soon' is no duration; write it like 250ms, 30s, 5m, 1h30m or 7d"),
        ('durability = "eech"', "durability", "'eech' is unknown; did you mean 'each'?"),
        ('[node]\nlisten = "x"', "node.listen", "'x' has no port"),
        ("[node]\nrates = [1, 2, 3]", "node", "has more than two rates"),
        (
            "[node]\nlabels = { a = 1.5 }",
            "node.labels.a",
            "expected `int`, got `float`; or expected `str`, got `float`",
        ),
    ],
)
def test_what_is_wrong_is_named_with_its_path(text: str, path: str, reason: str) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        parse(f"version = 1\n{text}", Config)
    assert (caught.value.path, caught.value.reason) == (path, reason)


def test_all_that_is_wrong_is_told_at_once() -> None:
    text = """
    version = 1
    nod = 1
    marker_interval = "2h"
    [app.a]
    kind = "cahe"
    [app.b]
    kind = "cache"
    servers = ["a", 3, 4]
    retires = 2
    [node]
    qeue = 1
    listen = "x"
    """
    with pytest.raises(ConfigInvalid) as caught:
        parse(text, Config)
    assert [str(caught.value), *caught.value.__notes__] == [
        "nod: unknown key; did you mean node?",
        "app.a.kind: 'cahe' is unknown; did you mean 'cache'?",
        "app.b.retires: unknown key; did you mean retries?",
        "app.b.servers[1]: expected `str`, got `int`",
        "app.b.servers[2]: expected `str`, got `int`",
        "node.qeue: unknown key; did you mean queue?",
        "node.listen: 'x' has no port",
        "marker_interval: 2h is more than 1h, the most allowed",
    ]


def test_text_that_is_not_toml_is_refused_with_its_place() -> None:
    with pytest.raises(ConfigInvalid, match=r"shop.toml: is not TOML: .*line 2, column 3"):
        parse("version = 1\na b", Config, name="shop.toml")


def test_a_newer_version_is_refused() -> None:
    with pytest.raises(VersionTooNew) as caught:
        parse("version = 3\nwhatever = 1", Config, known_version=2)
    assert (caught.value.found, caught.value.known) == (3, 2)


@pytest.mark.parametrize("text", ["", "version = '1'", "version = 0", "version = true"])
def test_a_version_that_is_missing_or_wrong_is_refused(text: str) -> None:
    with pytest.raises(ConfigInvalid, match=r"version: .* version = 1"):
        parse(text, Config)


def test_a_missing_file_says_how_to_get_one(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="tailrace check --schema"):
        load(tmp_path / "tailrace.toml", Config)


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "tailrace.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigInvalid, match="UTF-8"):
        load(tmp_path / "tailrace.toml", Config)


def test_key_paths_are_shown_as_toml_writes_them() -> None:
    assert show_path(["app", "my app", "servers", 0, "host-1"]) == 'app."my app".servers[0].host-1'


def test_the_schema_refuses_unknown_keys_and_knows_the_alternatives() -> None:
    schema = json_schema(Config, title="Tailrace")
    assert schema["additionalProperties"] is False
    assert schema["description"] == "A node of a test."
    assert schema["properties"]["marker_interval"]["default"] == "30s"
    assert schema["properties"]["durability"]["enum"] == ["each", "grouped", "none"]
    alternatives = schema["properties"]["app"]["additionalProperties"]["anyOf"]
    assert [one["properties"]["kind"] for one in alternatives] == [{"const": "cache"}, {"const": "lake"}]
    assert alternatives[0]["required"] == ["kind", "servers"]
    assert alternatives[0]["properties"]["retries"] == {"type": "integer", "minimum": 0, "maximum": 10, "default": 3}
