"""Credentials: issuing, presenting, refusing, revoking."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pytest
from tests.wire.services import Batches, SmallService

from tailrace.errors import ConfigInvalid, CredentialRefused, Unavailable, VersionTooNew
from tailrace.testing.clock import ManualClock
from tailrace.updates.schema import EMPTY_UPDATES
from tailrace.wire.callers import ASK_AGAIN_S, Caller, Scope
from tailrace.wire.client import Connection
from tailrace.wire.credentials import (
    Credentials,
    bearer,
    issue_credential,
    list_credentials,
    read_token,
    revoke_credential,
)
from tailrace.wire.messages import DeadShow, Done, Hello, HelloReply, ReadRange, Subscribe, decode_reply
from tailrace.wire.server import Server

READ_SHOP = Scope(("subscribe", "read"), ("shop",))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "credentials.json"


@pytest.fixture
def token(path: Path) -> str:
    return issue_credential(path, "web", [READ_SHOP])


def caller(path: Path, token: str) -> Caller:
    return Credentials(path).caller(bearer(token), "peer")


def test_an_issued_token_names_its_caller_and_scopes(path: Path, token: str) -> None:
    assert caller(path, token) == Caller("web", (READ_SHOP,), "peer")


def test_the_file_is_private_and_holds_no_token(path: Path, token: str) -> None:
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert token.rpartition(".")[2] not in path.read_text()


@pytest.mark.parametrize("wrong", ["web.wrong", "nobody.wrong", "web", "", "."])
def test_every_wrong_token_gets_the_same_answer(path: Path, token: str, wrong: str) -> None:
    with pytest.raises(CredentialRefused) as caught:
        caller(path, wrong)
    assert str(caught.value) == "credential refused: it is not known here; check the credential, or ask for a new one"


def test_no_token_at_all_is_refused(path: Path, token: str) -> None:
    with pytest.raises(CredentialRefused, match="none was given"):
        Credentials(path).caller(None, "peer")


def test_a_missing_scope_is_named_with_its_dataset() -> None:
    holder = Caller("web", (READ_SHOP,))
    holder.require("read", "shop")
    with pytest.raises(CredentialRefused, match="'web' lacks the scope 'write' on dataset 'shop'"):
        holder.require("write", "shop")
    with pytest.raises(CredentialRefused, match="'read' on dataset 'other'"):
        holder.require("read", "other")


def test_a_scope_can_be_narrowed_to_applications() -> None:
    holder = Caller("web", (Scope(("subscribe",), ("shop",), ("cache",)),))
    assert holder.may("subscribe", "shop", "cache")
    assert not holder.may("subscribe", "shop", "lake")


def test_a_scope_narrowed_to_applications_grants_nothing_on_the_dataset_as_a_whole() -> None:
    holder = Caller("web", (Scope(("read",), ("shop",), ("cache",)),))
    assert not holder.may("read", "shop")
    with pytest.raises(CredentialRefused, match="'read' on dataset 'shop' as a whole: its scope is narrowed"):
        holder.require("read", "shop")


def test_what_a_caller_may_do_in_part_is_what_any_of_its_scopes_grants_for_an_application() -> None:
    holder = Caller("web", (Scope(("read",), ("shop",), ("cache",)), Scope((), ("a",)), Scope(("read",), ("b",), ())))
    assert holder.may_in_part("shop")
    assert holder.may_in_part("shop", "read")
    assert not holder.may_in_part("shop", "write")
    assert not holder.may_in_part("a")
    assert not holder.may_in_part("b")


def test_scopes_do_not_combine_across_datasets() -> None:
    holder = Caller("web", (Scope(("read",), ("a",)), Scope(("write",), ("b",))))
    assert holder.may("read", "a")
    assert not holder.may("write", "a")


def test_a_revoked_credential_is_refused_by_a_running_server(path: Path, token: str) -> None:
    credentials = Credentials(path)
    credentials.caller(bearer(token), "")
    assert revoke_credential(path, "web")
    with pytest.raises(CredentialRefused):
        credentials.caller(bearer(token), "")
    assert not revoke_credential(path, "web")


def test_an_added_credential_works_without_a_restart(path: Path, token: str) -> None:
    credentials = Credentials(path)
    other = issue_credential(path, "lake", [READ_SHOP])
    assert credentials.caller(bearer(other), "").name == "lake"
    assert [record.name for record in list_credentials(path)] == ["web", "lake"]


def test_a_broken_new_file_leaves_the_old_one_in_force(
    path: Path, token: str, caplog: pytest.LogCaptureFixture
) -> None:
    credentials = Credentials(path)
    path.write_text("{ broken")
    assert credentials.caller(bearer(token), "").name == "web"
    assert "credentials stay as they were" in caplog.text


@pytest.mark.parametrize(
    "content", ["", "{}", "[]", '{"version": 1, "unknown": 1}', '{"version": 1, "credentials": 3}']
)
def test_a_malformed_file_is_refused_naming_it(path: Path, content: str) -> None:
    path.write_text(content)
    with pytest.raises(ConfigInvalid, match=str(path)):
        Credentials(path)


def test_a_newer_file_is_refused(path: Path) -> None:
    path.write_text(json.dumps({"version": 2, "anything": []}))
    with pytest.raises(VersionTooNew, match="format version 2"):
        Credentials(path)


def test_a_missing_file_is_refused_naming_it(path: Path) -> None:
    with pytest.raises(ConfigInvalid, match="No such file"):
        Credentials(path)


def test_a_name_is_issued_once_unless_replaced(path: Path, token: str) -> None:
    with pytest.raises(ConfigInvalid, match="exists already"):
        issue_credential(path, "web", [READ_SHOP])
    newer = issue_credential(path, "web", [READ_SHOP], replace=True)
    assert caller(path, newer).name == "web"
    with pytest.raises(CredentialRefused):
        caller(path, token)


@pytest.mark.parametrize("name", ["", "a.b", "a b", "-a"])
def test_a_name_that_would_not_fit_a_token_is_refused(path: Path, name: str) -> None:
    with pytest.raises(ConfigInvalid, match="is no name"):
        issue_credential(path, name, [READ_SHOP])


def test_a_scope_of_a_name_that_is_no_text_is_refused(path: Path) -> None:
    with pytest.raises(ConfigInvalid, match="a name in its scope is not UTF-8"):
        issue_credential(path, "web", [Scope(("read",), ("\udcff",))])
    assert not path.exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
@pytest.mark.parametrize("mode", [0o500, 0o600])
def test_a_folder_that_may_not_be_written_is_named(tmp_path: Path, mode: int) -> None:
    folder = tmp_path / "closed"
    folder.mkdir(mode)
    with pytest.raises(ConfigInvalid, match=r"closed/c.json cannot be written: Permission denied; its folder must"):
        issue_credential(folder / "c.json", "web", [READ_SHOP])


def test_an_unknown_action_is_refused(path: Path) -> None:
    with pytest.raises(ConfigInvalid, match="scope 'drop' is none of"):
        issue_credential(path, "web", [Scope(("drop",))])


def test_a_client_reads_its_token_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("web.abc\n")
    assert read_token(file) == "web.abc"
    for wrong in (b"two words", b"web.\xff"):
        file.write_bytes(wrong)
        with pytest.raises(ConfigInvalid, match="does not hold one token"):
            read_token(file)


# ---- over the wire ------------------------------------------------------------------------------------------------


@pytest.fixture
def server(path: Path, token: str) -> Iterator[Server]:
    with Server("127.0.0.1:0", [SmallService()], Credentials(path)) as running:
        yield running


def test_a_good_credential_passes(server: Server, token: str) -> None:
    with Connection(server.address, token) as connection:
        assert isinstance(connection.call(Hello(), decode_reply), HelloReply)


@pytest.mark.parametrize("wrong", [None, "web.wrong", "nobody.at-all"])
def test_a_missing_or_wrong_credential_is_refused_everywhere(server: Server, wrong: str | None) -> None:
    with Connection(server.address, wrong) as connection:
        with pytest.raises(CredentialRefused):
            connection.call(Hello(), decode_reply)
        with pytest.raises(CredentialRefused):
            connection.get(Subscribe("shop", "cache", "c"))
        with pytest.raises(CredentialRefused):
            connection.flights()


def test_a_lacking_scope_is_named_to_the_client(server: Server, path: Path, token: str) -> None:
    lacking = pytest.raises(CredentialRefused, match="'admin' on dataset 'shop' for application 'cache'")
    with Connection(server.address, token) as connection, lacking:
        connection.call(DeadShow("shop", "cache", 1), decode_reply)
    admin = issue_credential(path, "boss", [Scope(("admin",), ("shop",))])
    with Connection(server.address, admin) as connection:
        assert connection.call(DeadShow("shop", "cache", 1), decode_reply) == Done()


def test_a_credential_is_not_sent_in_the_clear_to_another_machine(token: str) -> None:
    with pytest.raises(ConfigInvalid, match="in the clear"):
        Connection("db1.example:7400", token)


# ---- while a stream is open ---------------------------------------------------------------------------------------


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def endless(path: Path, token: str, clock: ManualClock) -> Iterator[Server]:
    """Streams until it stops."""

    def beats() -> Batches:
        while not service.stopped.wait(0.005):
            yield EMPTY_UPDATES, b"beat"

    service = SmallService(beats)
    with Server("127.0.0.1:0", [service], Credentials(path), clock=clock) as running:
        yield running


def test_a_stream_ends_within_a_second_once_its_credential_is_revoked(
    endless: Server, path: Path, token: str, clock: ManualClock
) -> None:
    with Connection(endless.address, token) as connection, connection.get(Subscribe("shop", "cache", "c")) as reader:
        clock.advance(ASK_AGAIN_S)
        assert [next(reader)[1] for _ in range(50)] == [b"beat"] * 50
        revoke_credential(path, "web")
        clock.advance(ASK_AGAIN_S)
        with pytest.raises(CredentialRefused, match="it is not known here"):
            list(islice(reader, 500))


def test_a_stream_ends_for_another_try_once_its_credential_grants_something_else(
    endless: Server, path: Path, token: str, clock: ManualClock
) -> None:
    with Connection(endless.address, token) as connection, connection.get(Subscribe("shop", "cache", "c")) as reader:
        assert next(reader)[1] == b"beat"
        path.write_text(path.read_text().replace('"read"', '"read", "admin"'))
        clock.advance(ASK_AGAIN_S)
        with pytest.raises(Unavailable, match="what the credential 'web' grants has changed"):
            list(islice(reader, 500))


def test_a_put_ends_within_a_second_once_its_credential_is_revoked(
    endless: Server, path: Path, token: str, clock: ManualClock
) -> None:
    rows = pa.record_batch([pa.array([1])], names=["n"])
    with Connection(endless.address, token) as connection:
        writer = connection.put(ReadRange("shop"), rows.schema)
        writer.write(rows)
        assert writer.read() == b"1"
        revoke_credential(path, "web")
        clock.advance(ASK_AGAIN_S)
        writer.write(rows)
        assert writer.read() is None
        with pytest.raises(CredentialRefused, match="it is not known here"):
            writer.close()


def test_an_unknown_caller_learns_nothing_of_the_limit_on_requests(path: Path, token: str) -> None:
    with (
        Server("127.0.0.1:0", [SmallService()], Credentials(path), max_request_bytes=10) as server,
        Connection(server.address, "web.wrong") as connection,
        pytest.raises(CredentialRefused),
    ):
        connection.call_raw("Hello", b"x" * 11)
