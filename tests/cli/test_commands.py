"""The commands as a whole: help, start-up, and how a mistake ends."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.cli.conftest import Tailrace

COMMANDS = (
    ("run",), ("check",), ("tail",), ("status",), ("put",), ("reached",), ("bench",), ("torture",), ("demo",),
    ("dead", "list"), ("dead", "show"), ("dead", "retry"),
    ("credential", "issue"), ("credential", "list"), ("credential", "revoke"),
)  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_the_help_of_a_command_shows_how_to_type_it(tailrace: Tailrace, command: tuple[str, ...]) -> None:
    said = tailrace(*command, "--help")
    assert said.code == 0
    assert f"  tailrace {' '.join(command)}" in said.out.replace("Usage: ", "")
    assert said.out.count(f"tailrace {' '.join(command)}") >= 2, "an example besides the usage line"


def test_help_loads_neither_arrow_nor_numba() -> None:
    program = (
        "import sys; from tailrace.cli.commands import app\n"
        "heavy = {'pyarrow', 'numba', 'numpy', 'rocksdict'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=20)


def test_version_tells_of_the_protocol_too(tailrace: Tailrace) -> None:
    said = tailrace("version")
    assert said.lines[0] == "tailrace 0.1.0"
    assert said.lines[1].startswith("protocol 1")


def test_a_command_that_does_not_exist_is_misuse(tailrace: Tailrace) -> None:
    said = tailrace("tial")
    assert said.code == 2
    assert "tial" in said.err


def test_a_server_that_is_away_is_an_error_with_a_remedy(tailrace: Tailrace) -> None:
    said = tailrace("status", "--address", "127.0.0.1:9")
    assert said.code == 1
    assert said.err.startswith("error: 127.0.0.1:9: ")
    assert "`tailrace run` starts one" in said.err
    assert "Traceback" not in said.err
    assert said.out == ""


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("tail", "demo", "--filter", "a = "), "^"),
        (("tail", "tailrace://x:y/demo"), "is no port"),
        (("status", "--address", "nowhere"), "the port is missing"),
        (("reached", "cache", "1042"), "line@era:sequence:index"),
        (("put", "users", "alice"), "nothing to write"),
        (("put", "users", "alice", "name"), "not of the form name=value"),
        (("put", "users", "alice", "name=x", "--delete"), "carries no values"),
        (("dead", "retry", "cache"), "--all"),
        (("dead", "show", "cache", "9223372036854775808"), "9223372036854775807"),
        (("dead", "show", "cache", "99999999999999999999999"), "9223372036854775807"),
        (("dead", "retry", "cache", "1", "9223372036854775808"), "9223372036854775807"),
        (("bench", "speed"), "there are: fanout"),
        (("credential", "list"), "name the file with --file"),
        (("run", "--listen", "here"), "the port is missing"),
    ],
)
def test_bad_input_is_named_and_nothing_else_happens(tailrace: Tailrace, arguments: tuple[str, ...], says: str) -> None:
    said = tailrace(*arguments)
    assert said.code == 2
    assert says in said.err
    assert "Traceback" not in said.err


def test_an_environment_variable_with_a_bad_value_is_named(tailrace: Tailrace) -> None:
    said = tailrace("run", TAILRACE_LOG="loud")
    assert said.code == 2
    assert "TAILRACE_LOG: 'loud' is none of debug, info" in said.err
