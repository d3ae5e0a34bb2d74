"""A role's process: its port, its health port, and what signals do to it.

The health port opens first, so that a start that takes long can be told from a hang. Then come the parts of the role,
then the port that serves them, then the line `ready role=... address=... health=...` on stdout, for whoever started
this process. SIGTERM or Ctrl-C drains: /readyz says so, the port closes once acknowledgements under way are answered,
and everything is closed in order. A second signal, or `DRAIN_LIMIT_S`, ends the process at once; what is durable stays.
"""

from __future__ import annotations

import os
import signal
import sys
from threading import Event, Thread
from typing import Final, Literal, NoReturn

from tailrace.cli.configuration import Configuration
from tailrace.cli.output import say
from tailrace.cli.ports import require_free
from tailrace.cli.roles.assembly import Assembly
from tailrace.cli.roles.security import known_credentials, server_tls
from tailrace.coordination.datasets import read_shards, refuse_other_shards
from tailrace.errors import Kind, TailraceError, Unavailable
from tailrace.runtime.backoff import Backoff, Retry
from tailrace.runtime.health import HealthServer
from tailrace.runtime.interpreter import tune
from tailrace.runtime.logging import get_log
from tailrace.runtime.tasks import drain_on_signals
from tailrace.wire.addresses import parse_address
from tailrace.wire.server import Server, Service

log = get_log(__name__)

RoleName = Literal["store", "publisher", "node"]

DRAIN_LIMIT_S: Final = 25.0
_START_BACKOFF: Final = Backoff(first_s=0.05, limit_s=1.0)


def run_role(role: RoleName, configuration: Configuration) -> int:
    """Runs a role in this process until a signal ends it; returns the exit code."""
    tune()
    stop = DrainRequest()
    process = RoleProcess(role, configuration, stop)
    try:
        with drain_on_signals(stop):
            process.run()
    except KeyboardInterrupt:
        log.warning("a second signal: ending at once")
        _end_now(128 + signal.SIGINT)
    return 0


class DrainRequest(Event):
    """Set by a signal, and with it the event of the build that is under way."""

    def __init__(self) -> None:
        super().__init__()
        self._build = Event()

    def follow(self, build: Event) -> None:
        self._build = build
        if self.is_set():
            build.set()

    def set(self) -> None:
        super().set()
        self._build.set()


class RoleProcess:
    """Builds the role, and builds it again when a part of it asks for that, until `stop` is set."""

    def __init__(self, role: RoleName, configuration: Configuration, stop: DrainRequest) -> None:
        self._role = role
        self._configuration = configuration
        self._stop = stop
        self._retry = Retry(_START_BACKOFF)

    def run(self) -> None:
        while not self._stop.is_set():
            assembly = Assembly(self._configuration, Event())
            self._stop.follow(assembly.stopping)
            with assembly.stack:
                self._run_once(assembly)
            if assembly.restart_reason:
                self._stop.wait(self._retry.failed())

    def _run_once(self, assembly: Assembly) -> None:
        address, health_address = listening(self._role, self._configuration)
        assembly.readiness.add("role", lambda: ["starting"])
        health = _health(assembly, health_address)
        try:
            services = _build(self._role, assembly, address)
        except TailraceError as error:
            if error.kind is not Kind.RETRY and not self._stop.is_set():
                raise
            log.info("the role cannot start yet", reason=error)
            assembly.restart_reason = str(error)
            return
        servers = _listen(assembly, self._role, services)
        assembly.readiness.remove("role")
        self._retry.succeeded()
        say(f"ready role={self._role} address={servers[0].address} health={health.address}")
        assembly.stopping.wait()
        assembly.readiness.add("role", lambda: ["draining"])
        if self._stop.is_set():
            _end_at_the_deadline()


def _build(role: RoleName, assembly: Assembly, address: str) -> list[Service]:
    for dataset, settings in assembly.configuration.dataset.items():
        refuse_other_shards(dataset, read_shards(assembly.coordinator(), dataset), settings.shards)
    services: list[Service] = []
    store = None
    if role in ("store", "node") and assembly.configuration.store is not None:
        from tailrace.cli.roles.store import open_store, store_service

        store = open_store(assembly)
        services.append(store_service(assembly, store))
    if role in ("publisher", "node"):
        from tailrace.cli.roles.publisher import open_publisher

        services.append(open_publisher(assembly, address, store).service)
        if store is None:
            from tailrace.cli.roles.elsewhere import StoreElsewhere

            services.append(StoreElsewhere(assembly, address))
    return services


def _listen(assembly: Assembly, role: RoleName, services: list[Service]) -> list[Server]:
    """Opens the role's port; a node whose store has an address of its own opens that too."""
    configuration = assembly.configuration
    credentials, tls = known_credentials(configuration), server_tls(configuration)
    servers = []
    addresses = [listening(role, configuration)[0]]
    if role == "node" and configuration.store is not None and configuration.store.listen != addresses[0]:
        addresses.append(configuration.store.listen)
    for number, address in enumerate(addresses):
        require_free(address)
        server = Server(address, services if number == 0 else services[:1], credentials, tls)
        assembly.stack.callback(server.shutdown)
        servers.append(server)
    return servers


def _health(assembly: Assembly, address: str) -> HealthServer:
    endpoint = parse_address(address)
    try:
        health = HealthServer(assembly.metrics, assembly.readiness, host=endpoint.host, port=endpoint.port)
    except Unavailable as error:
        error.add_note("is another node running here? --health (or the key health_listen) names another port")
        raise
    assembly.stack.callback(health.close)
    return health


def listening(role: RoleName, configuration: Configuration) -> tuple[str, str]:
    """Where a role listens, and its health port."""
    if role == "store" and configuration.store is not None:
        return configuration.store.listen, configuration.store.health_listen
    return configuration.node.listen, configuration.node.health_listen


def _end_at_the_deadline() -> None:
    def end() -> None:
        Event().wait(DRAIN_LIMIT_S)
        log.error("the role did not drain in time and is ended", limit_s=DRAIN_LIMIT_S)
        _end_now(1)

    Thread(target=end, name="drain-limit", daemon=True).start()


def _end_now(code: int) -> NoReturn:
    """Ends without waiting for anything: threads that hang cannot be ended otherwise."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
