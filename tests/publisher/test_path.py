"""The whole path on real parts: a store on disk, its log, the publisher, Flight, and the subscriber library."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

import tailrace
from tailrace.errors import AcknowledgementRefused, CredentialRefused, NotFound
from tailrace.publisher.dataset import DatasetPublisher
from tailrace.publisher.dead import DeadLetters
from tailrace.publisher.ledger import open_ledger
from tailrace.publisher.markers import MarkerStore
from tailrace.publisher.publisher import Publisher
from tailrace.publisher.settings import PublisherSettings
from tailrace.runtime.backoff import Backoff
from tailrace.runtime.clock import SYSTEM_CLOCK
from tailrace.sources.rocksdb.source import RocksDBSource
from tailrace.store.commits import sync_database
from tailrace.store.database import Database
from tailrace.store.engine import Store
from tailrace.store.operations import delete, put
from tailrace.store.options import StoreOptions
from tailrace.testing.ports import free_port
from tailrace.updates.batch import Update
from tailrace.updates.position import START, LinePosition, Position
from tailrace.wire.callers import Scope
from tailrace.wire.client import Connection
from tailrace.wire.credentials import Credentials, issue_credential
from tailrace.wire.messages import (
    Acknowledge,
    DeadList,
    DeadListReply,
    DeadRetry,
    ReadRange,
    Status,
    StatusReply,
    Updates,
    decode_down,
    decode_reply,
)
from tailrace.wire.server import Server
from tests.publisher.conftest import MemoryRecords

LIMIT_S = 15.0
SETTINGS = PublisherSettings(heartbeat_s=0.1, marker_interval_s=0.05)


def wait_for(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline, f"waited {LIMIT_S} s for {what}"
        threading.Event().wait(0.005)


class Node:
    """Store and publisher in one process, as by default; can be restarted on its folder, or on a wiped one."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.era = 1
        self.epoch = 0
        self.hold = threading.Event()
        self.hold.set()
        self.records = MemoryRecords()
        self.credentials: Credentials | None = None
        self.settings = SETTINGS
        self.open()

    def open(self) -> None:
        self.epoch += 1
        self.store = Store.open(self.folder / "store", era=self.era, options=StoreOptions(shards=4), syncer=self._sync)
        self.source = RocksDBSource(
            self.folder / "store", line="shop", era=self.era, shards=4, horizon=self.store, index_dir=self.folder
        )
        self.ledger = open_ledger(self.folder)
        self.dataset = DatasetPublisher(
            "shop",
            4,
            self.source,
            epoch=self.epoch,
            records=self.records,
            markers=MarkerStore(self.ledger),
            dead=DeadLetters(self.ledger, SYSTEM_CLOCK),
            settings=self.settings,
            clock=SYSTEM_CLOCK,
        )
        address = f"127.0.0.1:{free_port()}"
        self.publisher = Publisher([self.dataset], address=address, clock=SYSTEM_CLOCK)
        self.server = Server(address, [self.publisher.service], credentials=self.credentials)

    def _sync(self, database: Database) -> None:
        assert self.hold.wait(LIMIT_S)
        sync_database(database)

    @property
    def url(self) -> str:
        return f"tailrace://127.0.0.1:{self.server.port}/shop"

    def connect(self, credential: str | None = None) -> Connection:
        return Connection(f"127.0.0.1:{self.server.port}", credential=credential)

    def put(self, number: int) -> Position:
        return self.store.write([put("t", b"k%d" % number, {"n": str(number)})]).position

    def acknowledged(self) -> Position:
        """The least marker of its one application; the start while that has not subscribed yet."""
        return next((one.acknowledged for one in self.dataset.applications()), START)

    def close(self) -> None:
        self.hold.set()
        self.server.shutdown()
        self.publisher.close()
        self.source.close()
        self.store.close()
        self.ledger.close()


class Seen(tailrace.Application):
    """Keeps the numbers that it was given, and what it was told."""

    def __init__(self, fails_on: set[bytes] | None = None) -> None:
        self.numbers: list[int] = []
        self.losses: list[tuple[int, Position, Position, str]] = []
        self.fails_on = fails_on or set()

    def on_update(self, update: Update) -> None:
        if update.key in self.fails_on:
            raise ValueError("cannot take it")
        if update.operation == "put":
            self.numbers.append(int(update.pairs["n"] or b""))
        else:
            self.numbers.append(-1)

    def on_data_loss(self, shard: int, after: Position, until: Position, reason: str) -> None:
        self.losses.append((shard, after, until, reason))


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    node = Node(tmp_path)
    yield node
    node.close()


