"""Which addresses a remote reward may be asked at. Pure, but for the resolver that it is given.

An entry of the list is a host (``judge.models.svc``), all hosts of a domain (``*.models.svc``), or a network
(``10.96.0.0/12``, ``127.0.0.1``). A host has to be named, or all its addresses have to lie in a network of the list; an
address that is not a public one has to lie in such a network in any case. So a name that starts to resolve to a
metadata server, or to this machine, is refused.
"""

import ipaddress
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Resolve = Callable[[str, int], Awaitable[Sequence[str]]]


class HostRefused(Exception):
    """The host is not one that may be asked."""


@dataclass(frozen=True, slots=True)
class AllowedHosts:
    """The list."""

    names: tuple[str, ...]
    networks: tuple[Network, ...]

    @classmethod
    def parse(cls, entries: Sequence[str]) -> "AllowedHosts":
        """Read the entries: what is no network is a name."""
        names: list[str] = []
        networks: list[Network] = []
        for entry in entries:
            try:
                networks.append(ipaddress.ip_network(entry, strict=False))
            except ValueError:
                names.append(entry.lower().rstrip("."))
        return cls(tuple(names), tuple(networks))

    async def address_of(self, host: str, port: int, resolve: Resolve) -> str:
        """The address to connect to, and to no other. Raises HostRefused, and what ``resolve`` raises."""
        found = [_address(text) for text in await resolve(host, port)]
        if not found:
            raise HostRefused(f"{host} has no address")
        is_named = any(_matches(host.lower().rstrip("."), name) for name in self.names)
        for address in found:
            listed = any(address in network for network in self.networks)
            if not listed and not is_named:
                raise HostRefused(f"{host} is not among the allowed hosts (RLHFLESS_REWARD_ALLOWED_HOSTS)")
            if not listed and not _is_public(address):
                raise HostRefused(
                    f"{host} resolves to {address}, which is no public address and lies in no network of the allowed "
                    "hosts (RLHFLESS_REWARD_ALLOWED_HOSTS): add its network, such as 10.96.0.0/12"
                )
        return str(found[0])


def _address(text: str) -> Address:
    # Without the interface, as in fe80::1%eth0.
    address = ipaddress.ip_address(text.partition("%")[0])
    mapped = getattr(address, "ipv4_mapped", None)
    return mapped or address


def _is_public(address: Address) -> bool:
    return address.is_global and not address.is_multicast


def _matches(host: str, name: str) -> bool:
    return host == name or (name.startswith("*.") and host.endswith(name[1:]))
