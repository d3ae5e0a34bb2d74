"""How each process of a torture run is started: the one place that knows their command lines.

Store and publisher are `tailrace run --role ...` with one configuration file, as anybody would run them; their
addresses of each other are those of the proxies.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path

from tailrace.testing.torture.content import DATASET, PUBLISHER_SETTINGS, SHARDS

_ENTRY = "tailrace.testing.torture"


@dataclass(frozen=True)
class Addresses:
    """Where the two servers listen, and what their clients connect to instead."""

    store_port: int
    publisher_port: int
    store_health_port: int
    publisher_health_port: int
    store_for_writer: str
    store_for_publisher: str
    publisher_for_subscribers: str


class Commands:
    """The argument list of each role."""

    def __init__(self, folder: Path, addresses: Addresses, seed: int, sabotage: str | None) -> None:
        self._folder = folder
        self._addresses = addresses
        self._seed = seed
        self._sabotage = sabotage
        self._configuration = folder / "tailrace.toml"

    def write_configuration(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        self._configuration.write_text(configuration(self._folder / "data", self._addresses))

    def store(self) -> list[str]:
        return self._run("store")

    def publisher(self) -> list[str]:
        if self._sabotage is None:
            return self._run("publisher")
        addresses = self._addresses
        source = f"store://{addresses.store_for_publisher}/{DATASET}"
        place = [str(self._folder / "publisher"), str(addresses.publisher_port), addresses.publisher_for_subscribers]
        return self._entry("sabotaged_publisher_process", *place, source, self._sabotage)

    def subscriber(self, application: str, name: str, deliveries: Path) -> list[str]:
        url = f"tailrace://{self._addresses.publisher_for_subscribers}/{DATASET}"
        return self._entry("subscriber_process", url, application, name, str(deliveries))

    def writer(self, rate_updates_s: float, writes: Path) -> list[str]:
        url = f"store://{self._addresses.store_for_writer}/{DATASET}"
        return self._entry("writer_process", url, str(self._seed), str(rate_updates_s), str(writes))

    def _run(self, role: str) -> list[str]:
        return [sys.executable, "-m", "tailrace.cli", "run", "--role", role, "--config", str(self._configuration)]

    @staticmethod
    def _entry(module: str, *arguments: str) -> list[str]:
        return [sys.executable, "-m", f"{_ENTRY}.{module}", *arguments]


def configuration(data_folder: Path, addresses: Addresses) -> str:
    """Both roles' configuration, as a user would write it."""
    settings = "\n".join(f"{name} = {json.dumps(value)}" for name, value in PUBLISHER_SETTINGS.items())
    return f"""version = 1

[dataset.{DATASET}]
shards = {SHARDS}
source = "store://{addresses.store_for_publisher}/{DATASET}"

[store]
dataset = "{DATASET}"
listen = "127.0.0.1:{addresses.store_port}"
health_listen = "127.0.0.1:{addresses.store_health_port}"

[node]
listen = "127.0.0.1:{addresses.publisher_port}"
health_listen = "127.0.0.1:{addresses.publisher_health_port}"
advertise = "{addresses.publisher_for_subscribers}"
data_folder = {json.dumps(str(data_folder))}

[publisher]
{settings}
"""
