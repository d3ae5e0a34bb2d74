"""The proxy passes bytes, and breaks connections as it says; what the tests of the product rely on."""

from __future__ import annotations

import hashlib
import socket
import threading
from collections.abc import Iterator

import pytest

from tailrace.testing.proxy import Proxy

WAIT_S = 10.0
SHORT_S = 0.2  # how long silence is listened to


class Target:
    """Accepts connections one after the other; the test holds the target's end of each."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.settimeout(WAIT_S)
        self.address: tuple[str, int] = self.listener.getsockname()
        self.accepted: list[socket.socket] = []

    def accept(self) -> socket.socket:
        end, _ = self.listener.accept()
        end.settimeout(WAIT_S)
        self.accepted.append(end)
        return end

    def close(self) -> None:
        for end in [self.listener, *self.accepted]:
            end.close()


@pytest.fixture
def target() -> Iterator[Target]:
    target = Target()
    yield target
    target.close()


@pytest.fixture
def proxy(target: Target) -> Iterator[Proxy]:
    with Proxy(target.address) as proxy:
        yield proxy


def connect(proxy: Proxy) -> socket.socket:
    return socket.create_connection(("127.0.0.1", proxy.port), timeout=WAIT_S)


def received(end: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        piece = end.recv(count - len(data))
        assert piece, f"ended after {len(data)} of {count} bytes"
        data += piece
    return data


def is_silent(end: socket.socket) -> bool:
    end.settimeout(SHORT_S)
    try:
        end.recv(1)
    except TimeoutError:
        return True
    finally:
        end.settimeout(WAIT_S)
    return False


def is_over(end: socket.socket) -> bool:
    """The other side is gone: by reset, or by an end."""
    try:
        return end.recv(1) == b""
    except ConnectionError:
        return True


def test_bytes_pass_both_ways(proxy: Proxy, target: Target) -> None:
    with connect(proxy) as client:
        end = target.accept()
        client.sendall(b"question")
        assert received(end, 8) == b"question"
        end.sendall(b"answer")
        assert received(client, 6) == b"answer"


def test_much_data_arrives_whole_through_a_slow_reader(proxy: Proxy, target: Target) -> None:
    block = bytes(range(256)) * 4096
    with connect(proxy) as client:
        end = target.accept()
        sender = threading.Thread(target=lambda: [client.sendall(block) for _ in range(32)])
        sender.start()
        digest = hashlib.sha256(received(end, 32 * len(block))).hexdigest()
        sender.join()
    assert digest == hashlib.sha256(block * 32).hexdigest()


def test_an_end_reaches_the_other_side_after_its_bytes(proxy: Proxy, target: Target) -> None:
    client = connect(proxy)
    end = target.accept()
    client.sendall(b"last words")
    client.close()
    assert received(end, 10) == b"last words"
    assert is_over(end)


def is_reset(proxy: Proxy) -> bool:
    """A new connection is reset, before the client has noticed that it stood or after."""
    try:
        with connect(proxy) as client:
            return is_over(client)
    except ConnectionResetError:
        return True


def test_a_target_that_is_not_there_looks_like_a_reset() -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        address = gone.getsockname()
    with Proxy(address) as proxy:
        assert is_reset(proxy)


def test_cut_resets_what_is_there_and_what_comes_until_it_heals(proxy: Proxy, target: Target) -> None:
    with connect(proxy) as client:
        end = target.accept()
        proxy.cut()
        assert is_over(client)
        assert is_over(end)
    assert is_reset(proxy)
    proxy.heal()
    with connect(proxy) as again:
        again.sendall(b"x")
        assert received(target.accept(), 1) == b"x"


def test_stall_holds_both_directions_and_loses_nothing(proxy: Proxy, target: Target) -> None:
    with connect(proxy) as client:
        end = target.accept()
        proxy.stall()
        client.sendall(b"up")
        end.sendall(b"down")
        assert is_silent(client)
        assert is_silent(end)
        proxy.heal()
        assert received(end, 2) == b"up"
        assert received(client, 4) == b"down"


def test_stall_of_one_direction_leaves_the_other_open(proxy: Proxy, target: Target) -> None:
    with connect(proxy) as client:
        end = target.accept()
        proxy.stall("up")
        client.sendall(b"up")
        end.sendall(b"down")
        assert received(client, 4) == b"down"
        assert is_silent(end)
        proxy.heal()
        assert received(end, 2) == b"up"


def test_a_connection_made_during_a_stall_is_stalled_too(proxy: Proxy, target: Target) -> None:
    proxy.stall()
    with connect(proxy) as client:
        end = target.accept()
        client.sendall(b"up")
        assert is_silent(end)
        proxy.heal()
        assert received(end, 2) == b"up"


@pytest.mark.parametrize("believer", ["client", "target"])
def test_half_open_resets_one_side_while_the_other_believes(proxy: Proxy, target: Target, believer: str) -> None:
    with connect(proxy) as client:
        end = target.accept()
        client.sendall(b"a")
        received(end, 1)
        proxy.half_open("client" if believer == "client" else "target")
        stays, goes = (client, end) if believer == "client" else (end, client)
        assert is_over(goes)
        stays.sendall(b"into the void")
        assert is_silent(stays)
        with connect(proxy) as another:
            another.sendall(b"n")
            assert received(target.accept(), 1) == b"n"
            proxy.heal()
            assert is_over(stays)
            another.sendall(b"m")
            assert received(target.accepted[-1], 1) == b"m"


def test_closing_the_proxy_ends_everything(target: Target) -> None:
    proxy = Proxy(target.address)
    proxy.start()
    client = connect(proxy)
    end = target.accept()
    proxy.close()
    assert is_over(client)
    assert is_over(end)
    client.close()
    assert proxy.connections == 0