def test_a_write_reaches_an_application_in_order_and_once(node: Node) -> None:
    seen = Seen()
    with tailrace.subscribe(node.url, seen, application="app", start="earliest"):
        for number in range(50):
            node.put(number)
        node.store.write([delete("t", b"k1")])
        wait_for(lambda: len(seen.numbers) == 51, "all updates")
    assert seen.numbers == [*range(50), -1]


def test_nothing_is_answered_or_published_before_the_fsync_returns(node: Node) -> None:
    seen = Seen()
    with tailrace.subscribe(node.url, seen, application="app", start="earliest"):
        node.put(1)
        wait_for(lambda: seen.numbers == [1], "the first update")
        node.hold.clear()
        answer = node.store.submit([put("t", b"k", {"n": "2"})])
        wait_for(lambda: node.store.latest_sequence() > node.store.safe_through(), "the write to be in the log")
        threading.Event().wait(0.3)
        assert not answer.done()
        assert seen.numbers == [1]
        assert node.source.bounds().through.sequence == node.store.safe_through()
        node.hold.set()
        assert answer.result(LIMIT_S)
        wait_for(lambda: seen.numbers == [1, 2], "the second update")


def test_a_restarted_publisher_goes_on_after_the_last_marker(node: Node) -> None:
    first = Seen()
    with tailrace.subscribe(node.url, first, application="app", start="earliest"):
        last = [node.put(number) for number in range(20)][-1]
        wait_for(lambda: node.acknowledged() >= last, "the marker")
    node.close()
    node.open()
    second = Seen()
    with tailrace.subscribe(node.url, second, application="app", start="earliest"):
        node.put(20)
        wait_for(lambda: bool(second.numbers), "an update")
    assert first.numbers == list(range(20))
    assert second.numbers == [20]


def test_what_was_sent_before_a_publisher_shuts_down_does_not_come_again(node: Node) -> None:
    node.close()
    node.settings = msgspec.structs.replace(SETTINGS, marker_interval_s=3600.0, drain_s=LIMIT_S)
    node.open()
    seen = Seen()
    with tailrace.subscribe(node.url, seen, application="app", start="earliest"):
        last = [node.put(number) for number in range(20)][-1]
        wait_for(lambda: len(seen.numbers) == 20, "all updates")
        assert node.acknowledged() < last
        node.server.shutdown()
        assert node.acknowledged() == last
        assert node.dataset.application("app").holder == "", "its flows are anyone's after that"


def test_a_wiped_store_is_a_new_era_and_its_applications_are_told(node: Node) -> None:
    seen = Seen()
    with tailrace.subscribe(node.url, seen, application="app", start="earliest"):
        last = [node.put(number) for number in range(10)][-1]
        wait_for(lambda: node.acknowledged() >= last, "the marker")
    node.close()
    shutil.rmtree(node.folder / "store")
    node.era = 2
    node.open()
    again = Seen()
    with tailrace.subscribe(node.url, again, application="app", start="earliest"):
        node.put(77)
        wait_for(lambda: again.numbers == [77], "the new history")
        wait_for(lambda: node.acknowledged().era == 2, "the marker in the new era")
    assert {shard for shard, *_ in again.losses} == {0, 1, 2, 3}
    assert {until for _, _, until, _ in again.losses} == {last}


def test_a_filter_is_evaluated_by_the_publisher(node: Node) -> None:
    seen = Seen()
    with tailrace.subscribe(node.url, seen, application="app", start="earliest", filter="n BETWEEN 3 AND 5"):
        for number in range(10):
            node.put(number)
        wait_for(lambda: len(seen.numbers) >= 3, "what passes")
        with node.connect() as connection:
            status = connection.call(Status(), decode_reply)
    assert seen.numbers == [3, 4, 5]
    assert isinstance(status, StatusReply)
    assert status.applications[0].filter == "n BETWEEN 3 AND 5"


