"""`tailrace version`."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version

from tailrace.cli.output import say

_STANDS_ON = ("pyarrow", "numba", "rocksdict", "msgspec")


def print_versions() -> None:
    from tailrace.wire.messages import OLDEST_PROTOCOL, PROTOCOL_VERSION

    say(f"tailrace {version('tailrace')}")
    say(f"protocol {PROTOCOL_VERSION} (speaks {OLDEST_PROTOCOL} to {PROTOCOL_VERSION})")
    say(f"python {platform.python_version()}")
    for name in _STANDS_ON:
        try:
            say(f"{name} {version(name)}")
        except PackageNotFoundError:
            say(f"{name} is not installed")
