"""Server and client against each other, over real sockets."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator

import pyarrow as pa
import pytest
from tests.wire.services import LARGE, Batches, SmallService, numbered

from tailrace.errors import (
    ConfigInvalid,
    Disconnected,
    FilterInvalid,
    LogTruncated,
    NotFound,
    ProtocolMismatch,
    RemoteFailed,
    Unavailable,
)
from tailrace.updates.schema import EMPTY_UPDATES, UPDATE_SCHEMA
from tailrace.wire.callers import Caller
from tailrace.wire.client import Connection
from tailrace.wire.messages import (
    BuryDead,
    Done,
    Hello,
    HelloReply,
    Leave,
    ReadRange,
    Status,
    Subscribe,
    decode_reply,
    encode,
)
from tailrace.wire.server import Server, Service, Stream

SUBSCRIBE = Subscribe("shop", "cache", "c1")


@pytest.fixture
def service() -> SmallService:
    return SmallService(lambda: numbered(3))


@pytest.fixture
def server(service: SmallService) -> Iterator[Server]:
    with Server("127.0.0.1:0", [service]) as running:
        yield running


@pytest.fixture
def connection(server: Server) -> Iterator[Connection]:
    with Connection(server.address) as connected:
        yield connected


def test_an_action_is_answered(connection: Connection, service: SmallService) -> None:
    assert connection.call(Hello(), decode_reply) == HelloReply(1, 1, "test", [], [])
    assert service.callers[0].peer.startswith("ipv4:127.0.0.1:")


def test_an_ipv6_address_works() -> None:
    if not socket.has_ipv6:
        pytest.skip("this machine has no IPv6")
    with Server("[::1]:0", [SmallService()]) as server, Connection(server.address) as connection:
        assert isinstance(connection.call(Hello(), decode_reply), HelloReply)


def test_the_servers_error_is_raised_at_the_client(connection: Connection) -> None:
    with pytest.raises(LogTruncated, match="it starts after 0:5:0"):
        connection.call(Status(), decode_reply)


def test_a_bug_in_a_service_is_remote_failed_and_logged(
    connection: Connection, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(RemoteFailed, match="answering Leave"):
        connection.call(Leave("s"), decode_reply)
    assert "Traceback" in caplog.text


def test_an_unknown_action_is_a_protocol_mismatch(connection: Connection) -> None:
    with pytest.raises(ProtocolMismatch, match="the action 'BuryDead'"):
        connection.call(BuryDead("s", b"", [], 1), decode_reply)


def test_an_unknown_ticket_is_a_protocol_mismatch(connection: Connection) -> None:
    with pytest.raises(ProtocolMismatch, match="the ticket 'ReadRange'"):
        connection.get(ReadRange("shop"))


def test_a_ticket_that_is_no_message_is_a_protocol_mismatch(connection: Connection) -> None:
    with pytest.raises(ProtocolMismatch, match="no message kind"):
        connection.get(b"\xc1nonsense")


def test_a_stream_carries_batches_and_metadata_in_order(connection: Connection) -> None:
    with connection.get(SUBSCRIBE) as reader:
        assert reader.schema == UPDATE_SCHEMA
        assert [metadata for _, metadata in reader] == [b"0", b"1", b"2"]


def test_an_error_in_mid_stream_arrives_after_what_came_before(connection: Connection, service: SmallService) -> None:
    def failing() -> Batches:
        yield from numbered(2)
        raise FilterInvalid(text="x", at=0, reason="in the middle")

    service.batches = failing
    arrived = []
    with connection.get(SUBSCRIBE) as reader, pytest.raises(FilterInvalid, match="in the middle"):
        arrived.extend(metadata for _, metadata in reader)
    with connection.get(SUBSCRIBE) as reader:
        assert [next(reader)[1], next(reader)[1]] == [b"0", b"1"]


def test_a_put_is_answered_and_its_end_confirmed(connection: Connection) -> None:
    rows = pa.record_batch([pa.array([1, 2])], names=["n"])
    with connection.put(ReadRange("shop"), rows.schema) as writer:
        writer.write(rows)
        assert writer.read() == b"2"


def test_an_error_of_a_put_is_raised_on_close(connection: Connection) -> None:
    rows = pa.record_batch([pa.array([1, 2, 3, 4])], names=["n"])
    writer = connection.put(ReadRange("shop"), rows.schema)
    writer.write(rows)
    writer.done_writing()
    with pytest.raises(NotFound, match="table 't'"):
        writer.close()


def test_flights_of_all_services_are_listed() -> None:
    class Other(Service):
        pass

    with Server("127.0.0.1:0", [SmallService(), Other()]) as server, Connection(server.address) as connection:
        assert [info.descriptor.path for info in connection.flights()] == [[b"shop"]]


def test_a_server_that_is_not_there_is_disconnected_naming_its_address() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: refused for as long as this lasts
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with Connection(address) as connection, pytest.raises(Disconnected, match=address):
            connection.call(Hello(), decode_reply)


def test_a_server_that_never_answers_is_disconnected_after_the_deadline() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with Connection(address, timeout_s=0.2) as connection, pytest.raises(Disconnected, match="no answer in time"):
            connection.call(Hello(), decode_reply)


def test_a_port_that_is_taken_is_refused_naming_it(server: Server) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(Disconnected, match=f"{address}: cannot listen there"):
            Server(address, [])


@pytest.mark.parametrize("listen", ["0.0.0.0:0", "[::]:0", "192.0.2.1:0"])
def test_an_address_that_others_reach_needs_tls_and_credentials(listen: str) -> None:
    with pytest.raises(ConfigInvalid, match="TLS and credentials are not configured"):
        Server(listen, [])


def test_a_cancelled_stream_ends_a_waiting_read(service: SmallService, connection: Connection) -> None:
    def endless() -> Batches:
        while not service.stopped.wait(0.02):
            yield EMPTY_UPDATES, b"beat"

    service.batches = endless
    reader = connection.get(SUBSCRIBE)
    next(reader)
    canceller = threading.Thread(target=reader.cancel)
    canceller.start()
    with pytest.raises(Disconnected):
        for _ in reader:
            pass
    canceller.join()


def test_a_stream_that_does_not_open_is_given_up_after_the_deadline() -> None:
    class Stuck(SmallService):
        def get(self, caller: Caller, ticket: bytes) -> Stream | None:
            self.streaming.set()
            self.stopped.wait(20)
            return None

    with Server("127.0.0.1:0", [Stuck()]) as server:
        with Connection(server.address, timeout_s=0.2) as connection, pytest.raises(Disconnected):
            connection.get(SUBSCRIBE)
        with Connection(server.address) as another:
            assert isinstance(another.call(Hello(), decode_reply), HelloReply)


def test_shutdown_tells_the_services_and_lets_streams_end(service: SmallService, server: Server) -> None:
    def until_stopped() -> Batches:
        yield EMPTY_UPDATES, b"first"
        service.stopped.wait(20)
        yield EMPTY_UPDATES, b"goodbye"

    service.batches = until_stopped
    with Connection(server.address) as connection, connection.get(SUBSCRIBE) as reader:
        assert next(reader)[1] == b"first"
        ended = threading.Thread(target=server.shutdown)
        ended.start()
        assert [metadata for _, metadata in reader] == [b"goodbye"]
        ended.join()
    assert server.shutdown()


def test_shutdown_ends_a_stream_that_would_go_on(service: SmallService, server: Server) -> None:
    pause = threading.Event()

    def endless() -> Batches:
        while True:
            pause.wait(0.01)
            yield EMPTY_UPDATES, b"more"

    service.batches = endless
    with Connection(server.address) as connection, connection.get(SUBSCRIBE) as reader:
        next(reader)
        closer = threading.Thread(target=server.shutdown, args=(0.1,))
        closer.start()
        with pytest.raises(Unavailable, match="shutting down"):
            for _ in reader:
                pass
        closer.join()


def test_shutdown_does_not_wait_for_a_client_that_stopped_reading() -> None:
    def flood() -> Batches:
        while True:
            yield LARGE, b""

    service = SmallService(flood, LARGE.schema)
    server = Server("127.0.0.1:0", [service])
    client = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import sys; from tailrace.wire.client import Connection; from tailrace.wire.messages import Subscribe\n"
            "reader = Connection(sys.argv[1]).get(Subscribe('shop', 'cache', 'c1'))\n"
            "print('reading', next(reader)[0].num_rows, flush=True)\n"
            "for _ in reader: pass\n",
            server.address,
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    try:
        assert client.stdout is not None
        with client.stdout as output:
            assert output.readline() == b"reading 1\n"
            client.send_signal(signal.SIGSTOP)
            assert server.shutdown(grace_s=0.1)
    finally:
        client.kill()
        client.wait()


def test_shutdown_does_not_wait_for_a_client_that_keeps_its_put_open(service: SmallService, server: Server) -> None:
    rows = pa.record_batch([pa.array([1])], names=["n"])
    with Connection(server.address) as connection:
        writer = connection.put(ReadRange("shop"), rows.schema)
        writer.write(rows)
        assert writer.read() == b"1"
        assert server.shutdown(grace_s=0.1)
        with pytest.raises(Disconnected):
            writer.close()


def test_large_batches_pass_in_both_directions(service: SmallService) -> None:
    large = pa.record_batch([pa.array([b"x" * (40 << 20)])], names=["blob"])
    service = SmallService(lambda: iter([(large, b"down")]), large.schema)
    with Server("127.0.0.1:0", [service]) as server, Connection(server.address) as connection:
        with connection.get(SUBSCRIBE) as reader:
            batch, _ = next(reader)
            assert batch is not None
            assert batch.nbytes == large.nbytes
        with connection.put(ReadRange("shop"), large.schema) as writer:
            writer.write(large)
            assert writer.read() == b"1"


def test_a_request_over_the_limit_is_refused_with_its_size(service: SmallService) -> None:
    body = encode(Hello())
    with (
        Server("127.0.0.1:0", [service], max_request_bytes=len(body)) as server,
        Connection(server.address) as connection,
    ):
        assert isinstance(connection.call(Hello(), decode_reply), HelloReply)
        refusal = rf"a request has \d+ bytes, at most {len(body)}"
        with pytest.raises(ProtocolMismatch, match=refusal):
            connection.call_raw("Hello", body + b" ")
        with pytest.raises(ProtocolMismatch, match=refusal):
            connection.get(SUBSCRIBE)
        with pytest.raises(ProtocolMismatch, match=refusal):
            connection.put(ReadRange("shop"), LARGE.schema).close()
    assert len(service.callers) == 1


def test_done_is_a_reply() -> None:
    assert decode_reply(b"\x81\xa4kind\xa4Done") == Done()