def test_dead_letters_go_by_the_publisher_and_back(node: Node) -> None:
    seen = Seen(fails_on={b"k2"})
    policy = tailrace.ErrorPolicy(retries=1, then="dead-letter", backoff=Backoff(first_s=0.01, limit_s=0.02))
    with tailrace.subscribe(node.url, seen, application="app", start="earliest", error_policy=policy):
        for number in range(5):
            node.put(number)
        wait_for(lambda: seen.numbers == [0, 1, 3, 4], "all but the failing one")
        with node.connect() as connection:
            wait_for(lambda: node.dataset.application("app").dead_letters == 1, "the letter")
            listed = connection.call(DeadList(dataset="shop", application="app"), decode_reply)
            assert isinstance(listed, DeadListReply)
            assert [(letter.key, letter.table) for letter in listed.letters] == [(b"k2", "t")]
            assert "cannot take it" in listed.letters[0].error
            seen.fails_on.clear()
            connection.call(DeadRetry(dataset="shop", application="app"), decode_reply)
            wait_for(lambda: seen.numbers == [0, 1, 3, 4, 2], "the letter again")
            wait_for(lambda: node.dataset.application("app").dead_letters == 0, "the letter's end")


def test_a_range_of_the_log_can_be_read_without_a_flow(node: Node) -> None:
    positions = [node.put(number) for number in range(10)]
    ask = ReadRange(dataset="shop", after=positions[2], until=positions[6], filter="NOT n = '5'")
    keys: list[bytes] = []
    with node.connect() as connection, connection.get(ask) as stream:
        for batch, metadata in stream:
            assert isinstance(decode_down(metadata), Updates)
            assert batch is not None
            keys += batch.column("key").to_pylist()
    assert keys == [b"k3", b"k4", b"k6"]


def test_reached_tells_when_a_write_has_been_processed(node: Node) -> None:
    with tailrace.subscribe(node.url, Seen(), application="app", start="earliest"):
        wait_for(lambda: bool(node.dataset.applications()), "the application's record")
        position = node.put(1)
        assert tailrace.reached(node.url, LinePosition("shop", position), by="app", timeout_s=LIMIT_S)
        assert not tailrace.reached(node.url, LinePosition("shop", Position(1, 10_000)), by="app", timeout_s=0.05)


def test_a_credential_opens_only_what_its_scopes_say(node: Node) -> None:
    file = node.folder / "credentials"
    reader = issue_credential(file, "reader", [Scope(("subscribe",), ("shop",), ("app",))])
    node.close()
    node.credentials = Credentials(file)
    node.open()
    for credential in (None, "reader.wrong", "nobody.at-all"):
        with pytest.raises(CredentialRefused):
            tailrace.subscribe(node.url, Seen(), application="app", credential=credential).wait(LIMIT_S)
    with pytest.raises(CredentialRefused, match="subscribe"):
        tailrace.subscribe(node.url, Seen(), application="other", credential=reader).wait(LIMIT_S)
    with node.connect(reader) as connection, pytest.raises(CredentialRefused, match="admin"):
        connection.call(DeadRetry(dataset="shop", application="app"), decode_reply)
    seen = Seen()
    with tailrace.subscribe(node.url, seen, application="app", credential=reader, start="earliest"):
        node.put(1)
        wait_for(lambda: seen.numbers == [1], "the update")


def test_what_does_not_exist_or_was_never_sent_is_named(node: Node) -> None:
    with pytest.raises(NotFound, match="shop"):
        tailrace.subscribe(node.url.replace("/shop", "/nope"), Seen(), application="app").wait(LIMIT_S)
    with node.connect() as connection, pytest.raises(AcknowledgementRefused, match="token 5"):
        connection.call(Acknowledge(session="none", epoch=1, token=5), decode_reply)


def test_a_corrupt_record_in_the_middle_stops_the_flow_at_it_and_is_named(node: Node) -> None:
    seen = Seen()
    for number in range(100):
        node.put(number)
    (log,) = (node.folder / "store").glob("*.log")
    place = log.stat().st_size // 2
    with log.open("r+b") as file:
        file.seek(place)
        byte = file.read(1)
        file.seek(place)
        file.write(bytes([byte[0] ^ 0xFF]))
    with tailrace.subscribe(node.url, seen, application="app", start="earliest"):
        wait_for(lambda: bool(node.dataset.caravans.error), "the error")
        assert log.name in node.dataset.caravans.error
        assert "offset" in node.dataset.caravans.error
        active = node.dataset.application("app").active
        assert active is not None
        wait_for(lambda: bool(active.stream.blocked_by), "the stream to have sent what came before")
        readable = active.stream.sent.sequence // 2  # each write is a header and an update
        assert 0 < readable < 100
        wait_for(lambda: len(seen.numbers) == readable, "everything before it")
        threading.Event().wait(0.3)
        assert seen.numbers == list(range(readable))
