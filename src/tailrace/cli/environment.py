"""The environment variables that hold secrets or concern every command. Nothing else in Tailrace reads the environment.

Those that merely replace an option (TAILRACE_CONFIG, TAILRACE_ADDRESS, TAILRACE_STORE, TAILRACE_CREDENTIAL_FILE) are
declared with that option, so that `--help` shows them. A credential is never an option: other users see command lines.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Final, Literal, cast, get_args

from tailrace.errors import ConfigInvalid
from tailrace.runtime.secrets import Secret

CREDENTIAL: Final = "TAILRACE_CREDENTIAL"
LOG_LEVEL: Final = "TAILRACE_LOG"
LOG_FORM: Final = "TAILRACE_LOG_FORMAT"
Level = Literal["debug", "info", "warning", "error"]
Form = Literal["logfmt", "json"]


@dataclass(frozen=True, slots=True)
class Environment:
    credential: Secret | None
    log_level: Level
    log_form: Form


def read_environment() -> Environment:
    token = os.environ.get(CREDENTIAL, "").strip()
    level = _one_of(LOG_LEVEL, os.environ.get(LOG_LEVEL, "info").lower(), get_args(Level))
    form = _one_of(LOG_FORM, os.environ.get(LOG_FORM, "logfmt").lower(), get_args(Form))
    return Environment(Secret(token) if token else None, cast(Level, level), cast(Form, form))


def _one_of(name: str, value: str, known: tuple[str, ...]) -> str:
    if value not in known:
        raise ConfigInvalid(path=name, reason=f"{value!r} is none of {', '.join(known)}")
    return value
