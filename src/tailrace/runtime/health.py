"""The HTTP port on which a role says how it is: /healthz, /readyz and /metrics.

/healthz answers as long as the process can. /readyz asks every readiness check and answers 503 with their reasons while
there are any. One thread accepts; a few more answer, so that a client that dawdles holds up nobody.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Collection, Iterable
from http.server import BaseHTTPRequestHandler, HTTPServer
from socketserver import ThreadingMixIn
from threading import BoundedSemaphore, Thread
from typing import Any, ClassVar, Final

from tailrace.errors import Unavailable
from tailrace.runtime.logging import get_log
from tailrace.runtime.metrics import CONTENT_TYPE, Metrics

log = get_log(__name__)

# A readiness check returns the reasons why its thing is not ready; none means that it is.
ReadinessCheck = Callable[[], Iterable[str]]

Answer = tuple[int, str, bytes]  # status, content type, body

MAX_CONNECTIONS: Final = 16  # more are closed unanswered
REQUEST_TIMEOUT_S: Final = 5.0
_SHUTDOWN_LOOK_S = 0.1


class Readiness:
    """The readiness checks of one process, by the name of what they check."""

    def __init__(self) -> None:
        self._checks: dict[str, ReadinessCheck] = {}

    def add(self, name: str, check: ReadinessCheck) -> None:
        self._checks[name] = check

    def remove(self, name: str) -> None:
        self._checks.pop(name, None)

    def reasons(self) -> list[str]:
        """Why this process is not ready, as `name: reason`; a check that itself fails counts as a reason."""
        found: list[str] = []
        for name, check in list(self._checks.items()):
            try:
                found += [f"{name}: {reason}" for reason in check()]
            except Exception as error:  # noqa: BLE001 - whatever a check raises is a reason, and is logged
                log.error("readiness check failed", check=name, exception=error)
                found.append(f"{name}: the check failed: {type(error).__name__}: {error}")
        return found


class HealthServer:
    """Serves from construction until `close`. Port 0 takes a free one: see `address`."""

    def __init__(
        self, metrics: Collection[Metrics], readiness: Readiness, *, host: str = "127.0.0.1", port: int = 0
    ) -> None:
        registries = metrics  # looked at anew for each scrape: a role's parts register theirs as they open

        class Handler(_Handler):
            answers: ClassVar[dict[str, Callable[[], Answer]]] = {
                "/healthz": lambda: (200, "text/plain; charset=utf-8", b"ok\n"),
                "/readyz": lambda: _ready(readiness),
                "/metrics": lambda: (200, CONTENT_TYPE, b"".join(one.render() for one in registries)),
            }

        try:
            self._server = _Server((host, port), Handler)
        except OSError as error:
            raise Unavailable(reason=f"health port {host}:{port} cannot be opened: {error.strerror}") from error
        self.host, self.port = host, int(self._server.server_address[1])
        self._thread = Thread(target=self._server.serve_forever, args=(_SHUTDOWN_LOOK_S,), name="health", daemon=True)
        self._thread.start()

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> HealthServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _ready(readiness: Readiness) -> Answer:
    reasons = readiness.reasons()
    text = "ready\n" if not reasons else "".join(f"{reason}\n" for reason in reasons)
    return (503 if reasons else 200), "text/plain; charset=utf-8", text.encode()


class _Server(ThreadingMixIn, HTTPServer):
    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        self._free = BoundedSemaphore(MAX_CONNECTIONS)
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        super().__init__(address, handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._free.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        log.debug("a health request broke off", client=client_address)


class _Handler(BaseHTTPRequestHandler):
    answers: ClassVar[dict[str, Callable[[], Answer]]]
    timeout = REQUEST_TIMEOUT_S
    server_version = "tailrace"
    sys_version = ""

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def _answer(self, *, with_body: bool) -> None:
        found = self.answers.get(self.path.partition("?")[0])
        known = ", ".join(self.answers)
        status, content_type, body = found() if found else (404, "text/plain", f"there is only {known}\n".encode())
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        if with_body:
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        log.debug("health request", client=self.client_address[0], request=format % args)
