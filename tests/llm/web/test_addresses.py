"""Addresses that no page comes from, on fixed data: nothing here is looked up or connected to."""

from __future__ import annotations

from ipaddress import ip_address, ip_network

import pytest

from llm.web.addresses import AddressPolicy, is_special
from tests.kit.tables import rows

NETWORKS, SERVICES, PUBLIC = (
    [address for found, address in rows("llm/web/addresses.txt") if found == kind]
    for kind in ("network", "service", "public")
)


@pytest.mark.parametrize("network", NETWORKS)
def test_no_page_comes_from_a_network_of_a_special_purpose(network: str) -> None:
    whole = ip_network(network)
    middle = whole[whole.num_addresses // 2]
    assert all(is_special(ip) for ip in (whole[0], middle, whole[-1]))


@pytest.mark.parametrize("address", SERVICES)
def test_no_page_comes_from_where_clouds_and_networks_have_their_services(address: str) -> None:
    assert is_special(ip_address(address))
    assert not AddressPolicy().is_public(address)


@pytest.mark.parametrize("address", PUBLIC)
def test_the_addresses_beside_are_public(address: str) -> None:
    assert not is_special(ip_address(address))


@pytest.mark.parametrize("address", [*SERVICES, *PUBLIC])
def test_behind_nat64_the_address_inside_counts(address: str) -> None:
    ip = ip_address(address)
    if ip.version == 4:
        inside = ip_address(int(ip_address("64:ff9b::")) + int(ip))
        assert is_special(inside) == is_special(ip)


def test_what_is_no_address_is_not_public() -> None:
    for text in ("", "example.org", "0x7f.1", "2130706433", "1.1.1", "[::1]"):
        assert not AddressPolicy().is_public(text)
