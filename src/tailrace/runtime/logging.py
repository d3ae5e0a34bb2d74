"""Structured log lines on stderr, on top of the standard library's logging.

A line is an event in plain words and fields: `log.info("flow moved", application="cache", shard=3)`. `configure` is
called once, by the command line; importing this module configures nothing. Lines are logfmt or JSON. Secrets do not get
out: a `Secret` prints as ***, fields named like one are masked, passwords in URLs are cut out, and texts that the
command line registered are masked wherever they turn up, also in tracebacks.
"""

from __future__ import annotations

import json
import logging
import re
import sys
import time
from collections.abc import Iterable
from typing import Any, Final, Literal, TextIO

from tailrace.runtime.secrets import REDACTED, Secret

Form = Literal["logfmt", "json"]

MAX_VALUE_CHARS: Final = 4096
ROOT: Final = "tailrace"
_SECRET_NAME = re.compile(r"(password|passwd|secret|credential|authorization|private_key|api_key)$", re.IGNORECASE)
_URL_PASSWORD = re.compile(r"(\b[a-z][a-z0-9+.-]*://[^\s:/@]*):[^\s/@]+@", re.IGNORECASE)
_BARE = re.compile(r"[^\s\"=\\]+\Z")


class Log:
    """A named logger that takes fields."""

    __slots__ = ("_fields", "_logger")

    def __init__(self, logger: logging.Logger, fields: dict[str, Any] | None = None) -> None:
        self._logger = logger
        self._fields = fields or {}

    def bound(self, **fields: Any) -> Log:
        """The same logger with fields that every line carries."""
        return Log(self._logger, {**self._fields, **fields})

    def debug(self, event: str, **fields: Any) -> None:
        self._write(logging.DEBUG, event, fields)

    def info(self, event: str, **fields: Any) -> None:
        self._write(logging.INFO, event, fields)

    def warning(self, event: str, **fields: Any) -> None:
        self._write(logging.WARNING, event, fields)

    def error(self, event: str, *, exception: BaseException | None = None, **fields: Any) -> None:
        self._write(logging.ERROR, event, fields, exception)

    def _write(self, level: int, event: str, fields: dict[str, Any], exception: BaseException | None = None) -> None:
        if self._logger.isEnabledFor(level):
            extra = {"tailrace_fields": {**self._fields, **fields}}
            self._logger.log(level, "%s", event, extra=extra, exc_info=exception)


def get_log(name: str) -> Log:
    """The log of a module: `get_log(__name__)`."""
    return Log(logging.getLogger(name))


def configure(
    *,
    level: str = "info",
    form: Form = "logfmt",
    role: str = "",
    secrets: Iterable[Secret] = (),
    stream: TextIO | None = None,
) -> logging.Handler:
    """Sends all lines of Tailrace to `stream` (stderr). Called again, it replaces what it set before."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(_Formatter(form, role, [secret.reveal() for secret in secrets]))
    root = logging.getLogger(ROOT)
    for old in list(root.handlers):
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(level.upper())
    root.propagate = False
    return handler


class _Formatter(logging.Formatter):
    def __init__(self, form: Form, role: str, secret_texts: list[str]) -> None:
        super().__init__()
        self._form = form
        self._role = role
        longest_first = sorted((re.escape(text) for text in secret_texts if text), key=len, reverse=True)
        self._secrets = re.compile("|".join(longest_first)) if longest_first else None

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, Any] = {"time": _stamp(record.created), "level": record.levelname.lower()}
        if self._role:
            fields["role"] = self._role
        fields["logger"] = record.name.removeprefix(f"{ROOT}.")
        fields["event"] = record.getMessage()
        for name, value in getattr(record, "tailrace_fields", {}).items():
            fields[name if name not in fields else f"{name}_"] = REDACTED if _SECRET_NAME.search(name) else value
        if record.exc_info:
            fields["error"] = self.formatException(record.exc_info)
        masked = {name: self._mask(value) for name, value in fields.items()}
        if self._form == "json":
            return json.dumps(masked, ensure_ascii=False, default=str)
        return " ".join(f"{name}={_logfmt(value)}" for name, value in masked.items())

    def _mask(self, value: Any) -> Any:
        if value is None or isinstance(value, bool | int | float):
            return value
        text = str(value)
        if len(text) > MAX_VALUE_CHARS:
            text = f"{text[:MAX_VALUE_CHARS]}… ({len(text)} characters)"
        text = _URL_PASSWORD.sub(rf"\1:{REDACTED}@", text)
        return self._secrets.sub(REDACTED, text) if self._secrets else text


def _logfmt(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:.6g}"
    text = str(value)
    return text if _BARE.match(text) else json.dumps(text, ensure_ascii=False)


def _stamp(seconds: float) -> str:
    whole, fraction = divmod(seconds, 1)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(whole)) + f".{int(fraction * 1000):03d}Z"
