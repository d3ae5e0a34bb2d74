"""How large a batch read from a log becomes, for all who name that limit; it loads nothing."""

from __future__ import annotations

from typing import Final

# Small batches cost a wake-up and some Python at every hop (with twenty receivers 1 MB delivers a fifth less, 512 kB
# half as much), large ones memory; at the head batches hold what has gathered, far below this.
BATCH_BYTES: Final = 2 << 20
