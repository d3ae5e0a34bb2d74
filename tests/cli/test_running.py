"""Roles as processes: how they say that they are ready, drain, come back, and refuse what cannot work."""

from __future__ import annotations

import os
import shutil
import signal
import urllib.error
import urllib.request
from pathlib import Path
from threading import Event

import psutil
import rocksdict

import tailrace as library
from tailrace.cli.roles.assembly import STORE_FOLDER
from tailrace.store.client import StoreClient
from tailrace.testing.ports import free_port
from tailrace.testing.processes import LocalProcess, tailrace_role
from tests.cli.conftest import Node, Tailrace, in_a_process, node_in

DEADLINE_S = 30.0


class Recorder(library.Application):
    """Remembers keys and losses, and wakes whoever waits for them."""

    def __init__(self) -> None:
        self.keys: list[bytes] = []
        self.losses: list[str] = []
        self._came = Event()

    def on_update(self, update: library.Update) -> None:
        self.keys.append(update.key)
        self._came.set()

    def on_data_loss(self, shard: int, after: library.Position, until: library.Position, reason: str) -> None:
        self.losses.append(reason)
        self._came.set()

    def wait_for_key(self, key: bytes) -> None:
        while key not in self.keys:
            self._came.clear()
            if key not in self.keys:
                assert self._came.wait(DEADLINE_S), f"{key!r} did not come; there are {self.keys}, {self.losses}"


