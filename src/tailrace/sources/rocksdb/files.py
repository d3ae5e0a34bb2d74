"""The log files of a RocksDB folder: live ones beside the data, archived ones in `archive/`.

A file is known by its number. RocksDB renames a live file into the archive while it may be read, and deletes archived
ones; an open file stays readable through both, and a file that is to be opened is looked for in both places.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final, NamedTuple

from tailrace.errors import LogUnreadable

ARCHIVE: Final = "archive"
_LOG_NAME: Final = re.compile(r"(\d+)\.log\Z")
_OPEN_ATTEMPTS: Final = 3


class LogFile(NamedTuple):
    number: int
    path: Path


def list_logs(folder: Path, wal_dir: Path | None = None) -> list[LogFile]:
    """All log files by number. Live ones are listed first, so that one that is being archived is seen at least once."""
    found: dict[int, Path] = {}
    live = wal_dir or folder
    for place in (live, live / ARCHIVE):
        try:
            names = os.listdir(place)
        except FileNotFoundError:
            if place == live:
                raise LogUnreadable(path=str(live), reason="the folder does not exist") from None
            continue
        except OSError as error:
            raise LogUnreadable(path=str(place), reason=str(error)) from error
        for name in names:
            if match := _LOG_NAME.match(name):
                found[int(match[1])] = place / name
    return [LogFile(number, found[number]) for number in sorted(found)]


def open_log(folder: Path, file: LogFile) -> tuple[int, Path] | None:
    """(descriptor, path) of a log file wherever it is now; None if it was deleted."""
    live = folder / file.path.name
    for _ in range(_OPEN_ATTEMPTS):
        for path in (file.path, live, folder / ARCHIVE / file.path.name):
            try:
                return os.open(path, os.O_RDONLY | os.O_CLOEXEC), path
            except FileNotFoundError:
                continue
            except OSError as error:
                raise LogUnreadable(path=str(path), reason=str(error)) from error
    return None


def identity(path: str | os.PathLike[str]) -> str:
    """What RocksDB named this history when it began; checkpoints and copies keep it, a new datastore gets its own."""
    file = Path(path) / "IDENTITY"
    try:
        return file.read_text().strip()
    except OSError as error:
        raise LogUnreadable(path=str(file), reason=str(error)) from error
