"""Passwords and keys that must not show up in logs, tracebacks or status pages.

A `Secret` prints as `***`; its text is only had through `reveal`. Secrets come from a file or from a named environment
variable, never from the configuration file's own text or the command line.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tailrace.errors import ConfigInvalid

MAX_SECRET_BYTES: Final = 64 * 1024
REDACTED: Final = "***"


class Secret:
    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return f"Secret({REDACTED})"

    def __str__(self) -> str:
        return REDACTED

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and hmac.compare_digest(self._text.encode(), other._text.encode())

    def __hash__(self) -> int:
        return hash(self._text)


def read_secret(
    path: str, *, file: str | Path | None, environment_name: str | None, environment: Mapping[str, str]
) -> Secret | None:
    """The secret that the keys `<path>_file` or `<path>_env` point to; None if neither is set.

    `path` is the key path without the ending, for the error. A line break at the end of the file is not part of it.
    """
    if file is not None and environment_name is not None:
        raise ConfigInvalid(path=f"{path}_file", reason=f"set either this or {path}_env, not both")
    if file is not None:
        return _from_file(f"{path}_file", Path(file))
    if environment_name is not None:
        found = environment.get(environment_name, "")
        if not found:
            raise ConfigInvalid(path=f"{path}_env", reason=f"environment variable {environment_name} is not set")
        return Secret(found)
    return None


def _from_file(key: str, file: Path) -> Secret:
    try:
        with file.open("rb") as opened:
            content = opened.read(MAX_SECRET_BYTES + 1)
        text = content.decode().rstrip("\r\n")
    except OSError as error:
        raise ConfigInvalid(path=key, reason=f"{file} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigInvalid(path=key, reason=f"{file} is not UTF-8 text") from error
    if len(content) > MAX_SECRET_BYTES:
        raise ConfigInvalid(path=key, reason=f"{file} is over {MAX_SECRET_BYTES} bytes, too large for a secret")
    if not text:
        raise ConfigInvalid(path=key, reason=f"{file} is empty")
    return Secret(text)
