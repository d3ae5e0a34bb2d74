"""Which era a log is in when its role opens it: the coordinator is told its identity and what was acknowledged of it.

A folder that was emptied has another identity, and one that was restored from a backup ends before a marker: both are a
fork, and the era rises. A fork that is found later, by a witness that does not match or a log that ends before what
was sent of it, raises it too, and everyone who has the log open starts over in the new era: its publisher, and the
store's process, which looks at its line's record. The greatest marker stands in the publisher's ledger, in the same
data folder where store and publisher share a node.
"""

from __future__ import annotations

from pathlib import Path

from tailrace.cli.roles.assembly import PUBLISHER_FOLDER, Assembly
from tailrace.coordination.lines import raise_era, read_line, register_line
from tailrace.errors import LogDiverged, LogUnreadable
from tailrace.publisher.dataset import ForkFound
from tailrace.publisher.ledger import FILE_NAME, open_ledger
from tailrace.publisher.markers import greatest_marker
from tailrace.runtime.logging import get_log
from tailrace.sources.rocksdb.files import identity
from tailrace.sources.rocksdb.source import RocksDBSource
from tailrace.updates.position import Position

log = get_log(__name__)


def era_of_folder(assembly: Assembly, dataset: str, path: Path) -> int:
    """Registers the RocksDB in `path` as the only copy of the dataset's line."""
    acknowledged = acknowledged_through(assembly, dataset)
    head = head_of(dataset, path) if acknowledged else None
    before = read_line(assembly.coordinator(), dataset)
    era = register_line(assembly.coordinator(), dataset, identity(path), head=head, acknowledged=acknowledged)
    if before is not None and era > before.era:
        now = read_line(assembly.coordinator(), dataset)
        reason = now.earlier[0].reason if now and now.earlier else ""
        log.warning("the log's history is another one: a new era begins", line=dataset, era=era, reason=reason)
    return era


def fork_handler(assembly: Assembly, line: str, era: int, folder: Path) -> ForkFound | None:
    """Raises the era, where the log is registered with this node's coordinator; None where another one keeps its era.

    The log is its line's only copy, so that one which ends before what was delivered of it has forked as well.
    """
    record = read_line(assembly.coordinator(), line)
    if record is None or not _is(folder, record.identity):
        return None
    registered = record.identity

    def forked(error: LogDiverged, delivered: Position) -> None:
        if _is(folder, registered):  # another identity raises the era when it is registered
            raise_era(assembly.coordinator(), line, beyond=era, reason=str(error), delivered=delivered)
        assembly.restart(f"the log of {line} has another history: {error}")

    return forked


def _is(folder: Path, registered: str) -> bool:
    try:
        return identity(folder) == registered
    except LogUnreadable:
        return False  # it is being replaced


def newer_era(assembly: Assembly, line: str, era: int) -> int | None:
    """The era that followed, if a fork was found meanwhile."""
    record = read_line(assembly.coordinator(), line)
    return record.era if record and record.era > era else None


def delivered_in_ended_eras(assembly: Assembly, line: str) -> dict[int, Position]:
    record = read_line(assembly.coordinator(), line)
    return {one.era: one.delivered for one in record.earlier if one.delivered is not None} if record else {}


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
