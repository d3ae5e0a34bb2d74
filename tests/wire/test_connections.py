"""Closing connections from inside the process."""

from __future__ import annotations

import socket

from tailrace.wire.connections import drop_connections, drop_connections_to


def test_accepted_connections_are_closed_and_the_listener_stays() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)) as client, listener.accept()[0] as accepted:
            assert drop_connections(port) == 1
            assert client.recv(1) == b""
            assert accepted.recv(1) == b""
        with socket.create_connection(("127.0.0.1", port)), listener.accept()[0]:
            pass


def test_connections_to_one_place_are_closed_and_no_others() -> None:
    with socket.create_server(("127.0.0.1", 0)) as here, socket.create_server(("127.0.0.1", 0)) as there:
        to_here = socket.create_connection(here.getsockname())
        to_there = socket.create_connection(there.getsockname())
        with to_here, to_there, there.accept()[0] as answering:
            assert drop_connections_to("localhost", here.getsockname()[1]) == 1
            assert to_here.recv(1) == b""
            answering.sendall(b"x")
            assert to_there.recv(1) == b"x"


def test_a_port_without_connections_has_none_to_close() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        assert drop_connections(listener.getsockname()[1]) == 0
