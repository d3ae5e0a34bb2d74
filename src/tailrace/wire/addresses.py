"""How users name a server: `tailrace://host:port/dataset`, `store://host:port/dataset`, or plain `host:port`.

TLS is asked for in the scheme (`tailrace+tls://`, `store+tls://`), as one would expect from `https`; a client that is
given a `TLS` object uses it whatever the scheme says. IPv6 addresses stand in brackets.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass, replace
from typing import Final

from tailrace.errors import UrlInvalid

DEFAULT_PORTS: Final = {"tailrace": 7400, "store": 7401}
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}\Z")
_HOST: Final = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]{0,252}[A-Za-z0-9_])?\Z")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A server's host and port, and the dataset if one was named (else empty)."""

    host: str
    port: int
    dataset: str = ""
    scheme: str = "tailrace"
    tls: bool = False

    @property
    def address(self) -> str:
        """`host:port`, with an IPv6 host in brackets."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def location(self) -> str:
        """What Arrow Flight calls this place."""
        return f"grpc+{'tls' if self.tls else 'tcp'}://{self.address}"

    def at(self, address: str) -> Endpoint:
        """The same dataset, asked for in the same way, at another address."""
        other = parse_address(address)
        return replace(self, host=other.host, port=other.port)

    def __str__(self) -> str:
        return f"{self.scheme}{'+tls' if self.tls else ''}://{self.address}" + (
            f"/{self.dataset}" if self.dataset else ""
        )


def parse_url(url: str, *, scheme: str = "tailrace", needs_dataset: bool = True) -> Endpoint:
    """The endpoint that a user wrote; `scheme` is the one expected here."""
    found, separator, rest = url.partition("://")
    if not separator:
        raise UrlInvalid(url=url, reason=f"no scheme; it reads {scheme}://host:port/dataset")
    bare = found.removesuffix("+tls")
    if bare != scheme:
        raise UrlInvalid(url=url, reason=f"scheme {found!r} is not {scheme} or {scheme}+tls")
    place, _, path = rest.partition("/")
    if "@" in place:
        raise UrlInvalid(url=url.replace(place, "…"), reason="credentials do not belong in a URL; use credential_file")
    if not path and needs_dataset:
        raise UrlInvalid(url=url, reason=f"the dataset is missing; it reads {scheme}://host:port/dataset")
    if path and not _NAME.match(path):
        raise UrlInvalid(url=url, reason=f"{path!r} is no dataset's name (letters, digits, '_', '.' and '-')")
    host, port = _host_and_port(url, place, DEFAULT_PORTS.get(scheme))
    return Endpoint(host, port, path, scheme, tls=found.endswith("+tls"))


def parse_address(address: str) -> Endpoint:
    """A plain `host:port`, or a whole URL of either scheme without caring for its dataset."""
    scheme, separator, _ = address.partition("://")
    if separator:
        bare = scheme.removesuffix("+tls")
        return parse_url(address, scheme=bare if bare in DEFAULT_PORTS else "tailrace", needs_dataset=False)
    host, port = _host_and_port(address, address, None)
    return Endpoint(host, port)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address with this host."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _host_and_port(url: str, place: str, default_port: int | None) -> tuple[str, int]:
    if place.startswith("["):
        host, closed, tail = place[1:].partition("]")
        if not closed:
            raise UrlInvalid(url=url, reason="the bracket around the IPv6 address is not closed")
        _require_ipv6(url, host)
        if tail and not tail.startswith(":"):
            raise UrlInvalid(url=url, reason=f"{tail!r} follows the IPv6 address where a :port belongs")
        port_text = tail[1:]
        has_port = bool(tail)
    else:
        if place.count(":") > 1:
            raise UrlInvalid(url=url, reason="an IPv6 address stands in brackets, as in [::1]:7400")
        host, colon, port_text = place.partition(":")
        has_port = bool(colon)
        if not host:
            raise UrlInvalid(url=url, reason="the host is missing")
        if not _HOST.match(host):
            raise UrlInvalid(url=url, reason=f"{host!r} is no host's name")
    if not has_port:
        if default_port is None:
            raise UrlInvalid(url=url, reason="the port is missing; it reads host:port")
        return host, default_port
    return host, _port(url, port_text)


def _require_ipv6(url: str, host: str) -> None:
    try:
        ipaddress.IPv6Address(host)
    except ValueError:
        raise UrlInvalid(url=url, reason=f"{host!r} is no IPv6 address") from None


def _port(url: str, text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) <= 65535):
        raise UrlInvalid(url=url, reason=f"{text!r} is no port (0 to 65535)")
    return int(text)
