"""Credentials: bearer tokens that a server knows only as hashes, each with the scopes that it grants.

A token reads `name.secret`; the secret holds 256 random bits, so that a plain SHA-256 of it cannot be searched. The
file is JSON with a format version, private to its owner, and is read again when it changes: a credential is revoked by
removing it. A broken new version leaves the last good one in force, and is logged.

Whoever presents a bad token learns only that it is bad: neither whether the name exists nor which part was wrong, and
comparing takes the same time either way.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import os
import re
import secrets
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from tailrace.errors import ConfigInvalid, CredentialRefused, VersionTooNew
from tailrace.wire.callers import ACTIONS, Caller, Scope

logger: Final = logging.getLogger(__name__)

FORMAT_VERSION: Final = 1
AUTHORIZATION: Final = "authorization"
_PREFIX: Final = "Bearer "
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}\Z")
_NOBODY: Final = hashlib.sha256(b"nobody").hexdigest()


class CredentialRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One credential as the file holds it."""

    name: str
    sha256: str
    scopes: list[Scope]


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    version: int
    credentials: list[CredentialRecord] = []


class _Version(msgspec.Struct):
    version: int


class Credentials:
    """The credentials that a server accepts, followed as their file changes."""

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        self._lock = threading.Lock()
        self._seen = _identity(self._path)
        self._by_name = _by_name(_read(self._path))

    def caller(self, authorization: str | None, peer: str) -> Caller:
        """Who presents this `authorization` header. `CredentialRefused` unless it is a token that is known."""
        self._follow()
        if authorization is None:
            raise CredentialRefused(reason="this server asks for one and none was given")
        name, _, secret = authorization.removeprefix(_PREFIX).rpartition(".")
        record = self._by_name.get(name)
        expected = record.sha256 if record is not None else _NOBODY
        if not hmac.compare_digest(_hashed(secret), expected) or record is None:
            raise CredentialRefused(reason="it is not known here; check the credential, or ask for a new one")
        return Caller(record.name, tuple(record.scopes), peer)

    def _follow(self) -> None:
        seen = _identity(self._path)
        if seen == self._seen:
            return
        with self._lock:
            if seen == self._seen:
                return
            self._seen = seen
            try:
                self._by_name = _by_name(_read(self._path))
                logger.info("credentials were read again from %s", self._path)
            except (ConfigInvalid, VersionTooNew) as error:
                logger.error("credentials stay as they were: %s", error)


def issue_credential(path: str | Path, name: str, scopes: Sequence[Scope], *, replace: bool = False) -> str:
    """Adds a credential to the file (created if need be) and returns its token, which is kept nowhere else."""
    target = Path(path)
    if not _NAME.match(name):
        raise ConfigInvalid(path="credential", reason=f"{name!r} is no name (letters, digits, '_' and '-')")
    for scope in scopes:
        for action in scope.actions:
            if action not in ACTIONS:
                raise ConfigInvalid(path="credential", reason=f"scope {action!r} is none of {', '.join(ACTIONS)}")
    records = _read(target) if os.path.exists(target) else []  # False, not an error, where it may not look
    if any(record.name == name for record in records) and not replace:
        raise ConfigInvalid(path="credential", reason=f"{name!r} exists already in {target}; replace or remove it")
    secret = secrets.token_urlsafe(32)
    kept = [record for record in records if record.name != name]
    _write(target, [*kept, CredentialRecord(name, _hashed(secret), list(scopes))])
    return f"{name}.{secret}"


def revoke_credential(path: str | Path, name: str) -> bool:
    """Removes a credential; servers refuse it from their next call on. False if it was not there."""
    target = Path(path)
    records = _read(target)
    kept = [record for record in records if record.name != name]
    if len(kept) == len(records):
        return False
    _write(target, kept)
    return True


def list_credentials(path: str | Path) -> list[CredentialRecord]:
    return _read(Path(path))


def read_token(path: str | Path) -> str:
    """A token from the file in which a client keeps it."""
    try:
        text = Path(path).read_text("utf-8", "replace").strip()
    except OSError as error:
        raise ConfigInvalid(path="credential_file", reason=f"{path}: {error.strerror}") from error
    if "." not in text or not text.isascii() or any(character.isspace() for character in text):
        raise ConfigInvalid(path="credential_file", reason=f"{path} does not hold one token of the form name.secret")
    return text


def bearer(token: str) -> str:
    return _PREFIX + token


def _hashed(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()


def _identity(path: Path) -> tuple[int, int, int]:
    try:
        found = path.stat()
    except OSError:
        return (0, 0, 0)
    return (found.st_mtime_ns, found.st_ino, found.st_size)


def _by_name(records: Sequence[CredentialRecord]) -> dict[str, CredentialRecord]:
    return {record.name: record for record in records}


def _read(path: Path) -> list[CredentialRecord]:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ConfigInvalid(path="credentials", reason=f"{path}: {error.strerror}") from error
    try:
        version = msgspec.json.decode(content, type=_Version).version
        if version > FORMAT_VERSION:
            raise VersionTooNew(what=f"the credentials file {path}", found=version, known=FORMAT_VERSION)
        return msgspec.json.decode(content, type=_File).credentials
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ConfigInvalid(path="credentials", reason=f"{path}: {error}") from error


def _write(path: Path, records: Sequence[CredentialRecord]) -> None:
    """Replaced as a whole, so that a server never reads half a file."""
    partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        content = msgspec.json.format(msgspec.json.encode(_File(FORMAT_VERSION, list(records))), indent=2)
        with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except UnicodeEncodeError as error:
        raise ConfigInvalid(path="credential", reason=f"a name in its scope is not UTF-8: {error}") from error
    except OSError as error:
        reason = f"{path} cannot be written: {error.strerror}; its folder must exist and be writable"
        raise ConfigInvalid(path="credentials", reason=reason) from error
