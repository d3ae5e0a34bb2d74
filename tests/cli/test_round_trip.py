"""What goes in with `put` comes out with `tail`, shows in `status`, and is found again in `dead`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BytesIO, TextIOWrapper
from pathlib import Path
from threading import Event

import pytest

import tailrace as library
from tailrace.runtime.backoff import Backoff
from tailrace.testing.processes import tailrace_role
from tests.cli.conftest import Node, Said, Tailrace, in_a_process

DEADLINE_S = 30.0


class Picky(library.Application):
    """Refuses what it is told to, and tells what it has processed."""

    def __init__(self, refused: set[bytes]) -> None:
        self.refused = refused
        self.processed: list[bytes] = []
        self.came = Event()
        self.has_flows = Event()

    def on_shard_notice(self, shard: int) -> None:
        self.has_flows.set()

    def on_update(self, update: library.Update) -> None:
        if update.key in self.refused:
            raise ValueError(f"{update.key.decode()} tastes bad")
        self.processed.append(update.key)
        self.came.set()

    def wait_for(self, key: bytes) -> None:
        while key not in self.processed:
            self.came.clear()
            if key not in self.processed:
                assert self.came.wait(DEADLINE_S), f"{key!r} did not come; there are {self.processed}"


@contextmanager
def subscribed(node: Node, application: Picky, name: str, filter: str) -> Iterator[None]:
    policy = library.ErrorPolicy(retries=0, then="dead-letter", backoff=Backoff(first_s=0.01, limit_s=0.01))
    url = f"tailrace://{node.address}/demo"
    with library.subscribe(url, application, application=name, filter=filter, start="earliest", error_policy=policy):
        assert application.has_flows.wait(DEADLINE_S)
        yield


def tail_all(tailrace: Tailrace, node: Node, filter: str, *more: str) -> Said:
    said = tailrace("tail", "demo", *node.at, "--from", "earliest", "--until", "head", "--filter", filter, *more)
    assert said.code == 0, said.err
    return said


def test_a_write_is_tailed_with_its_position(tailrace: Tailrace, node: Node) -> None:
    said = tailrace("put", "first", "alice", "name=Alice", "city=Oslo", *node.store)
    position = said.lines[0]
    assert position.startswith("demo@0:")
    fields = tail_all(tailrace, node, "table = 'first'").lines[0].split("\t")
    assert (fields[0], *fields[2:]) == (position, "first", "put", "alice", "name=Alice city=Oslo")


def test_tail_gives_json_for_programs(tailrace: Tailrace, node: Node) -> None:
    tailrace("put", "jsons", "a", "n=1", *node.store)
    tailrace("put", "jsons", "a", "--delete", *node.store)
    lines = tail_all(tailrace, node, "table = 'jsons'", "--json").lines
    put, delete = map(json.loads, lines)
    assert (put["operation"], put["key"], put["pairs"]) == ("put", "a", {"n": "1"})
    assert (delete["operation"], delete["key"], delete["pairs"]) == ("delete", "a", {})
    assert put["committed_at"].endswith("Z")


def test_tail_starts_where_it_is_told_to(tailrace: Tailrace, node: Node) -> None:
    for key in "abc":
        assert tailrace("put", "places", key, "n=1", *node.store).code == 0
    filter = "table = 'places'"
    second = tail_all(tailrace, node, filter).lines[1].split("\t")[0]
    after = tailrace("tail", "demo", *node.at, "--from", second, "--until", "head", "--filter", filter)
    assert [line.split("\t")[4] for line in after.lines] == ["c"]
    recent = tailrace("tail", "demo", *node.at, "--from", "-5m", "--limit", "2", "--filter", filter)
    assert [line.split("\t")[4] for line in recent.lines] == ["a", "b"]
    for ages in ("-1000000000000000d", f"-{'9' * 400}d"):
        oldest = tailrace("tail", "demo", *node.at, "--from", ages, "--limit", "2", "--filter", filter)
        assert [line.split("\t")[4] for line in oldest.lines] == ["a", "b"]
    until = tailrace("tail", "demo", *node.at, "--from", "earliest", "--until", second, "--filter", filter)
    assert [line.split("\t")[4] for line in until.lines] == ["a", "b"]


def test_tail_follows_what_comes_later(tailrace: Tailrace, node: Node, tmp_path: Path) -> None:
    tailrace("put", "later", "before", "n=1", *node.store)
    options = ("--from", "earliest", "--filter", "table = 'later'", "--limit", "2")
    follower = tailrace_role("tail", ["tail", "demo", *node.at, *options], tmp_path, ready_line="demo@")
    with follower:
        follower.wait_ready()
        tailrace("put", "later", "after", "n=1", *node.store)
        assert follower.wait() == 0
    assert [line.split("\t")[4] for line in follower.log.read_text().splitlines()] == ["before", "after"]


@pytest.mark.parametrize(
    ("start", "says"),
    [("other@0:1:0", "the line of dataset 'demo' is 'demo'"), ("-5 minutes", "is no duration"), ("x", "line@era")],
)
def test_a_bad_start_is_named(tailrace: Tailrace, node: Node, start: str, says: str) -> None:
    said = tailrace("tail", "demo", *node.at, "--from", start)
    assert said.code == 2
    assert says in said.err


def test_many_writes_come_from_json_lines(tailrace: Tailrace, node: Node) -> None:
    given = "".join(json.dumps({"key": f"k{n}", "pairs": {"n": n, "none": None}}) + "\n" for n in range(200))
    given += '{"key": "k0", "delete": true}\n\n{"key": "x", "pairs": {"a": "b"}, "table": "bulk2"}\n'
    said = in_a_process("put", "bulk", *node.store, given=given)
    assert said.code == 0, said.err
    assert said.err.strip() == "202 written"
    lines = tail_all(tailrace, node, "table IN ('bulk', 'bulk2')").lines
    assert len(lines) == 202
    assert lines[3].endswith("bulk\tput\tk3\tn=3 none=NULL")
    assert lines[-1].startswith(said.out.strip())


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (b"{", "line 2: Input data was truncated; a line reads {"),
        (b'{"pairs": {}}', 'line 2: Object missing required field `key`; a line reads {"key": "a"'),
        (b'{"key": "a"}', 'line 2: it needs "pairs"'),
        (b'{"key": "a", "pairz": {}}', "line 2: Object contains unknown field `pairz`; a line reads"),
        (b'{"key": 5, "pairs": {}}', "line 2: Expected `str`, got `int` - at `$.key`"),
        (b'{"key": "a", "pairs": {}, "table": 5}', "line 2: Expected `str`, got `int` - at `$.table`"),
        (b'{"key": "a", "pairs": {}, "table": "\xc3\xa9"}', "line 2: 'é' cannot be a table's name"),
        (b'{"key": "a", "pairs": {}, "table": "no good"}', "line 2 of the input"),  # the store says so
        (b'{"key": "a", "delete": "false"}', "line 2: Expected `bool`, got `str` - at `$.delete`"),
        (b'{"key": "a", "delete": true, "pairs": {}}', "line 2: a delete carries no values"),
        (b'{"key": "a", "pairs": {"n": NaN}}', "line 2: JSON is malformed: invalid character"),
        (b'{"key": "a", "pairs": {"n": [-Infinity]}}', "line 2: JSON is malformed: invalid character"),
        (b'{"key": "a", "pairs": {"n": {"m": "\xff"}}}', "line 2: 'utf-8' codec can't decode byte 0xff"),
        (b'{"key": "a", "pairs": {"n": ' + b"[" * 200_000, "line 2: maximum recursion depth exceeded"),
    ],
    ids=lambda given: given.decode("utf-8", "replace")[:40] if isinstance(given, bytes) else "",
)
def test_a_bad_line_is_named_and_those_before_it_are_written(
    tailrace: Tailrace, node: Node, line: bytes, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = f"bad{abs(hash(line))}"
    given = BytesIO(b'{"key": "ok", "pairs": {"a": "b"}}\n' + line + b"\n")
    monkeypatch.setattr(sys, "stdin", TextIOWrapper(given))
    said = tailrace("put", table, *node.store)
    assert said.code == 2
    assert says in said.err
    assert "1 written, through line 1; what follows it may be sent again" in said.err
    assert len(tail_all(tailrace, node, f"table = '{table}'").lines) == 1


def test_of_several_lines_that_the_store_refuses_the_first_is_named(
    tailrace: Tailrace, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = (f'{{"key": "a", "pairs": {{}}, "table": "no {n}"}}\n' for n in range(1, 10))
    monkeypatch.setattr(sys, "stdin", TextIOWrapper(BytesIO("".join(lines).encode())))
    said = tailrace("put", "refused", *node.store)
    assert said.code == 2
    assert "'no 1' cannot be a table's name" in said.err
    assert said.err.splitlines()[1:] == [
        "       line 1 of the input",
        "       0 written, through line 0; what follows it may be sent again",
    ]


def test_values_of_json_lines_are_stored_as_they_were_typed(tailrace: Tailrace, node: Node) -> None:
    typed = r'{"f": 12345678901234567.89, "big": 1e400, "i": -0, "in": [1.50,{"a":null}], "s": "\u00e9", "b": true}'
    assert in_a_process("put", "typed", *node.store, given=f'{{"key": "a", "pairs": {typed}}}\n').code == 0
    stored = tail_all(tailrace, node, "table = 'typed'", "--json").json()["pairs"]
    assert stored == {
        "f": "12345678901234567.89", "big": "1e400", "i": "-0", "in": '[1.50, {"a": null}]', "s": "é", "b": "true",
    }  # fmt: skip


def test_a_key_and_a_value_may_be_any_bytes(tailrace: Tailrace, node: Node) -> None:
    said = in_a_process("put", "bytes", os.fsdecode(b"a\xff"), os.fsdecode(b"n=\xfe"), *node.store)
    assert said.code == 0, said.err
    assert in_a_process("put", "bytes", os.fsdecode(b"a\xff"), "--delete", *node.store).code == 0
    put, delete = (line.split("\t")[3:] for line in tail_all(tailrace, node, "table = 'bytes'").lines)
    assert put == ["put", "0x61ff", "n=0xfe"]
    assert delete == ["delete", "0x61ff", ""]


def test_a_name_that_is_no_text_is_refused(tailrace: Tailrace, node: Node) -> None:
    bad = os.fsdecode(b"\xff")
    for arguments, says in (
        (("put", bad, "a", "n=1", *node.store), r"'\udcff' cannot be a table's name"),
        (("put", "users", "a", f"{bad}=1", *node.store), r"the name of pair '\udcff' is no text"),
        (("dead", "list", bad, *node.at), "error: DeadList: a value cannot be sent: 'utf-8' codec can't encode"),
    ):
        said = tailrace(*arguments)
        assert said.code == 2
        assert says in said.err


def test_an_application_shows_in_status_and_reaches_a_write(tailrace: Tailrace, node: Node) -> None:
    picky = Picky(set())
    with subscribed(node, picky, "seen", "table = 'seen'"):
        said = tailrace("put", "seen", "a", "n=1", "--wait", "seen", *node.store)
        assert said.code == 0, said.err
        assert picky.processed == [b"a"]
        assert tailrace("reached", "seen", said.lines[0], *node.at).out == "reached\n"
        beyond = tailrace("reached", "seen", "demo@0:99999999:0", *node.at)
        assert beyond.code == 1
        assert beyond.out.startswith("not reached")
        status = tailrace("status", "--json", *node.at).json()
    found = next(one for one in status["applications"] if one["application"] == "seen")
    assert found["filter"] == "table = 'seen'"
    assert found["subscriber"]
    assert status["datasets"][0]["head"].startswith("0:")


def test_status_in_a_pipe_is_plain_and_complete(tailrace: Tailrace, node: Node) -> None:
    said = in_a_process("status", *node.at)
    assert "\x1b" not in said.out
    assert said.lines[0].split("\t")[:4] == ["dataset", "line", "oldest", "head"]
    assert said.lines[1].split("\t")[:2] == ["demo", "demo"]


def test_watching_status_in_a_pipe_prints_objects_until_it_is_interrupted(node: Node, tmp_path: Path) -> None:
    watching = tailrace_role("watch", ["status", "--watch", "--json", *node.at], tmp_path, ready_line="{")
    with watching:
        watching.wait_ready()
        os.kill(watching.pid, signal.SIGINT)
        assert watching.wait() == 0
    for line in watching.log.read_text().splitlines():
        assert json.loads(line)["address"] == node.address


def test_a_reader_that_has_seen_enough_is_no_error(tailrace: Tailrace, node: Node) -> None:
    for key in "ab":
        tailrace("put", "enough", key, f"pad={'x' * 40_000}", *node.store)
    command = [sys.executable, "-m", "tailrace.cli", "tail", "demo", *node.at, "--from", "earliest"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        for key in "cdef":
            tailrace("put", "enough", key, f"pad={'x' * 40_000}", *node.store)
        assert process.wait(DEADLINE_S) == 0
        assert process.stderr.read() == b""


def test_waiting_for_an_application_that_nobody_runs_is_refused(tailrace: Tailrace, node: Node) -> None:
    said = tailrace("put", "users", "a", "n=1", "--wait", "nobody", *node.store)
    assert said.code == 2
    assert "application 'nobody' does not exist" in said.err


def test_dead_letters_are_listed_shown_and_tried_again(tailrace: Tailrace, node: Node) -> None:
    picky = Picky({b"bad"})
    with subscribed(node, picky, "picky", "table = 'food'"):
        for key in ("good", "bad", "fine"):
            assert tailrace("put", "food", key, "taste=1", *node.store).code == 0
        picky.wait_for(b"fine")
        listed = until(lambda: tailrace("dead", "list", "picky", "--json", *node.at), lambda said: bool(said.out))
        letter = listed.json()
        assert (letter["key"], letter["error"].splitlines()[0]) == ("bad", "ValueError: bad tastes bad")
        shown = tailrace("dead", "show", "picky", str(letter["letter"]), *node.at)
        assert "food\tput\tbad\ttaste=1" in shown.out
        assert 'tastes bad")' in shown.out  # the line that raised
        table = tailrace("dead", "list", "picky", *node.at)
        assert [line.split("\t")[-1] for line in table.lines] == ["error", "ValueError: bad tastes bad"]
        assert tailrace("dead", "show", "picky", "999", *node.at).code == 2
        picky.refused.clear()
        retried = tailrace("dead", "retry", "picky", "--all", *node.at).out
        assert retried.startswith("picky tries 1 dead letter again as soon as its subscriber is there; ")
        picky.wait_for(b"bad")
        until(lambda: tailrace("dead", "list", "picky", *node.at), lambda said: "no dead letters" in said.out)
    assert picky.processed == [b"good", b"fine", b"bad"]


def until(ask: Callable[[], Said], enough: Callable[[Said], bool]) -> Said:
    """Asks a server until it says what is expected; it has no event for that."""
    pause = Event()
    for _ in range(100):
        said = ask()
        if enough(said):
            return said
        pause.wait(0.05)
    pytest.fail(f"it still said: {said}")
