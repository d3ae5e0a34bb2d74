"""Credentials and TLS through the command line, on a node that asks for both."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tailrace.testing.ports import free_port
from tailrace.testing.processes import tailrace_role
from tailrace.wire.callers import EVERYTHING, Scope
from tailrace.wire.credentials import issue_credential
from tests.cli.conftest import Tailrace
from tests.wire.certificates import Authority


@dataclass(frozen=True)
class SecureNode:
    config: Path
    operator: str  # may do everything
    reader: str  # may only read
    writer: str  # may only write


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureNode]:
    folder = tmp_path_factory.mktemp("secure")
    server = Authority(folder).issue("server")
    credentials = folder / "credentials.json"
    operator = issue_credential(credentials, "operator", [EVERYTHING])
    reader = issue_credential(credentials, "reader", [Scope(("read",))])
    writer = issue_credential(credentials, "writer", [Scope(("write",))])
    config = folder / "tailrace.toml"
    address, health = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
    config.write_text(
        f"""
        version = 1
        [dataset.demo]
        shards = 4
        [store]
        listen = "{address}"
        [node]
        listen = "{address}"
        health_listen = "{health}"
        credentials_file = "credentials.json"
        [tls]
        cert_file = "{server.cert_file}"
        key_file = "{server.key_file}"
        ca_file = "{server.ca_file}"
        """
    )
    with tailrace_role("node", ["run", "--config", str(config), "--role", "node"], folder) as process:
        process.wait_ready()
        yield SecureNode(config, operator, reader, writer)


def test_with_a_credential_everything_goes_over_tls(tailrace: Tailrace, secure: SecureNode) -> None:
    said = tailrace("put", "users", "a", "n=1", "--config", secure.config, TAILRACE_CREDENTIAL=secure.operator)
    assert said.code == 0, said.err
    said = tailrace("tail", "demo", "--config", secure.config, "--from", "earliest", "--until", "head")
    assert said.lines[0].split("\t")[4] == "a"


def test_a_token_may_stand_in_a_file(tailrace: Tailrace, secure: SecureNode, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(secure.reader + "\n")
    said = tailrace("status", "--config", secure.config, "--credential-file", file)
    assert said.code == 0, said.err


def test_without_a_credential_nothing_goes(tailrace: Tailrace, secure: SecureNode) -> None:
    said = tailrace("status", "--config", secure.config)
    assert said.code == 2
    assert said.err.startswith("error: credential refused: this server asks for one")
    assert "TAILRACE_CREDENTIAL" in said.err


def test_a_wrong_credential_is_refused(tailrace: Tailrace, secure: SecureNode) -> None:
    said = tailrace("status", "--config", secure.config, TAILRACE_CREDENTIAL="operator.wrong")
    assert said.code == 2
    assert "credential refused: it is not known here" in said.err
    assert "operator.wrong" not in said.err


def test_a_credential_does_what_its_scope_says_and_no_more(tailrace: Tailrace, secure: SecureNode) -> None:
    said = tailrace("put", "users", "b", "n=1", "--config", secure.config, TAILRACE_CREDENTIAL=secure.reader)
    assert said.code == 2
    assert "'reader' lacks the scope 'write' on dataset 'demo'" in said.err


@pytest.mark.parametrize("start", ["latest", "earliest"])
def test_tail_needs_the_scope_to_read(tailrace: Tailrace, secure: SecureNode, start: str) -> None:
    said = tailrace("tail", "demo", "--config", secure.config, "--from", start, TAILRACE_CREDENTIAL=secure.writer)
    assert said.code == 2
    assert said.err.startswith("error: credential refused: ")
    assert "lacks the scope 'read' on dataset 'demo'" in said.err


def test_a_server_that_nobody_signed_for_is_not_believed(
    tailrace: Tailrace, secure: SecureNode, tmp_path: Path
) -> None:
    stranger = Authority(tmp_path)
    said = tailrace(
        "status", "--config", secure.config, "--ca-file", stranger.ca_file, TAILRACE_CREDENTIAL=secure.operator
    )
    assert said.code == 1
    assert said.err.startswith("error: 127.0.0.1:")


def test_credentials_are_issued_listed_and_revoked(tailrace: Tailrace, tmp_path: Path) -> None:
    file = tmp_path / "who.json"
    issued = tailrace("credential", "issue", "cache", "--allow", "subscribe", "--dataset", "shop", "--file", file)
    token = issued.out.strip()
    assert token.startswith("cache.")
    assert token not in file.read_text()
    assert tailrace("credential", "list", "--file", file).lines[1] == "cache\tsubscribe\tshop\t*"
    again = tailrace("credential", "issue", "cache", "--allow", "subscribe", "--file", file)
    assert again.code == 2
    assert "exists already" in again.err
    unknown = tailrace("credential", "issue", "x", "--allow", "fly", "--file", file)
    assert "'fly' is none of subscribe, read, write, admin" in unknown.err
    assert tailrace("credential", "revoke", "cache", "--file", file).code == 0
    assert tailrace("credential", "list", "--file", file).lines[1:] == []
    assert tailrace("credential", "revoke", "cache", "--file", file).code == 2


def test_a_credential_that_cannot_be_kept_is_not_issued(tailrace: Tailrace, tmp_path: Path) -> None:
    issue = ("credential", "issue", "cache", "--allow", "read", "--file")
    (tmp_path / "file").touch()
    for name, why in (("no/c.json", "No such file"), ("file/c.json", "Not a directory"), ("x" * 300, "File name too")):
        file = tmp_path / name
        said = tailrace(*issue, file)
        assert (said.code, said.out) == (2, "")
        assert f"{file} cannot be written: {why}" in said.err
        assert "its folder must exist and be writable" in said.err
