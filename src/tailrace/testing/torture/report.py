"""What a torture run found, and whether it passes."""

from __future__ import annotations

import msgspec

from tailrace.testing.torture.schedule import KINDS

LOWEST_RATE_UPDATES_S = 500


class TortureReport(msgspec.Struct, frozen=True, kw_only=True):
    """One run. `problems` says in words why it does not pass; `faults` counts each kind."""

    seed: int
    seconds: float
    written: int
    updates_s: float
    lost: int
    out_of_order: int
    after_handover: int = 0
    corrupt: int
    duplicates: int
    loss_notices: int
    kills: int
    faults: dict[str, int]
    longest_gap_s: float  # between the beginnings of two faults
    delivered: dict[str, int]  # by application
    caught_up_s: float  # how long after healing everything the last subscriber had everything
    problems: list[str]

    @property
    def passed(self) -> bool:
        return not self.problems

    @property
    def exit_code(self) -> int:
        return 0 if self.passed else 1


def problems_of(
    *,
    written: int,
    seconds: float,
    lost: int,
    out_of_order: int,
    after_handover: int,
    corrupt: int,
    loss_notices: int,
    faults: dict[str, int],
    examples: list[str],
    unexpected: list[str],
) -> list[str]:
    """Every reason why such a run does not pass; none if it does."""
    found = [
        f"{count} {what}"
        for count, what in (
            (lost, "lost"),
            (out_of_order, "out of order"),
            (after_handover, "from a session that was over"),
            (corrupt, "corrupt"),
            (loss_notices, "loss notices although nothing was truncated"),
        )
        if count
    ]
    if written < LOWEST_RATE_UPDATES_S * seconds:
        rate = written / seconds if seconds else 0.0
        found.append(f"{rate:.0f} updates/s written, fewer than {LOWEST_RATE_UPDATES_S}")
    missing = [kind for kind in KINDS if not faults.get(kind)]
    if missing:
        found.append(f"these faults did not occur: {', '.join(missing)}; let it run longer")
    return found + unexpected + examples
