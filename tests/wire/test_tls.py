"""TLS, one-sided and mutual, with certificates made for the test."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.wire.certificates import Authority
from tests.wire.services import SmallService

from tailrace.errors import ConfigInvalid, Disconnected
from tailrace.wire.callers import Scope
from tailrace.wire.client import Connection
from tailrace.wire.credentials import Credentials, issue_credential
from tailrace.wire.messages import Hello, HelloReply, decode_reply
from tailrace.wire.server import Server
from tailrace.wire.tls import TLS


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("stranger"))


def says_hello(address: str, tls: TLS | None) -> bool:
    with Connection(address, tls=tls, timeout_s=5) as connection:
        return isinstance(connection.call(Hello(), decode_reply), HelloReply)


def test_a_client_that_knows_the_authority_connects(authority: Authority) -> None:
    with Server("127.0.0.1:0", [SmallService()], tls=authority.issue("server")) as server:
        assert says_hello(server.address, TLS(ca_file=authority.ca_file))
        assert says_hello(f"tailrace+tls://{server.address}", TLS(ca_file=authority.ca_file))


def test_a_client_that_knows_another_authority_does_not(authority: Authority, stranger: Authority) -> None:
    refused = pytest.raises(Disconnected)
    with Server("127.0.0.1:0", [SmallService()], tls=authority.issue("server")) as server, refused:
        says_hello(server.address, TLS(ca_file=stranger.ca_file))


def test_the_system_roots_do_not_know_a_private_authority(authority: Authority) -> None:
    refused = pytest.raises(Disconnected)
    with Server("127.0.0.1:0", [SmallService()], tls=authority.issue("server")) as server, refused:
        says_hello(f"tailrace+tls://{server.address}", None)


def test_a_plain_client_does_not_reach_a_tls_server(authority: Authority) -> None:
    refused = pytest.raises(Disconnected)
    with Server("127.0.0.1:0", [SmallService()], tls=authority.issue("server")) as server, refused:
        says_hello(server.address, None)


def test_a_certificate_for_another_name_is_refused_unless_that_name_is_expected(authority: Authority) -> None:
    tls = authority.issue("elsewhere", addresses=(), names=("db1.example",))
    with Server("127.0.0.1:0", [SmallService()], tls=tls) as server:
        with pytest.raises(Disconnected):
            says_hello(server.address, TLS(ca_file=authority.ca_file))
        assert says_hello(server.address, TLS(ca_file=authority.ca_file, server_name="db1.example"))


def test_mutual_tls_asks_the_client_for_a_certificate(authority: Authority, stranger: Authority) -> None:
    mine = authority.issue("server", mutual=True)
    with Server("127.0.0.1:0", [SmallService()], tls=mine) as server:
        assert says_hello(server.address, authority.issue("client"))
        with pytest.raises(Disconnected):
            says_hello(server.address, TLS(ca_file=authority.ca_file))
        theirs = stranger.issue("client")
        with pytest.raises(Disconnected):
            says_hello(server.address, TLS(theirs.cert_file, theirs.key_file, authority.ca_file))


def test_any_address_may_be_listened_on_with_tls_and_credentials(authority: Authority, tmp_path: Path) -> None:
    path = tmp_path / "credentials.json"
    token = issue_credential(path, "web", [Scope(("read",))])
    tls = authority.issue("server")
    with pytest.raises(ConfigInvalid, match="and credentials are not configured"):
        Server("0.0.0.0:0", [], tls=tls)
    with pytest.raises(ConfigInvalid, match="and TLS are not configured"):
        Server("0.0.0.0:0", [], Credentials(path))
    with Server("0.0.0.0:0", [SmallService()], Credentials(path), tls) as server:
        address = f"tailrace+tls://127.0.0.1:{server.port}"
        with Connection(address, token, TLS(ca_file=authority.ca_file)) as connection:
            assert isinstance(connection.call(Hello(), decode_reply), HelloReply)


@pytest.mark.parametrize(
    ("tls", "reason"),
    [
        (TLS(), "a server needs cert_file and key_file"),
        (TLS(cert_file="/nowhere/crt", key_file="/nowhere/key"), "tls.cert_file: /nowhere/crt: No such file"),
    ],
)
def test_a_server_without_its_files_is_refused(tls: TLS, reason: str) -> None:
    with pytest.raises(ConfigInvalid, match=reason):
        Server("127.0.0.1:0", [], tls=tls)


def test_a_file_that_is_no_certificate_is_refused(authority: Authority, tmp_path: Path) -> None:
    nonsense = tmp_path / "crt"
    nonsense.write_text("nonsense")
    key_file = authority.issue("server").key_file
    with pytest.raises(ConfigInvalid, match="is no PEM file"):
        Server("127.0.0.1:0", [], tls=TLS(nonsense, key_file))


def test_mutual_tls_without_an_authority_is_refused(authority: Authority) -> None:
    tls = authority.issue("server")
    with pytest.raises(ConfigInvalid, match=r"tls\.ca_file: missing"):
        Server("127.0.0.1:0", [], tls=TLS(tls.cert_file, tls.key_file, mutual=True))
