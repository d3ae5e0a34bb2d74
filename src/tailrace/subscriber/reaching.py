"""Has this write reached that application? Asked of the publisher until it says yes."""

from __future__ import annotations

import threading
from pathlib import Path
from random import Random
from typing import Final

from tailrace.errors import Kind, RemoteFailed, TailraceError
from tailrace.runtime.backoff import Backoff
from tailrace.runtime.clock import SYSTEM_CLOCK, Clock, Deadline
from tailrace.updates.position import LinePosition, Position
from tailrace.wire.addresses import parse_url
from tailrace.wire.client import Connection
from tailrace.wire.credentials import read_token
from tailrace.wire.messages import Reached, ReachedReply, decode_reply
from tailrace.wire.tls import TLS

_ASK_AGAIN: Final = Backoff(first_s=0.005, limit_s=0.1, factor=1.5)


def reached(
    url: str,
    position: Position | LinePosition | str,
    *,
    by: str,
    timeout_s: float = 10.0,
    credential: str | None = None,
    credential_file: str | Path | None = None,
    tls: TLS | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> bool:
    """Waits until application `by` has processed everything up to `position`; False if `timeout_s` passed first.

    A publisher that cannot be reached is asked again until then; an error that is the caller's to mend is raised.
    """
    endpoint = parse_url(url)
    ask = Reached(endpoint.dataset, by, _position(position))
    token = read_token(credential_file) if credential_file is not None else credential
    deadline, random, never = Deadline(timeout_s, clock), Random(), threading.Event()
    attempt = 0
    with Connection(endpoint, token, tls) as connection:
        while True:
            try:
                reply = connection.call(ask, decode_reply, max(0.05, min(5.0, deadline.left_s())))
                if not isinstance(reply, ReachedReply):
                    raise RemoteFailed(reason=f"{endpoint.address} answered Reached with {type(reply).__name__}")
                if reply.reached:
                    return True
            except TailraceError as error:
                if error.kind is not Kind.RETRY or deadline.passed():
                    raise
            if deadline.passed():
                return False
            clock.wait(never, min(_ASK_AGAIN.delay_s(attempt, random), deadline.left_s()))
            attempt += 1


def _position(position: Position | LinePosition | str) -> Position:
    if isinstance(position, str):
        return LinePosition.parse(position).position if "@" in position else Position.parse(position)
    return position.position if isinstance(position, LinePosition) else position
