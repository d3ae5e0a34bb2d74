"""Who is alive and who owns what, among publishers: one interface, embedded (SQLite) for one machine."""

from tailrace.coordination.datasets import fix_shards, read_shards, refuse_other_shards
from tailrace.coordination.embedded import EmbeddedCoordinator
from tailrace.coordination.interface import (
    Claim,
    Coordinator,
    Holder,
    Member,
    Record,
    Session,
    Topic,
    Watch,
    path_of,
)
from tailrace.coordination.lines import raise_era, read_line, register_line
from tailrace.coordination.records import RecordKind

__all__ = [
    "Claim",
    "Coordinator",
    "EmbeddedCoordinator",
    "Holder",
    "Member",
    "Record",
    "RecordKind",
    "Session",
    "Topic",
    "Watch",
    "fix_shards",
    "path_of",
    "raise_era",
    "read_line",
    "read_shards",
    "refuse_other_shards",
    "register_line",
]
