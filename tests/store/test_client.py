"""A client against a store's Flight front, over real sockets and through a proxy that breaks them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tailrace.errors import (
    ConfigInvalid,
    CredentialRefused,
    Disconnected,
    NotFound,
    ProtocolMismatch,
    StoreFailed,
    TailraceError,
    Unavailable,
    UpdateInvalid,
    UpdateTooLarge,
    UrlInvalid,
    VersionTooNew,
)
from tailrace.store.client import ClientLimits, StoreClient
from tailrace.store.database import FsyncFailed
from tailrace.store.engine import Store
from tailrace.store.operations import delete, put
from tailrace.store.service import StoreService
from tailrace.testing.clock import ManualClock
from tailrace.testing.proxy import Proxy
from tailrace.updates.position import Position
from tailrace.wire.callers import Scope
from tailrace.wire.client import Connection
from tailrace.wire.credentials import Credentials, issue_credential
from tailrace.wire.messages import Message
from tailrace.wire.server import Server
from tailrace.wire.store_messages import (
    OPERATIONS_SCHEMA,
    PUT,
    DescribeStore,
    FollowHorizon,
    OpenWrites,
    Operation,
    Safe,
    ScanRows,
    decode_store_down,
    decode_store_reply,
)
from tailrace.wire.tls import TLS
from tests.store.conftest import WAIT_S, HeldSyncer, Opens
from tests.wire.certificates import Authority

SHORT = ClientLimits(close_timeout_s=2.0, call_timeout_s=5.0)


@pytest.fixture
def syncer() -> HeldSyncer:
    return HeldSyncer()


@pytest.fixture
def store(open_store: Opens, syncer: HeldSyncer) -> Store:
    return open_store(syncer=syncer, shards=4, max_key_bytes=100, max_update_bytes=5000)


@pytest.fixture
def server(store: Store) -> Iterator[Server]:
    with Server("127.0.0.1:0", [StoreService({"demo": store})]) as running:
        yield running


@pytest.fixture
def url(server: Server) -> str:
    return f"store://{server.address}/demo"


@pytest.fixture
def client(url: str) -> Iterator[StoreClient]:
    with StoreClient(url, limits=SHORT) as connected:
        yield connected


@pytest.fixture
def proxy(server: Server) -> Iterator[Proxy]:
    with Proxy(("127.0.0.1", server.port)) as running:
        yield running


# ---- writing and reading -------------------------------------------------------------------------------------------


def test_what_a_client_writes_it_can_read(client: StoreClient) -> None:
    assert client.put_wait("users", b"1", {"name": "Ada"}, WAIT_S).position == Position(1, 2)
    assert client.write([put("users", b"2", b"raw"), delete("users", b"1")]).result(WAIT_S).last == 5

    assert client.get("users", b"1") is None
    assert client.get("users", b"2") == {"value": b"raw"}
    assert client.get_values("users", [b"2", b"1"]) == [b"raw", None]


def test_a_large_table_is_scanned_in_batches(client: StoreClient) -> None:
    for number in range(1000):
        client.put("t", b"%04d" % number, b"x" * 4000)
    assert client.drain(WAIT_S)

    batches = list(client.scan_batches("t"))
    assert len(batches) == 4
    assert [key for batch in batches for key in batch.column("key").to_pylist()] == [b"%04d" % n for n in range(1000)]
    assert [key for key, _ in client.scan("t", b"0010", b"0013")] == [b"0010", b"0011", b"0012"]
    assert next(iter(client.scan("t", limit=1))) == (b"0000", {"value": b"x" * 4000})


def test_a_store_describes_itself(client: StoreClient, store: Store) -> None:
    client.put_wait("users", b"1", b"v", WAIT_S)
    said = client.describe()

    assert (said.path, said.identity, said.line) == (str(store.path), store.identity(), "demo")
    assert (said.era, said.shards, said.durability, said.failure) == (1, 4, "grouped", "")
    assert (said.safe_through, said.head, said.tables) == (2, 2, ["default", "users"])


def test_many_threads_write_and_each_is_answered_with_its_own_sequence(client: StoreClient, store: Store) -> None:
    def writer(name: int) -> list[tuple[bytes, int]]:
        futures = [(b"%d-%d" % (name, n), client.put("t", b"%d-%d" % (name, n), b"v")) for n in range(200)]
        return [(key, future.result(WAIT_S).last) for key, future in futures]

    with ThreadPoolExecutor(6) as pool:
        told = dict(pair for pairs in pool.map(writer, range(6)) for pair in pairs)

    assert len(set(told.values())) == 1200
    assert max(told.values()) == store.latest_sequence() == 2400
    assert all(store.get("t", list(told)))


def test_writes_of_one_caller_keep_their_order(client: StoreClient) -> None:
    lasts = [future.result(WAIT_S).last for future in [client.put("t", b"k", b"%d" % n) for n in range(2000)]]

    assert lasts == sorted(lasts)
    assert client.get_values("t", [b"k"]) == [b"1999"]


def bulk(writes: int, rows: int) -> pa.RecordBatch:
    numbers = [number for number in range(writes) for _ in range(rows)]
    return pa.record_batch(
        {
            "write": pa.array(numbers, pa.int64()),
            "table": ["t"] * len(numbers),
            "operation": ["put"] * len(numbers),
            "key": pa.array([b"%06d" % row for row in range(len(numbers))], pa.binary()),
            "value": pa.array([b"v%d" % row for row in range(len(numbers))], pa.binary()),
        }
    )


def test_record_batches_are_written_in_bulk(client: StoreClient, store: Store) -> None:
    first = client.write_batch(bulk(3, 10))
    second = client.write_batch(bulk(1, 5))
    single = client.put("t", b"single", b"v")

    results = [future.result(WAIT_S) for future in [*first, *second, single]]

    assert [(result.first, result.last) for result in results] == [(2, 11), (13, 22), (24, 33), (35, 39), (41, 41)]
    assert len(list(store.scan("t"))) == 31


def test_an_empty_record_batch_is_no_write(client: StoreClient, store: Store) -> None:
    assert client.write_batch(bulk(0, 0)) == []
    assert store.latest_sequence() == 0


# ---- answers -------------------------------------------------------------------------------------------------------


def test_nothing_is_answered_before_the_fsync_and_the_next_message_is_read_meanwhile(
    client: StoreClient, store: Store, syncer: HeldSyncer
) -> None:
    client.put_wait("t", b"k", b"v", WAIT_S)
    syncer.until_asked()
    syncer.hold()
    first = client.put("t", b"first", b"v")
    syncer.until_asked()
    second = client.write_batch(bulk(1, 3))[0]
    third = client.write([put("t", b"third", b"v")], durability="none")

    assert third.result(WAIT_S).first == 10  # it was read and written behind two messages that wait for the disk
    assert (first.done(), second.done(), store.safe_through()) == (False, False, 2)

    syncer.release()
    assert (first.result(WAIT_S).last, second.result(WAIT_S).last) == (4, 8)


def test_a_bad_write_is_answered_by_its_own_error_and_the_others_are_made(client: StoreClient, store: Store) -> None:
    futures = [
        client.put("t", b"a", b"v"),
        client.put("__t", b"b", b"v"),
        client.put("t", b"c", b"v" * 6000),
        client.put("t", b"d", b"v"),
    ]
    errors = [future.exception(WAIT_S) for future in futures]

    assert [type(error) for error in errors] == [type(None), UpdateInvalid, UpdateTooLarge, type(None)]
    assert str(errors[2]) == (
        "an update of 6001 bytes in table 't' is over the limit of 5000 bytes (store.max_update_bytes)"
    )
    assert [key for key, _ in store.scan("t")] == [b"a", b"d"]


def test_a_bad_write_in_a_record_batch_is_answered_alone(client: StoreClient) -> None:
    batch = bulk(3, 1).set_column(1, "table", pa.array(["t", "no name", "t"]))
    errors = [future.exception(WAIT_S) for future in client.write_batch(batch)]
    assert [type(error) for error in errors] == [type(None), UpdateInvalid, type(None)]


def test_a_record_batch_with_an_unknown_operation_fails_as_a_whole_and_alone(client: StoreClient) -> None:
    before = client.put("t", b"before", b"v")
    batch = bulk(2, 1).set_column(2, "operation", pa.array(["put", "upsert"]))
    errors = [future.exception(WAIT_S) for future in client.write_batch(batch)]

    assert [str(error) for error in errors] == [
        "an update cannot be stored: operation 'upsert' is none of put, delete, delete_range"
    ] * 2
    assert before.result(WAIT_S).last == 2
    assert client.put_wait("t", b"after", b"v", WAIT_S).last == 4


def test_a_record_batch_that_is_no_writes_is_refused_at_once(client: StoreClient) -> None:
    with pytest.raises(UpdateInvalid, match="the column 'key' is missing"):
        client.write_batch(bulk(1, 1).drop_columns(["key"]))
    with pytest.raises(UpdateInvalid, match="does not count 0, 1"):
        client.write_batch(bulk(2, 1).slice(1))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ((PUT, "t", "k", b"v"), "a key in table 't' is str; a key is bytes"),
        ((PUT, "t\udc80", b"k", b"v"), r"'t\udc80' cannot be a table's name: a name has 1 to 128 letters"),
        ((PUT, "t", b"k", b"v", 2**70), "it is an int below the store's shards"),
        (("put", "t", b"k", b"v"), "there is no operation number 'put'"),
    ],
)
def test_what_cannot_travel_is_refused_at_once_and_alone(
    client: StoreClient, fields: tuple[Any, ...], message: str
) -> None:
    before = [client.put("t", b"%d" % number, b"v") for number in range(50)]
    with pytest.raises(UpdateInvalid) as refused:
        client.write([put("t", b"good", b"v"), Operation(*fields)])
    after = [client.put("t", b"%d" % number, b"v") for number in range(50)]

    assert message in str(refused.value)
    assert [future.result(WAIT_S).last for future in before + after] == list(range(2, 202, 2))


def test_an_unknown_durability_is_refused_at_once_and_alone(client: StoreClient) -> None:
    unknown: Any = "maybe"
    before = client.put("t", b"a", b"v")
    for write in (
        lambda: client.write([put("t", b"b", b"v")], durability=unknown),
        lambda: client.write_batch(bulk(1, 1), durability=unknown),
    ):
        with pytest.raises(ConfigInvalid, match="durability: 'maybe' is none of fsync, grouped, none"):
            write()
    assert (before.result(WAIT_S).last, client.put_wait("t", b"c", b"v", WAIT_S).last) == (2, 4)


def test_a_write_that_waits_is_what_it_was_when_it_was_made(client: StoreClient, syncer: HeldSyncer) -> None:
    syncer.hold()
    for key in (b"a", b"b"):  # no third message is sent before one of these is answered
        client.put("t", key, b"v")
    operations = [put("t", b"c", b"v")]
    answered = client.write(operations)
    operations[0] = put("t", b"changed", b"v")
    syncer.release()

    answered.result(WAIT_S)
    assert [key for key, _ in client.scan("t")] == [b"a", b"b", b"c"]


def test_more_than_one_reply_can_hold_is_not_read(open_store: Opens) -> None:
    store = open_store()
    store.write([put("t", b"k", bytes(8_000_000))])
    with (
        Server("127.0.0.1:0", [StoreService({"demo": store})]) as server,
        StoreClient(f"store://{server.address}/demo", limits=SHORT) as client,
    ):
        assert len(client.get_values("t", [b"k"] * 8)) == 8
        with pytest.raises(ProtocolMismatch, match="the values have 72000000 bytes, at most 67108864; ask for fewer"):
            client.get_values("t", [b"k"] * 9)


def test_a_store_that_failed_says_so_to_its_writers(client: StoreClient, store: Store, syncer: HeldSyncer) -> None:
    client.put_wait("t", b"a", b"v", WAIT_S)
    syncer.error = FsyncFailed(path="p", reason="fsync failed: I/O error")

    with pytest.raises(StoreFailed, match="fsync failed: I/O error"):
        client.put_wait("t", b"b", b"v", WAIT_S)
    with pytest.raises(StoreFailed, match="fsync failed: I/O error"):
        client.put_wait("t", b"c", b"v", WAIT_S)
    assert "fsync failed" in client.describe().failure


def test_callers_wait_while_too_much_is_unanswered(url: str, syncer: HeldSyncer) -> None:
    with StoreClient(url, limits=ClientLimits(max_writes=3)) as client:
        client.put_wait("t", b"k", b"v", WAIT_S)
        syncer.until_asked()
        syncer.hold()
        futures = [client.put("t", b"%d" % number, b"v") for number in range(3)]
        late = threading.Thread(target=lambda: futures.append(client.put("t", b"late", b"v")))
        late.start()
        syncer.until_asked()
        assert len(futures) == 3

        syncer.release()
        late.join(WAIT_S)

        assert len(futures) == 4
        assert wait_for(futures, WAIT_S).not_done == set()


# ---- the horizon ---------------------------------------------------------------------------------------------------


def test_the_horizon_is_pushed_and_repeated(server: Server, store: Store, client: StoreClient) -> None:
    with Connection(server.address) as connection, connection.get(FollowHorizon("demo")) as stream:
        messages = (decode_store_down(metadata) for _, metadata in stream)
        assert next(messages) == Safe(1, 0)
        client.put_wait("t", b"a", b"v", WAIT_S)
        assert next(message for message in messages if message != Safe(1, 0)) == Safe(1, 2)
        assert next(messages) == Safe(1, 2)  # the heartbeat


# ---- who may do what -----------------------------------------------------------------------------------------------


@pytest.fixture
def guarded(store: Store, tmp_path: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """A server with credentials, and their tokens by the one action that they grant."""
    file = tmp_path / "credentials.json"
    tokens = {
        action: issue_credential(file, action, [Scope((action,), ("demo",))])
        for action in ("write", "read", "subscribe")
    }
    with Server("127.0.0.1:0", [StoreService({"demo": store, "other": store})], Credentials(file)) as server:
        yield f"store://{server.address}/demo", tokens


def test_a_writer_may_write_and_not_read(guarded: tuple[str, dict[str, str]]) -> None:
    url, tokens = guarded
    with StoreClient(url, credential=tokens["write"], limits=SHORT) as client:
        client.put_wait("t", b"k", b"v", WAIT_S)
        with pytest.raises(CredentialRefused, match="'write' lacks the scope 'read' on dataset 'demo'"):
            client.get("t", b"k")
        with pytest.raises(CredentialRefused, match="lacks the scope 'read'"):
            list(client.scan("t"))


def test_a_reader_may_read_and_not_write(guarded: tuple[str, dict[str, str]], store: Store) -> None:
    url, tokens = guarded
    store.write([put("t", b"k", b"v")])
    with StoreClient(url, credential=tokens["read"], limits=SHORT) as client:
        assert client.get("t", b"k") == {"value": b"v"}
        with pytest.raises(CredentialRefused, match="'read' lacks the scope 'write' on dataset 'demo'"):
            client.put_wait("t", b"k", b"changed", WAIT_S)
    assert store.get("t", [b"k"]) == [b"v"]


@pytest.mark.parametrize("name", ["subscribe", "nobody.secret", None])
def test_who_may_neither_is_refused_at_once(guarded: tuple[str, dict[str, str]], name: str | None) -> None:
    url, tokens = guarded
    credential = tokens.get(name, name) if name else None
    with StoreClient(url, credential=credential, limits=SHORT) as client, pytest.raises(CredentialRefused):
        client.put_wait("t", b"k", b"v", WAIT_S)


def test_a_scope_holds_for_its_datasets_alone(guarded: tuple[str, dict[str, str]]) -> None:
    url, tokens = guarded
    client = StoreClient(url.replace("/demo", "/other"), credential=tokens["write"], limits=SHORT)
    with client, pytest.raises(CredentialRefused, match="on dataset 'other'"):
        client.put("t", b"k", b"v")


def test_writes_travel_over_tls(store: Store, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    with Server("127.0.0.1:0", [StoreService({"demo": store})], tls=authority.issue("server")) as server:
        tls = TLS(ca_file=authority.ca_file)
        with StoreClient(f"store+tls://{server.address}/demo", tls=tls, limits=SHORT) as client:
            assert client.put_wait("t", b"k", b"v", WAIT_S).last == 2


# ---- bad requests --------------------------------------------------------------------------------------------------


def test_a_dataset_that_is_not_here_is_named(server: Server) -> None:
    client = StoreClient(f"store://{server.address}/shop", limits=SHORT)
    with client, pytest.raises(NotFound, match="dataset 'shop' does not exist; this store holds demo"):
        client.put("t", b"k", b"v")


def test_a_url_that_is_no_stores_is_refused() -> None:
    with pytest.raises(UrlInvalid, match="scheme 'tailrace' is not store"):
        StoreClient("tailrace://localhost:1/demo")


@pytest.mark.parametrize(
    "message", [OpenWrites("demo", 99), ScanRows("demo", "t", version=99), DescribeStore("demo", 99)]
)
def test_a_newer_protocol_is_refused(server: Server, message: Message) -> None:
    def ask(connection: Connection) -> None:
        if isinstance(message, OpenWrites):
            stream = connection.put(message, OPERATIONS_SCHEMA)
            assert stream.read() is None
            stream.close()
        elif isinstance(message, ScanRows):
            list(connection.get(message))
        else:
            connection.call(message, decode_store_reply)

    with Connection(server.address) as connection, pytest.raises(VersionTooNew, match="format version 99"):
        ask(connection)


@pytest.mark.parametrize("metadata", [None, b"", b"\x81\xa4kind\xa5Shout"])
def test_a_message_that_says_nothing_of_itself_ends_the_stream(server: Server, metadata: bytes | None) -> None:
    with Connection(server.address) as connection:
        stream = connection.put(OpenWrites("demo"), OPERATIONS_SCHEMA)
        stream.write(pa.RecordBatch.from_pylist([], schema=OPERATIONS_SCHEMA), metadata)
        while stream.read() is not None:
            pass  # heartbeats
        with pytest.raises(TailraceError, match="protocol: a message"):
            stream.close()


# ---- broken connections --------------------------------------------------------------------------------------------


def test_a_lost_answer_leaves_the_outcome_unknown_and_the_next_write_connects_anew(
    proxy: Proxy, store: Store, syncer: HeldSyncer
) -> None:
    clock = ManualClock()
    with StoreClient(f"store://{proxy.address}/demo", limits=SHORT, clock=clock) as client:
        client.put_wait("t", b"k", b"v", WAIT_S)
        syncer.until_asked()
        syncer.hold()
        lost = client.put("t", b"lost", b"v")
        syncer.until_asked()
        proxy.cut()

        with pytest.raises(Disconnected, match="was sent and not answered: it may or may not have been made"):
            lost.result(WAIT_S)
        with pytest.raises(Disconnected):
            client.put("t", b"refused", b"v")
        with pytest.raises(Disconnected, match="the next attempt is due soon"):
            client.put("t", b"refused", b"v")

        proxy.heal()
        syncer.release()
        clock.advance(2.0)
        assert client.put_wait("t", b"again", b"v", WAIT_S).last == 6
    assert [key for key, _ in store.scan("t")] == [b"again", b"k", b"lost"]


def test_a_store_that_falls_silent_is_given_up(proxy: Proxy) -> None:
    clock = ManualClock()
    with StoreClient(f"store://{proxy.address}/demo", limits=SHORT, clock=clock) as client:
        client.put_wait("t", b"k", b"v", WAIT_S)
        proxy.half_open("client")
        lost = client.put("t", b"lost", b"v")
        while not lost.done():
            clock.until_waiting()
            clock.advance(1.0)

        with pytest.raises(Disconnected, match="silent for 10 s"):
            lost.result(0)
        clock.advance(5.0)
        assert client.put_wait("t", b"again", b"v", WAIT_S).last == 4


def test_a_client_that_goes_away_leaves_the_store_as_it_was(proxy: Proxy, store: Store, client: StoreClient) -> None:
    with StoreClient(f"store://{proxy.address}/demo", limits=SHORT) as other:
        other.put_wait("t", b"a", b"v", WAIT_S)
        proxy.cut()
        assert client.put_wait("t", b"b", b"v", WAIT_S).last == 4
        assert store.failure() is None


def test_a_server_that_stops_lets_its_writers_finish(store: Store, syncer: HeldSyncer) -> None:
    service = StoreService({"demo": store})
    server = Server("127.0.0.1:0", [service])
    with StoreClient(f"store://{server.address}/demo", limits=SHORT) as client:
        client.put_wait("t", b"k", b"v", WAIT_S)
        syncer.until_asked()
        syncer.hold()
        under_way = client.put("t", b"last", b"v")
        syncer.until_asked()
        stopping = threading.Thread(target=server.shutdown, kwargs={"grace_s": WAIT_S})
        stopping.start()
        syncer.release()

        assert under_way.result(WAIT_S).last == 4
        stopping.join(WAIT_S)
        assert not stopping.is_alive()
        with pytest.raises(Disconnected):
            client.put_wait("t", b"late", b"v", WAIT_S)


def test_a_closed_client_takes_no_writes(url: str) -> None:
    client = StoreClient(url)
    under_way = [client.put("t", b"%d" % number, b"v") for number in range(100)]
    client.close()
    client.close()

    assert all(future.done() and future.exception() is None for future in under_way)
    with pytest.raises(Unavailable, match="is closed"):
        client.put("t", b"late", b"v")