def asked(address: str, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://{address}{path}", timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def write(node: Node, key: str) -> None:
    with StoreClient(f"store://{node.address}/demo") as client:
        client.put_wait("users", key.encode(), {"name": key}, timeout_s=DEADLINE_S)


def test_a_node_says_that_it_is_ready_and_drains_on_sigterm(tmp_path: Path) -> None:
    node = node_in(tmp_path)
    with node.process as process:
        process.wait_ready()
        assert f"ready role=node address={node.address} health={node.health}" in process.log.read_text()
        assert asked(node.health, "/readyz") == (200, "ready\n")
        assert asked(node.health, "/healthz") == (200, "ok\n")
        recorder = Recorder()
        url = f"tailrace://{node.address}/demo"
        with library.subscribe(url, recorder, application="cache", start="earliest"):
            write(node, "alice")
            recorder.wait_for_key(b"alice")
            metrics = asked(node.health, "/metrics")[1]
            assert process.terminate(DEADLINE_S) == 0
    assert 'tailrace_publisher_subscribers{application="cache",dataset="demo"} 1.0' in metrics
    assert 'tailrace_store_head_sequence{dataset="demo"} 2.0' in metrics
    assert 'tailrace_publisher_state{application="cache",dataset="demo",state="failed"} 0.0' in metrics
    assert "Traceback" not in process.log.read_text()


def test_a_killed_node_comes_back_and_its_applications_go_on(tmp_path: Path) -> None:
    node = node_in(tmp_path)
    recorder = Recorder()
    with node.process as process:
        process.wait_ready()
        with library.subscribe(f"tailrace://{node.address}/demo", recorder, application="cache", start="earliest"):
            write(node, "before")
            recorder.wait_for_key(b"before")
            process.kill()
            process.start()
            process.wait_ready()
            write(node, "after")
            recorder.wait_for_key(b"after")
        assert process.terminate(DEADLINE_S) == 0
    assert recorder.losses == []


def test_two_nodes_do_not_share_a_data_folder(tmp_path: Path) -> None:
    first, second = node_in(tmp_path), node_in(tmp_path)
    with first.process as process:
        process.wait_ready()
        said = in_a_process(*second.process.argv[3:])
        assert said.code == 1
        assert said.err.splitlines()[-1].startswith("error: store ")
        assert "Traceback" not in said.err


def test_a_port_that_is_taken_is_an_error(tmp_path: Path) -> None:
    with node_in(tmp_path / "a").process as process:
        process.wait_ready()
        health = process.argv[-1]
        arguments = ("--listen", f"127.0.0.1:{free_port()}", "--health", health, "--data", tmp_path / "b")
        said = in_a_process("run", *arguments, "--role", "node")
        assert said.code == 1
        assert f"error: health port {health} cannot be opened" in said.err
        arguments = ("--listen", process.argv[-3], "--health", "127.0.0.1:0", "--data", tmp_path / "b")
        said = in_a_process("run", *arguments, "--role", "node")
        assert said.code == 1
        assert said.err.startswith(f"error: port {process.argv[-3]} cannot be opened: Address already in use")


def two_roles(folder: Path) -> tuple[Path, str, str]:
    """A configuration with a store and a publisher of their own; returns it and where each listens."""
    store, publisher = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
    file = folder / "tailrace.toml"
    file.write_text(
        f"""
        version = 1
        [dataset.shop]
        shards = 4
        [app.cache]
        filter = "table = 'users'"
        start = "earliest"
        [store]
        dataset = "shop"
        listen = "{store}"
        health_listen = "127.0.0.1:{free_port()}"
        [node]
        listen = "{publisher}"
        health_listen = "127.0.0.1:{free_port()}"
        """
    )
    return file, store, publisher


def test_a_process_runs_for_each_configured_role_and_all_end_together(tailrace: Tailrace, tmp_path: Path) -> None:
    file, store, _ = two_roles(tmp_path)
    both = tailrace_role("run", ["run", "--config", str(file)], tmp_path, ready_line="ready role=publisher")
    with both:
        both.wait_ready()
        assert f"ready role=store address={store}" in both.log.read_text()
        children = {" ".join(child.cmdline()): child for child in psutil.Process(both.pid).children()}
        assert len([line for line in children if "--role" in line]) == 2
        assert tailrace("put", "users", "a", "n=1", "--config", file).code == 0
        said = tailrace("tail", "shop", "--config", file, "--from", "earliest", "--until", "head")
        assert said.lines[0].split("\t")[4] == "a"
        applications = tailrace("status", "--json", "--config", file).json()["applications"]
        assert [(one["application"], one["filter"]) for one in applications] == [("cache", "table = 'users'")]
        assert tailrace("check", "--config", file).code == 0
        assert both.terminate(DEADLINE_S) == 0
    assert not [child for child in children.values() if child.is_running()]


def test_an_application_recorded_differently_is_refused_at_the_start(tailrace: Tailrace, tmp_path: Path) -> None:
    file, _, _ = two_roles(tmp_path)
    node = tailrace_role("node", ["run", "--config", str(file), "--role", "node"], tmp_path)
    with node:
        node.wait_ready()
        assert node.terminate(DEADLINE_S) == 0
    file.write_text(file.read_text().replace("'users'", "'orders'"))
    said = in_a_process("run", "--config", file, "--role", "node")
    assert said.code == 2
    assert "application 'cache' is recorded differently" in said.err
    checked = tailrace("check", "--config", file)
    assert checked.code == 1
    assert "problem\tapp.cache" in checked.out


def test_an_address_that_others_reach_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    address = f"0.0.0.0:{free_port()}"
    said = in_a_process("run", "--listen", address, "--health", "127.0.0.1:0", "--data", tmp_path / "data")
    assert said.code == 2
    assert f"node.listen: {address} can be reached from other machines without TLS and credentials" in said.err
    file, _, publisher = two_roles(tmp_path)
    file.write_text(file.read_text().replace(publisher, address))
    assert in_a_process("run", "--config", file).code == 2
    assert list(tmp_path.iterdir()) == [file]


def test_credentials_that_cannot_be_read_are_refused_before_anything_is_made(tmp_path: Path) -> None:
    file, _, _ = two_roles(tmp_path)
    file.write_text(file.read_text() + 'credentials_file = "no.json"\n')
    said = in_a_process("run", "--config", file, "--role", "node")
    assert said.code == 2
    assert "no.json: No such file" in said.err
    assert list(tmp_path.iterdir()) == [file]


def test_the_shards_of_a_published_dataset_are_fixed(tailrace: Tailrace, tmp_path: Path) -> None:
    rocksdict.Rdict(str(tmp_path / "db"), rocksdict.Options(raw_mode=True)).close()
    listens = f'listen = "127.0.0.1:{free_port()}"\nhealth_listen = "127.0.0.1:{free_port()}"\n'
    file = tmp_path / "tailrace.toml"
    file.write_text(
        f'version = 1\n[dataset.shop]\nshards = 64\nsource = "rocksdb://{tmp_path / "db"}"\n[node]\n{listens}'
    )
    with tailrace_role("publisher", ["run", "--config", str(file), "--role", "publisher"], tmp_path) as publisher:
        publisher.wait_ready()
        assert publisher.terminate(DEADLINE_S) == 0
    file.write_text(file.read_text().replace("shards = 64", "shards = 32"))
    said = in_a_process("run", "--config", file, "--role", "publisher")
    assert said.code == 2
    assert "error: dataset.shop.shards: 32, but" in said.err
    assert "write shards = 64" in said.err
    assert tailrace("check", "--config", file).code == 1


def test_the_shards_of_a_store_are_fixed_under_the_key_that_says_so(tmp_path: Path) -> None:
    file, _, _ = two_roles(tmp_path)
    with tailrace_role("store", ["run", "--config", str(file), "--role", "store"], tmp_path) as store:
        store.wait_ready()
        assert store.terminate(DEADLINE_S) == 0
    file.write_text(file.read_text().replace("shards = 4", "shards = 2"))
    said = in_a_process("run", "--config", file, "--role", "store")
    assert said.code == 2
    assert "error: dataset.shop.shards: 2, but the store in" in said.err


def test_a_node_without_a_store_says_who_has_it(tailrace: Tailrace, tmp_path: Path) -> None:
    file, store, publisher = two_roles(tmp_path)
    with tailrace_role("run", ["run", "--config", str(file)], tmp_path, ready_line="ready role=publisher") as both:
        both.wait_ready()
        said = tailrace("put", "users", "a", "n=1", "--config", file, "--store", publisher)
        assert both.terminate(DEADLINE_S) == 0
    assert said.code == 2
    assert said.err == (
        f"error: a store at '{publisher}' does not exist; this node has none; "
        f"'shop' is written at store://{store}/shop\n"
    )


def test_a_publisher_reaches_its_store_with_the_token_that_check_asks_for(tailrace: Tailrace, tmp_path: Path) -> None:
    file, _, _ = two_roles(tmp_path)
    more = 'shards = 4\ncredential_file = "token"'
    file.write_text(file.read_text().replace("shards = 4", more) + 'credentials_file = "who.json"\n')
    issued = tailrace("credential", "issue", "publisher", "--allow", "read", "--dataset", "shop", "--config", file)
    (tmp_path / "token").write_text(issued.out)
    with tailrace_role("run", ["run", "--config", str(file)], tmp_path, ready_line="ready role=publisher") as both:
        both.wait_ready()
        assert tailrace("check", "--config", file).code == 0
        assert both.terminate(DEADLINE_S) == 0


def test_a_store_that_was_wiped_starts_a_new_era_and_applications_are_told(tmp_path: Path) -> None:
    file, store, publisher = two_roles(tmp_path)

    def role(name: str) -> LocalProcess:
        return tailrace_role(name, ["run", "--config", str(file), "--role", name], tmp_path)

    recorder = Recorder()
    with role("store") as kept, role("publisher") as publishing:
        kept.wait_ready()
        publishing.wait_ready()
        url = f"tailrace://{publisher}/shop"
        with library.subscribe(url, recorder, application="cache", filter="table = 'users'", start="earliest"):
            with StoreClient(f"store://{store}/shop") as client:
                assert client.put_wait("users", b"old", {"n": "1"}).position.era == 0
                recorder.wait_for_key(b"old")
            kept.terminate(DEADLINE_S)
            shutil.rmtree(tmp_path / "tailrace-data" / STORE_FOLDER)
            kept.start()
            kept.wait_ready()
            with StoreClient(f"store://{store}/shop") as client:
                assert client.put_wait("users", b"new", {"n": "2"}).position.era == 1
            recorder.wait_for_key(b"new")
        assert list(dict.fromkeys(recorder.keys)) == [b"old", b"new"]
        assert recorder.losses
        assert publishing.terminate(DEADLINE_S) == 0


def test_a_publisher_waits_for_its_store_and_ends_when_it_is_told_to(tmp_path: Path) -> None:
    file, _, _ = two_roles(tmp_path)
    arguments = ["run", "--config", str(file), "--role", "publisher"]
    with tailrace_role("publisher", arguments, tmp_path, ready_line="time=") as publisher:
        publisher.wait_ready()
        assert "the role cannot start yet" in publisher.log.read_text()
        assert publisher.terminate(DEADLINE_S) == 0


def test_a_second_signal_ends_the_process_at_once(tmp_path: Path) -> None:
    node = node_in(tmp_path)
    with node.process as process:
        process.wait_ready()
        os.kill(process.pid, signal.SIGINT)
        os.kill(process.pid, signal.SIGINT)
        assert process.wait(DEADLINE_S) in (0, 128 + signal.SIGINT)
