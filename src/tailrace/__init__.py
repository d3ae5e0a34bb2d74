"""Tailrace carries every committed write to everything that depends on it.

The names below load what they need when they are first used, so that a process which installed no extra can import
the package.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tailrace.subscriber import (
        Application,
        ErrorPolicy,
        StopSubscription,
        Subscription,
        Token,
        reached,
        stream,
        subscribe,
    )
    from tailrace.updates.batch import Update, UpdateBatch
    from tailrace.updates.position import LinePosition, Position
    from tailrace.wire.tls import TLS

__version__ = "0.1.0"

_HOME = {
    "Application": "tailrace.subscriber",
    "ErrorPolicy": "tailrace.subscriber",
    "StopSubscription": "tailrace.subscriber",
    "Subscription": "tailrace.subscriber",
    "Token": "tailrace.subscriber",
    "reached": "tailrace.subscriber",
    "stream": "tailrace.subscriber",
    "subscribe": "tailrace.subscriber",
    "Update": "tailrace.updates.batch",
    "UpdateBatch": "tailrace.updates.batch",
    "LinePosition": "tailrace.updates.position",
    "Position": "tailrace.updates.position",
    "TLS": "tailrace.wire.tls",
}

__all__ = [
    "TLS",
    "Application",
    "ErrorPolicy",
    "LinePosition",
    "Position",
    "StopSubscription",
    "Subscription",
    "Token",
    "Update",
    "UpdateBatch",
    "reached",
    "stream",
    "subscribe",
]


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'tailrace' has no attribute {name!r}")
    return getattr(importlib.import_module(home), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
