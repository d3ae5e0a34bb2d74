"""How a store is set up: durability, limits, and how long its log is kept."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from typing import Any, get_args

from tailrace.errors import ConfigInvalid
from tailrace.wire.store_messages import Durability

MIB = 1 << 20
_SIZE_LIMITS = {"shards": 1 << 20, "max_key_bytes": 1 << 20, "max_update_bytes": 1 << 30, "max_write_bytes": 1 << 30}
TABLE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.$-]{0,127}\Z")


def require_durability(path: str, given: object) -> None:
    if type(given) is not str or given not in get_args(Durability):  # msgpack knows no subclasses
        raise ConfigInvalid(path=path, reason=f"{given!r} is none of {', '.join(get_args(Durability))}")


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """Every limit of a store, with its default and why it is that.

    durability: when a write is answered. 'fsync': after an fsync of its own. 'grouped': after an fsync that it shares
      with whatever gathered while the last one ran. 'none': at once; a power cut may take back what was answered and
      published. A write may ask for another durability than the store's.
    wal_keep_s, wal_keep_bytes: how long the log is kept once its content lies in tables (RocksDB looks every ten
      minutes and at each open); an application that is away for longer gets a loss notice. 24 hours outlast a night.
    write_buffer_bytes: a log file ends when a table has gathered that much, so it also sets the log files' size.
    live_wal_bytes: log that is not in tables yet; what a restart replays.
    max_queued_bytes, max_queued_writes: written or waiting, and not answered yet. Callers wait at these limits for
      `queue_wait_s`, then get `Unavailable`.
    """

    shards: int = 1
    durability: Durability = "grouped"
    max_key_bytes: int = 64 * 1024
    max_update_bytes: int = 8 * MIB
    max_write_operations: int = 100_000
    max_write_bytes: int = 64 * MIB
    max_group_bytes: int = 4 * MIB
    max_queued_bytes: int = 64 * MIB
    max_queued_writes: int = 50_000
    queue_wait_s: float = 10.0
    max_tables: int = 1_000
    wal_keep_s: int = 24 * 3600
    wal_keep_bytes: int = 10_000 * MIB
    write_buffer_bytes: int = 32 * MIB
    all_write_buffers_bytes: int = 96 * MIB
    live_wal_bytes: int = 256 * MIB
    block_cache_bytes: int = 64 * MIB
    recover_interval_s: float = 1.0
    recover_free_bytes: int = 32 * MIB

    def __post_init__(self) -> None:
        require_durability("store.durability", self.durability)
        for field in fields(self):
            if field.name != "durability":
                self._require_number(field.name, getattr(self, field.name))
        if self.max_update_bytes > self.max_write_bytes:
            reason = f"{self.max_update_bytes} is more than max_write_bytes, {self.max_write_bytes}"
            raise ConfigInvalid(path="store.max_update_bytes", reason=reason)
        if self.max_write_bytes > self.max_queued_bytes:
            reason = f"{self.max_write_bytes} is more than max_queued_bytes, {self.max_queued_bytes}"
            raise ConfigInvalid(path="store.max_write_bytes", reason=reason)

    @staticmethod
    def _require_number(name: str, number: Any) -> None:
        if not number > 0:
            raise ConfigInvalid(path=f"store.{name}", reason=f"{number} is not more than 0")
        limit = _SIZE_LIMITS.get(name)
        if limit is not None and number > limit:
            raise ConfigInvalid(path=f"store.{name}", reason=f"{number} is more than {limit}")
