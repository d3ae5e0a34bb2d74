"""A source over a store in another process: its log from the folder, how far it is safe over the wire."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tailrace.errors import CredentialRefused, Disconnected, NotFound, StoreFailed, UrlInvalid
from tailrace.sources.store_url import RemoteHorizon, open_store_source
from tailrace.store.database import Database
from tailrace.store.engine import Store
from tailrace.store.operations import put
from tailrace.store.options import StoreOptions
from tailrace.store.service import StoreService
from tailrace.testing.clock import ManualClock
from tailrace.testing.ports import free_port
from tailrace.testing.proxy import Proxy
from tailrace.updates.position import START, Position
from tailrace.wire.callers import Scope
from tailrace.wire.client import Connection
from tailrace.wire.credentials import Credentials, issue_credential
from tailrace.wire.server import Server

WAIT_S = 30.0


class Held:
    """An fsync that waits until it is let."""

    def __init__(self) -> None:
        self.let = threading.Event()
        self.let.set()
        self.asked = threading.Event()

    def __call__(self, database: Database) -> None:
        self.asked.set()
        assert self.let.wait(WAIT_S)
        database.sync()


@pytest.fixture
def held() -> Held:
    return Held()


@pytest.fixture
def store(tmp_path: Path, held: Held) -> Iterator[Store]:
    with Store.open(tmp_path / "store", era=3, options=StoreOptions(shards=4), syncer=held) as opened:
        yield opened


@pytest.fixture
def server(store: Store) -> Iterator[Server]:
    with Server("127.0.0.1:0", [StoreService({"demo": store})]) as running:
        yield running


def test_a_source_is_opened_by_its_url(store: Store, server: Server) -> None:
    store.write([put("t", b"a", {"x": "1"})])
    source = open_store_source(f"store://{server.address}/demo")
    stop = threading.Event()

    assert (source.line, source.era, source.shards) == ("demo", 3, 4)
    assert source.bounds().through == Position(3, 2)
    batch = next(source.read(START, stop=stop))
    assert batch.updates.column("key").to_pylist() == [b"a"]
    source.close()


def test_what_is_not_safe_is_not_read_until_it_is(store: Store, server: Server, held: Held) -> None:
    store.write([put("t", b"a", b"1")])
    source = open_store_source(f"store://{server.address}/demo")
    stop = threading.Event()
    batches = source.read(START, stop=stop)
    assert next(batches).through == Position(3, 2)
    held.asked.clear()
    held.let.clear()
    answered = store.submit([put("t", b"b", b"2")])
    assert held.asked.wait(WAIT_S)

    assert store.latest_sequence() == 4
    assert source.bounds().through == Position(3, 2)

    held.let.set()
    batch = next(batches)
    assert batch.updates.column("key").to_pylist() == [b"b"]
    assert answered.result(WAIT_S).last == 4
    stop.set()
    source.close()


def test_the_horizon_stands_while_the_store_is_away_and_goes_on_when_it_is_back(tmp_path: Path) -> None:
    port, folder = free_port(), tmp_path / "store"
    clock = ManualClock()
    connection = Connection(f"127.0.0.1:{port}")
    with Store.open(folder, era=0) as store, Server(f"127.0.0.1:{port}", [StoreService({"demo": store})]):
        store.write([put("t", b"a", b"1")])
        horizon = RemoteHorizon(connection, "demo", era=0, safe_through=0, clock=clock)
        assert horizon.wait_beyond(0, WAIT_S) == 2
    assert horizon.wait_beyond(2, 0.01) == 2

    with Store.open(folder, era=0) as store, Server(f"127.0.0.1:{port}", [StoreService({"demo": store})]):
        store.write([put("t", b"b", b"1")])
        deadline = threading.Event()
        timer = threading.Timer(WAIT_S, deadline.set)
        timer.start()
        while horizon.safe_through() < 4 and not deadline.is_set():
            clock.advance(0.5)
            horizon.wait_beyond(2, 0.05)
        timer.cancel()
        assert horizon.safe_through() == 4
        horizon.close()
        connection.close()


def test_a_silent_store_is_asked_anew(store: Store, server: Server) -> None:
    clock = ManualClock()
    with Proxy(("127.0.0.1", server.port)) as proxy, Connection(proxy.address) as connection:
        store.write([put("t", b"a", b"1")])
        horizon = RemoteHorizon(connection, "demo", era=3, safe_through=0, clock=clock)
        assert horizon.wait_beyond(0, WAIT_S) == 2
        proxy.half_open("client")
        store.write([put("t", b"b", b"1")])
        for _ in range(200):
            if horizon.wait_beyond(2, 0.05) > 2:
                break
            clock.advance(0.5)

        assert horizon.safe_through() == 4
        horizon.close()


def test_another_era_does_not_move_the_horizon(store: Store, server: Server) -> None:
    store.write([put("t", b"a", b"1")])
    with Connection(server.address) as connection:
        horizon = RemoteHorizon(connection, "demo", era=2, safe_through=1)
        assert horizon.wait_beyond(1, 0.5) == 1
        assert horizon.superseded_by == 3
        horizon.close()


def test_closing_wakes_who_waits(store: Store, server: Server) -> None:
    with Connection(server.address) as connection:
        horizon = RemoteHorizon(connection, "demo", era=3, safe_through=0)
        waiter = threading.Thread(target=horizon.wait_beyond, args=(0, 60.0))
        waiter.start()
        horizon.close()
        waiter.join(WAIT_S)
        assert not waiter.is_alive()


def test_a_folder_of_another_store_is_noticed(store: Store, server: Server) -> None:
    (store.path / "IDENTITY").write_text("someone else")
    with pytest.raises(StoreFailed, match="has identity 'someone else' here and not"):
        open_store_source(f"store://{server.address}/demo")


def test_a_folder_that_is_not_on_this_machine_is_noticed(store: Store, server: Server) -> None:
    (store.path / "IDENTITY").unlink()
    with pytest.raises(StoreFailed, match="run the publisher on the store's machine"):
        open_store_source(f"store://{server.address}/demo")


def test_bad_addresses_are_named(server: Server) -> None:
    with pytest.raises(UrlInvalid, match="the dataset is missing"):
        open_store_source(f"store://{server.address}")
    with pytest.raises(NotFound, match="dataset 'shop' does not exist; this store holds demo"):
        open_store_source(f"store://{server.address}/shop")
    with pytest.raises(Disconnected):
        open_store_source(f"store://127.0.0.1:{free_port()}/demo")


def test_a_credential_is_asked_for(store: Store, tmp_path: Path) -> None:
    file = tmp_path / "credentials.json"
    token = issue_credential(file, "publisher", [Scope(("read",), ("demo",))])
    with Server("127.0.0.1:0", [StoreService({"demo": store})], Credentials(file)) as server:
        with pytest.raises(CredentialRefused):
            open_store_source(f"store://{server.address}/demo")
        source = open_store_source(f"store://{server.address}/demo", credential=token)
        store.write([put("t", b"a", b"1")])
        assert source.horizon.wait_beyond(0, WAIT_S) == 2
        source.close()
