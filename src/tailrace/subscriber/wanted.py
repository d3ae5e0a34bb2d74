"""What a user asks for, checked as far as this side can before anything is connected."""

from __future__ import annotations

import os
import re
import secrets
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tailrace.errors import ConfigInvalid
from tailrace.updates.filters import Filter
from tailrace.updates.position import LinePosition
from tailrace.wire.addresses import Endpoint, parse_url
from tailrace.wire.client import Connection
from tailrace.wire.credentials import read_token
from tailrace.wire.messages import Mode, Subscribe
from tailrace.wire.tls import TLS

MODES: Final = ("reliable", "realtime")
STARTS: Final = ("earliest", "latest")  # a new application's; else a line@position
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,126}\Z")


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is subscribed to, as which subscriber, and how to get there."""

    endpoint: Endpoint
    application: str
    subscriber: str
    filter: str | None
    mode: Mode
    start: str
    credential: str | None
    tls: TLS | None

    def ticket(self) -> Subscribe:
        return Subscribe(
            dataset=self.endpoint.dataset,
            application=self.application,
            subscriber=self.subscriber,
            filter=self.filter,
            mode=self.mode,
            start=self.start,
        )

    def connect(self, endpoint: Endpoint) -> Connection:
        return Connection(endpoint, self.credential, self.tls)


def wanted(
    url: str,
    *,
    application: str,
    filter: str | Filter | None = None,
    mode: Mode = "reliable",
    start: str | LinePosition = "latest",
    credential: str | None = None,
    credential_file: str | Path | None = None,
    tls: TLS | None = None,
    subscriber: str | None = None,
) -> Wanted:
    """`UrlInvalid`, `FilterInvalid`, `PositionInvalid` or `ConfigInvalid` say what is wrong, and where."""
    endpoint = parse_url(url)
    if not _NAME.match(application):
        raise ConfigInvalid(
            path="application", reason=f"{application!r} is no name (letters, digits, '_', '.' and '-')"
        )
    if mode not in MODES:
        raise ConfigInvalid(path="mode", reason=f"{mode!r} is none of {', '.join(MODES)}")
    if credential is not None and credential_file is not None:
        raise ConfigInvalid(path="credential_file", reason="given beside credential; one of them is enough")
    if start not in STARTS:
        start = LinePosition.parse(str(start))
    if isinstance(filter, str):
        filter = Filter.parse(filter)
    return Wanted(
        endpoint=endpoint,
        application=application,
        subscriber=subscriber or f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}",
        filter=None if filter is None else str(filter),
        mode=mode,
        start=str(start),
        credential=read_token(credential_file) if credential_file is not None else credential,
        tls=tls,
    )
