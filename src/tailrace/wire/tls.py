"""TLS by files: who a server is, whom it and its clients believe, and whether clients show a certificate as well."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tailrace.errors import ConfigInvalid


@dataclass(frozen=True, slots=True)
class TLS:
    """One node's certificates, as PEM files; servers and clients take what they need.

    A server shows `cert_file` and, with `mutual`, believes only clients whose certificate `ca_file` signed. A client
    believes servers that `ca_file` signed (None: the system's roots) and shows `cert_file` if it has one.
    `server_name` is the name to expect in the server's certificate where it is reached by another one.
    """

    cert_file: str | Path | None = None
    key_file: str | Path | None = None
    ca_file: str | Path | None = None
    mutual: bool = False
    server_name: str | None = None

    def server_options(self) -> dict[str, Any]:
        """What `FlightServerBase` takes."""
        if self.cert_file is None or self.key_file is None:
            raise ConfigInvalid(path="tls", reason="a server needs cert_file and key_file")
        if self.mutual and self.ca_file is None:
            raise ConfigInvalid(path="tls.ca_file", reason="missing, and mutual TLS needs the authority of the clients")
        options: dict[str, Any] = {"tls_certificates": [(_pem(self.cert_file, "tls.cert_file"), self._key())]}
        if self.mutual and self.ca_file is not None:
            options |= {"verify_client": True, "root_certificates": _pem(self.ca_file, "tls.ca_file")}
        return options

    def client_options(self) -> dict[str, Any]:
        """What `FlightClient` takes."""
        options: dict[str, Any] = {}
        if self.ca_file is not None:
            options["tls_root_certs"] = _pem(self.ca_file, "tls.ca_file")
        if self.cert_file is not None:
            options |= {"cert_chain": _pem(self.cert_file, "tls.cert_file"), "private_key": self._key()}
        if self.server_name is not None:
            options["override_hostname"] = self.server_name
        return options

    def _key(self) -> bytes:
        if self.key_file is None:
            raise ConfigInvalid(path="tls.key_file", reason="missing beside cert_file")
        return _pem(self.key_file, "tls.key_file")


def _pem(path: str | Path, setting: str) -> bytes:
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise ConfigInvalid(path=setting, reason=f"{path}: {error.strerror}") from error
    if b"-----BEGIN " not in content:
        raise ConfigInvalid(path=setting, reason=f"{path} is no PEM file")
    return content
