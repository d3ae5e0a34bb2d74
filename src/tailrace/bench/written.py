"""What a bench's log holds, for those who read it; `logs` writes it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

ERA: Final = 1
LINE: Final = "bench"


@dataclass(frozen=True, slots=True)
class WrittenLog:
    """A closed store's folder, and what its log holds."""

    folder: Path
    updates: int
    update_bytes: int
    head: int
