from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest

from tailrace.runtime.logging import Form, configure, get_log
from tailrace.runtime.secrets import Secret


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    yield io.StringIO()
    root = logging.getLogger("tailrace")
    for handler in list(root.handlers):
        root.removeHandler(handler)
    root.propagate = True
    root.setLevel(logging.NOTSET)


def test_a_line_holds_the_event_and_its_fields(lines: io.StringIO) -> None:
    configure(stream=lines, role="publisher")
    get_log("tailrace.publisher.flows").bound(dataset="shop").info("flow moved", shard=3, reason='said "no"', ok=True)
    text = lines.getvalue()
    assert text.startswith("time=20")
    assert text.endswith(
        ' level=info role=publisher logger=publisher.flows event="flow moved" dataset=shop shard=3 '
        'reason="said \\"no\\"" ok=true\n'
    )


def test_json_lines_keep_types(lines: io.StringIO) -> None:
    configure(stream=lines, form="json")
    get_log("tailrace.store").warning("disk nearly full", left_bytes=12, ratio=0.5, path=None)
    found = json.loads(lines.getvalue())
    del found["time"]
    assert found == {
        "level": "warning",
        "logger": "store",
        "event": "disk nearly full",
        "left_bytes": 12,
        "ratio": 0.5,
        "path": None,
    }


def test_levels_below_the_configured_one_are_left_out(lines: io.StringIO) -> None:
    configure(stream=lines, level="warning")
    get_log("tailrace.x").info("quiet")
    assert lines.getvalue() == ""


@pytest.mark.parametrize("form", ["logfmt", "json"])
def test_secrets_do_not_get_out(lines: io.StringIO, form: Form) -> None:
    configure(stream=lines, form=form, secrets=[Secret("hunter2")])
    log = get_log("tailrace.x")
    log.info("a", password="other1", db_password="other2", secret=Secret("other3"), token=17)
    log.info("connecting to mariadb://root:other4@db1/shop", note="the text hunter2 is registered")
    try:
        raise ValueError("bad hunter2")
    except ValueError as error:
        log.error("failed", exception=error)
    text = lines.getvalue()
    assert "hunter2" not in text
    assert "other" not in text
    assert "mariadb://root:***@db1/shop" in text
    assert "ValueError: bad ***" in text
    assert "17" in text


def test_long_values_are_cut(lines: io.StringIO) -> None:
    configure(stream=lines)
    get_log("tailrace.x").info("a", value="y" * 100_000)
    assert len(lines.getvalue()) < 5000
    assert "(100000 characters)" in lines.getvalue()


def test_configuring_again_replaces_the_first(lines: io.StringIO) -> None:
    first = io.StringIO()
    configure(stream=first)
    configure(stream=lines)
    get_log("tailrace.x").info("once")
    assert first.getvalue() == ""
    assert lines.getvalue().count("once") == 1
