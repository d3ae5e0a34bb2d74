"""Which era a log is in when its role opens it: the coordinator is told its identity and what was acknowledged of it.

A folder that was emptied has another identity, and one that was restored from a backup ends before a marker: both are a
fork, and the era rises. A fork that is found later, by a witness that does not match, raises it too, and the role
starts over in the new era. The greatest marker stands in the publisher's ledger, in the same data folder where store
and publisher share a node.
"""

from __future__ import annotations

from pathlib import Path

from tailrace.cli.roles.assembly import PUBLISHER_FOLDER, Assembly
from tailrace.coordination.lines import raise_era, register_line
from tailrace.errors import LogBehind, LogDiverged
from tailrace.publisher.ledger import FILE_NAME, open_ledger
from tailrace.publisher.markers import greatest_marker
from tailrace.publisher.resume import OnFork
from tailrace.sources.interface import Source
from tailrace.sources.rocksdb.files import identity
from tailrace.sources.rocksdb.source import RocksDBSource
from tailrace.updates.position import Position


def era_of_folder(assembly: Assembly, dataset: str, path: Path) -> int:
    """Registers the RocksDB in `path` as the only copy of the dataset's line."""
    acknowledged = acknowledged_through(assembly, dataset)
    head = head_of(dataset, path) if acknowledged else None
    return register_line(assembly.coordinator(), dataset, identity(path), head=head, acknowledged=acknowledged)


def fork_handler(assembly: Assembly, source: Source) -> OnFork:
    """For a log whose era this node keeps. One that merely became shorter is judged when it is registered again."""

    def forked(error: LogDiverged) -> None:
        if not isinstance(error, LogBehind):
            raise_era(assembly.coordinator(), source.line, beyond=source.era, reason=str(error))
        assembly.restart(f"the log of {source.line} has another history: {error}")

    return forked


def acknowledged_through(assembly: Assembly, dataset: str) -> Position | None:
    """The greatest marker of any of the dataset's flows on this node; None if there is none."""
    folder = assembly.folder(PUBLISHER_FOLDER)
    if not (folder / FILE_NAME).exists():
        return None
    with open_ledger(folder) as ledger:
        return greatest_marker(ledger, dataset)


def head_of(dataset: str, path: Path) -> Position:
    """Where the log ends, whatever era that is in."""
    source = RocksDBSource(path, line=dataset, era=0, shards=1)
    try:
        return source.bounds().through
    finally:
        source.close()
