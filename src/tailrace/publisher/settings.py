"""The publisher's limits, each a named and documented default."""

from __future__ import annotations

import msgspec

from tailrace.sources.limits import BATCH_BYTES


class PublisherSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What bounds a publisher's memory, patience and rates."""

    batch_bytes: int = BATCH_BYTES  # a batch on its way
    window_bytes: int = 24 << 20  # recent batches that a caravan keeps for its streams; a stream further behind leaves
    patience_s: float = 0.25  # a stream that takes nothing for so long while others wait for it is moved off
    slowness_s: float = 1.0  # and so is one that has kept others waiting so much longer than half of the time
    max_caravans: int = 32  # log readers at once; a stream beyond that waits for one to end
    marker_interval_s: float = 30.0  # a token goes down at least this often while updates flow ...
    marker_interval_bytes: int = 256 << 20  # ... or after this much
    heartbeat_s: float = 1.0  # silence on a stream is at most this long
    lease_s: float = 5.0  # a subscriber not heard of for this long has lost its flows
    lease_margin_s: float = 1.0  # how much longer the publisher waits, for clocks that run at different speeds
    drain_s: float = 2.0  # a publisher that shuts down waits so long for the acknowledgement of what was sent
    max_standbys: int = 64  # subscribers of one application that wait for its flows
    max_open_tokens: int = 64  # tokens not yet acknowledged; the oldest is forgotten beyond that
    retry_failed_source_s: float = 1.0  # a log that cannot be read is tried again after this long
    create_applications: bool = True  # whether a subscriber's first visit creates its application's record
    max_applications: int = 1000
    max_dead_letters: int = 1_000_000  # per application; one more is refused, which stops that application
    dead_letter_batch: int = 256  # letters in one redelivery
