from __future__ import annotations

import http.client
import socket
from collections.abc import Iterator

import pytest

from tailrace.errors import Unavailable
from tailrace.runtime.health import HealthServer, Readiness
from tailrace.runtime.metrics import Metrics


@pytest.fixture
def readiness() -> Readiness:
    return Readiness()


@pytest.fixture
def server(readiness: Readiness) -> Iterator[HealthServer]:
    metrics = Metrics("store")
    metrics.counter("writes", "Writes.").inc(3)
    with HealthServer([metrics], readiness) as running:
        yield running


def get(server: HealthServer, path: str, method: str = "GET") -> tuple[int, str]:
    connection = http.client.HTTPConnection(server.host, server.port, timeout=5)
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def test_a_process_that_answers_is_healthy(server: HealthServer) -> None:
    assert get(server, "/healthz") == (200, "ok\n")
    assert get(server, "/healthz", "HEAD") == (200, "")


def test_readiness_gives_the_reasons(server: HealthServer, readiness: Readiness) -> None:
    assert get(server, "/readyz") == (200, "ready\n")
    readiness.add("store", list)
    readiness.add("flows", lambda: ["cache waits for markers", "lake lost its disk"])
    assert get(server, "/readyz") == (503, "flows: cache waits for markers\nflows: lake lost its disk\n")
    readiness.remove("flows")
    assert get(server, "/readyz") == (200, "ready\n")


def test_a_check_that_fails_is_a_reason(server: HealthServer, readiness: Readiness) -> None:
    def broken() -> list[str]:
        raise RuntimeError("no idea")

    readiness.add("flows", broken)
    assert get(server, "/readyz?verbose") == (503, "flows: the check failed: RuntimeError: no idea\n")


def test_metrics_are_served(server: HealthServer) -> None:
    status, text = get(server, "/metrics")
    assert status == 200
    assert "tailrace_store_writes_total 3.0\n" in text


def test_another_path_is_answered_with_those_that_are_there(server: HealthServer) -> None:
    assert get(server, "/x") == (404, "there is only /healthz, /readyz, /metrics\n")


def test_a_client_that_dawdles_holds_up_nobody(server: HealthServer) -> None:
    with socket.create_connection((server.host, server.port)) as dawdler:
        dawdler.sendall(b"GET /heal")
        assert get(server, "/healthz") == (200, "ok\n")


def test_a_taken_port_is_an_error_that_names_it(server: HealthServer, readiness: Readiness) -> None:
    with pytest.raises(Unavailable, match=f"127.0.0.1:{server.port}"):
        HealthServer([], readiness, port=server.port)


def test_a_closed_server_no_longer_listens(readiness: Readiness) -> None:
    server = HealthServer([], readiness)
    server.close()
    with pytest.raises(ConnectionRefusedError):
        get(server, "/healthz")
