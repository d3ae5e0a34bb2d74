"""Commit times as text and numbers: microseconds since 1970, UTC, six digits, so that text sorts as time does."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Final

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def instant_text(moment: datetime) -> str:
    """2026-11-18T21:40:08.000000Z"""
    return moment.astimezone(UTC).isoformat(timespec="microseconds").removesuffix("+00:00") + "Z"


def parsed_instant(text: str) -> datetime | None:
    """A date or time in ISO 8601; UTC where it names no zone. None if it is none."""
    try:
        moment = datetime.fromisoformat(text)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def microseconds_of(moment: datetime) -> int:
    return (moment - EPOCH) // _MICROSECOND


def seconds_of(moment: datetime) -> Decimal:
    return Decimal(microseconds_of(moment)).scaleb(-6)
