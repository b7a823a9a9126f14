"""Addresses that no page comes from, on fixed data: nothing here is looked up or connected to."""

from __future__ import annotations

from ipaddress import ip_address, ip_network

import pytest

from llm.web.addresses import AddressPolicy, is_special

NETWORKS = [
    *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16"),
    *("172.16.0.0/12", "192.0.0.0/24", "192.0.2.0/24", "192.31.196.0/24", "192.52.193.0/24"),
    *("192.88.99.0/24", "192.168.0.0/16", "192.175.48.0/24", "198.18.0.0/15", "198.51.100.0/24"),
    *("203.0.113.0/24", "168.63.129.16/32", "224.0.0.0/4", "240.0.0.0/4"),
    *("::/96", "::ffff:0:0/96", "::ffff:0:0:0/96", "64:ff9b:1::/48", "100::/64", "100:0:0:1::/64"),
    *("2001::/23", "2001:db8::/32", "2002::/16", "2620:4f:8000::/48", "3fff::/20", "5f00::/16"),
    *("fc00::/7", "fe80::/10", "fec0::/10", "ff00::/8"),
]
SERVICES = [
    *("169.254.169.254", "169.254.170.2", "192.0.0.192", "168.63.129.16", "100.100.100.200"),
    *("192.0.0.8", "192.0.0.100", "192.0.0.170", "192.0.0.254", "255.255.255.255"),
    *("fd00:ec2::254", "fd20:ce::254", "::1", "::", "fe80::a9fe:a9fe", "fe80::1%eth0"),
    *("2001:0:7f00:1::", "2002:a00:1::", "2a00:1::5efe:a00:1", "2a00:1::200:5efe:808:808"),
    *("64:ff9b:1::808:808", "::ffff:8.8.8.8", "2001:db8::1%eth0", "2606:4700::1111%eth0"),
]
PUBLIC = [
    *("1.1.1.1", "8.8.8.8", "93.184.216.34", "168.63.129.15", "168.63.129.17", "192.0.1.1"),
    *("11.0.0.1", "100.63.255.255", "100.128.0.0", "172.32.0.1", "198.17.1.1", "223.255.255.255"),
    *("2001:200::1", "2003::1", "2606:4700::1111", "2a00:1450:4001::200e", "3ffe::1"),
]


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
