"""URLs and addresses as users write them."""

from __future__ import annotations

import pytest

from tailrace.errors import UrlInvalid
from tailrace.wire.addresses import Endpoint, is_loopback, parse_address, parse_url


def test_a_url_names_host_port_and_dataset() -> None:
    assert parse_url("tailrace://db1.example:7411/shop") == Endpoint("db1.example", 7411, "shop")


def test_a_url_without_port_has_the_schemes_default() -> None:
    assert parse_url("tailrace://db1/shop").port == 7400
    assert parse_url("store://db1/shop", scheme="store").port == 7401


def test_tls_is_asked_for_in_the_scheme() -> None:
    endpoint = parse_url("tailrace+tls://db1:1/shop")
    assert endpoint.tls
    assert endpoint.location == "grpc+tls://db1:1"
    assert str(endpoint) == "tailrace+tls://db1:1/shop"


def test_ipv6_stands_in_brackets_everywhere() -> None:
    endpoint = parse_url("tailrace://[fe80::1]:7400/shop")
    assert (endpoint.host, endpoint.port) == ("fe80::1", 7400)
    assert endpoint.location == "grpc+tcp://[fe80::1]:7400"
    assert parse_url("tailrace://[::1]/shop").port == 7400


def test_another_address_keeps_dataset_and_tls() -> None:
    endpoint = parse_url("tailrace+tls://db1:1/shop").at("db2:2")
    assert str(endpoint) == "tailrace+tls://db2:2/shop"


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("localhost:7400/shop", "no scheme"),
        ("http://localhost:7400/shop", "scheme 'http'"),
        ("store://localhost/shop", "scheme 'store'"),
        ("tailrace://localhost:7400", "the dataset is missing"),
        ("tailrace://localhost:7400/", "the dataset is missing"),
        ("tailrace://localhost:7400/shop/users", "'shop/users' is no dataset's name"),
        ("tailrace:///shop", "the host is missing"),
        ("tailrace://localhost:seven/shop", "'seven' is no port"),
        ("tailrace://localhost:70000/shop", "'70000' is no port"),
        ("tailrace://localhost:/shop", "'' is no port"),
        ("tailrace://::1:7400/shop", "brackets"),
        ("tailrace://[::1/shop", "not closed"),
        ("tailrace://[::1]7400/shop", "'7400' follows"),
        ("tailrace://[nonsense]:7400/shop", "is no IPv6 address"),
        ("tailrace://user:secret@localhost:7400/shop", "credentials do not belong"),
        ("tailrace://lo cal:7400/shop", "is no host's name"),
        ("tailrace://localhost:7400/shop?x=1", "is no dataset's name"),
    ],
)
def test_a_bad_url_is_refused_with_its_reason(url: str, reason: str) -> None:
    with pytest.raises(UrlInvalid) as caught:
        parse_url(url)
    assert reason in str(caught.value)


def test_a_url_that_holds_a_secret_is_not_repeated_in_the_error() -> None:
    with pytest.raises(UrlInvalid) as caught:
        parse_url("tailrace://user:secret@localhost:7400/shop")
    assert "secret@" not in str(caught.value)


def test_a_plain_address_needs_its_port() -> None:
    assert parse_address("0.0.0.0:7400") == Endpoint("0.0.0.0", 7400)
    assert parse_address("store://h:1/d") == Endpoint("h", 1, "d", "store")
    with pytest.raises(UrlInvalid, match="the port is missing"):
        parse_address("localhost")


def test_loopback_is_recognised() -> None:
    assert is_loopback("localhost")
    assert is_loopback("127.8.0.1")
    assert is_loopback("::1")
    assert not is_loopback("0.0.0.0")
    assert not is_loopback("db1")
