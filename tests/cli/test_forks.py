"""A log that another history took the place of, under the same identity: found by its witness or by where it ends, told
in a new era."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event

import pytest
from rocksdict import Options, Rdict

from tailrace.cli.configuration import Configuration, DatasetSettings, NodeSettings, StoreSettings
from tailrace.cli.roles.assembly import Assembly
from tailrace.cli.roles.publisher import open_publisher
from tailrace.cli.roles.store import open_store, store_service
from tailrace.publisher.settings import PublisherSettings
from tailrace.store.engine import Store
from tailrace.store.operations import put
from tailrace.store.options import StoreOptions
from tailrace.testing.ports import free_port
from tailrace.updates.position import Position
from tailrace.wire.messages import Acknowledge, DataLoss, Subscribe, Token
from tailrace.wire.server import Server


def database(folder: Path) -> Rdict:
    options = Options(raw_mode=True)
    options.set_wal_ttl_seconds(3600)
    return Rdict(str(folder), options=options)


def write(into: Rdict, count: int, value: bytes) -> None:
    """One sequence number for each."""
    for number in range(count):
        into[b"k%d" % number] = value


def restore(folder: Path, backup: Path, count: int) -> None:
    """The backup takes the folder's place, with some writes of its own."""
    restored = database(backup)
    write(restored, count, b"another")
    shutil.rmtree(folder)
    shutil.copytree(backup, folder)
    restored.close()


@pytest.fixture
def configuration(tmp_path: Path) -> Configuration:
    return Configuration(
        node=NodeSettings(data_folder=tmp_path / "data"),
        dataset={"shop": DatasetSettings(source=f"rocksdb://{tmp_path / 'db'}", shards=1)},
        publisher=PublisherSettings(heartbeat_s=0.02, marker_interval_s=0.001),
    )


class Role:
    """One build of the publisher role, and its only subscriber."""

    def __init__(self, configuration: Configuration) -> None:
        self.assembly = Assembly(configuration, Event())
        self.publisher = open_publisher(self.assembly, "127.0.0.1:7400", None).datasets[0]
        ask = Subscribe(dataset="shop", application="app", subscriber="one", start="earliest")
        self.stream = self.publisher.subscribe(ask)
        self._messages = self.stream.messages()

    def acknowledge_through(self, sequence: int) -> None:
        """What came until a token at `sequence`, which is acknowledged as all before it are."""
        while True:
            _, message = next(self._messages)
            if isinstance(message, Token):
                ask = Acknowledge(session=self.stream.session, epoch=self.publisher.epoch, token=message.token)
                self.publisher.acknowledge(ask)
                if message.checkpoint.position.sequence >= sequence:
                    return

    def updates(self, through: int) -> list[tuple[int, int]]:
        """(era, sequence) of each update up to a sequence number."""
        found: list[tuple[int, int]] = []
        while not found or found[-1][1] < through:
            batch, _ = next(self._messages)
            found += zip(batch.column("era").to_pylist(), batch.column("sequence").to_pylist(), strict=True)
        return found

    def until_it_is_to_start_over(self) -> None:
        while not self.assembly.stopping.is_set():
            assert next(self._messages)[0].num_rows == 0, "nothing more is delivered"

    def loss(self) -> DataLoss:
        while True:
            _, message = next(self._messages)
            if isinstance(message, DataLoss):
                return message

    def close(self) -> None:
        self._messages.close()
        self.assembly.stack.close()


class RunningStore:
    """The store role in a process of its own, as far as a publisher can tell."""

    def __init__(self, configuration: Configuration) -> None:
        self.assembly = Assembly(configuration, Event())
        store = open_store(self.assembly)
        self.era, self.write = store.era, store.write
        service = store_service(self.assembly, store)
        assert configuration.store is not None
        self.assembly.stack.enter_context(Server(configuration.store.listen, [service], None, None))


@contextmanager
def running_store(configuration: Configuration) -> Iterator[RunningStore]:
    store = RunningStore(configuration)
    with store.assembly.stack:
        yield store


@pytest.fixture
def start(configuration: Configuration) -> Iterator[Callable[[], Role]]:
    running: list[Role] = []

    def begin() -> Role:
        running.append(Role(configuration))
        return running[-1]

    yield begin
    for role in running:
        role.close()


def test_a_restored_history_that_has_grown_since_goes_on_in_a_new_era(
    tmp_path: Path, start: Callable[[], Role]
) -> None:
    folder, backup = tmp_path / "db", tmp_path / "backup"
    first = database(folder)
    write(first, 5, b"first")
    role = start()
    role.acknowledge_through(5)
    shutil.copytree(folder, backup)
    write(first, 5, b"lost")
    role.acknowledge_through(10)
    role.close()
    first.close()
    restore(folder, backup, 10)

    found_out = start()
    assert found_out.assembly.stopping.is_set(), "the role is to start over"
    assert "another history" in found_out.assembly.restart_reason
    found_out.close()
    role = start()
    loss = role.loss()
    assert (loss.after, loss.until) == (Position(1, 5), Position(0, 10))
    assert role.updates(15) == [(1, sequence) for sequence in range(6, 16)]


def test_what_was_delivered_and_never_acknowledged_of_a_restored_history_is_told_too(
    tmp_path: Path, start: Callable[[], Role]
) -> None:
    folder, backup = tmp_path / "db", tmp_path / "backup"
    first = database(folder)
    write(first, 5, b"first")
    role = start()
    role.acknowledge_through(5)
    shutil.copytree(folder, backup)
    write(first, 5, b"lost")
    assert role.updates(10)[-1] == (0, 10)
    first.close()
    restore(folder, backup, 2)

    role.until_it_is_to_start_over()
    role.close()
    role = start()
    loss = role.loss()
    assert (loss.after, loss.until) == (Position(1, 5), Position(0, 10))
    assert role.updates(7) == [(1, 6), (1, 7)]


def test_a_fork_of_a_store_in_a_process_of_its_own_raises_the_era_for_both(tmp_path: Path) -> None:
    configuration = Configuration(
        node=NodeSettings(data_folder=tmp_path / "data"),
        dataset={"shop": DatasetSettings(shards=1)},
        store=StoreSettings(listen=f"127.0.0.1:{free_port()}", dataset="shop"),
        publisher=PublisherSettings(heartbeat_s=0.02, marker_interval_s=0.001),
    )
    folder, backup = tmp_path / "data" / "store" / "shop", tmp_path / "backup"
    with running_store(configuration) as store:
        shared = store.write([put("t", b"a", {"n": "1"})]).position.sequence
    shutil.copytree(folder, backup)
    with running_store(configuration) as store:
        role = Role(configuration)
        role.acknowledge_through(shared)
        delivered = store.write([put("t", b"b", {"n": "lost"})] * 5).position.sequence
        role.acknowledge_through(delivered)
        role.close()
    shutil.rmtree(folder)
    shutil.copytree(backup, folder)
    with Store.open(folder, era=0, options=StoreOptions(shards=1)) as elsewhere:  # grows before anyone compares
        elsewhere.write([put("t", b"c", {"n": "another"})] * 9)
    with running_store(configuration) as store:
        assert store.era == 0
        role = Role(configuration)
        assert role.assembly.stopping.is_set(), "the publisher is to start over"
        assert store.assembly.stopping.wait(10), "the store is to start over"
        role.close()
    with running_store(configuration) as store:
        assert store.era == 1
        role = Role(configuration)
        loss = role.loss()
        assert (loss.after, loss.until) == (Position(1, shared), Position(0, delivered))
        role.close()
